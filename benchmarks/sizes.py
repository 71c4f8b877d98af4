"""Sizes as people write them: 4KiB, 25MiB, 1GB. KiB is 1024 bytes, KB is 1000."""

from __future__ import annotations

import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int:
    """Bytes. Raises ValueError if text is not a whole number with or without one of the units."""
    found = re.fullmatch(rf"(\d+)({'|'.join(UNITS)})?", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a size: give a whole number and one of {', '.join(UNITS)}, as in 25MiB")
    return int(found[1]) * UNITS[found[2] or "B"]


def format_size(size_bytes: int) -> str:
    """The shortest exact form in powers of 1024: 26214400 is 25MiB, 100 is 100B."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % UNITS[unit] == 0:
            return f"{size_bytes // UNITS[unit]}{unit}"
    return f"{size_bytes}B"
