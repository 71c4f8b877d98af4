"""The sizes to measure, from nccl-tests' options: from -b to -e, each -f times the one before."""

from __future__ import annotations

from fairring.config import size


def size_range(begin: str, end: str, factor: float, item_bytes: int) -> list[int]:
    """Bytes, ascending, each a whole number of elements. Raises ValueError if there is no such range."""
    first, last = size("-b", begin), size("-e", end)
    if first > last:
        raise ValueError(f"-b {begin} is more than -e {end}; swap them")
    if factor <= 1 and first != last:
        raise ValueError(f"-f {factor:g} leads from -b {begin} nowhere; give a factor above 1, as in -f 8")
    sizes, current = [], float(first)
    while current <= last:
        sizes.append(int(current))
        current *= max(factor, 1.001)
    return whole_elements(sizes, item_bytes)


def size_list(text: str, item_bytes: int) -> list[int]:
    """Bytes, from a list such as 4KiB,25MiB. Raises ValueError."""
    return whole_elements([size("--sizes", part) for part in text.split(",")], item_bytes)


def whole_elements(sizes: list[int], item_bytes: int) -> list[int]:
    """Rounded down to whole elements, none twice. Raises ValueError if one is less than an element."""
    for one in sizes:
        if one < item_bytes:
            raise ValueError(f"{one} B is less than an element, which has {item_bytes} B")
    return list(dict.fromkeys(one // item_bytes * item_bytes for one in sizes))


def format_size(size_bytes: int) -> str:
    """The shortest exact form in powers of 1024: 26214400 is 25MiB, 100 is 100B."""
    for unit, unit_bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}B"
