"""The holdings of a process: threads, descriptors, shared memory, children. Compared around a group's life."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

KIB = 1024

_FLAGS = 6  # of the fields of /proc/<pid>/stat that follow the name: see proc(5)
_PF_EXITING = 0x4  # include/linux/sched.h

FIELDS = ("threads", "descriptors", "maps", "shared_files", "children")


@dataclass(frozen=True)
class Holdings:
    """Counted by kind, without numbers: a socket is "socket", whichever it is. memory: bytes of its own, not shared."""

    threads: Counter[str]
    descriptors: Counter[str]
    maps: Counter[str]  # of memory that other processes can share
    shared_files: Counter[str]  # in /dev/shm
    children: Counter[str]
    memory: int

    def beyond(self, before: Holdings) -> dict[str, dict[str, int]]:
        """The holdings that were not in `before`, by field; empty when there are none."""
        more = {field: dict(getattr(self, field) - getattr(before, field)) for field in FIELDS}
        return {field: counts for field, counts in more.items() if counts}


class Peak:
    """The most that this process has held when somebody looked: bytes of its own, and descriptors."""

    def __init__(self) -> None:
        self.descriptors = 0
        self.memory = 0

    def look(self) -> None:
        self.descriptors = max(self.descriptors, len(list(Path("/proc/self/fd").iterdir())))
        self.memory = max(self.memory, int(_field(Path("/proc/self/status").read_text(), "RssAnon")) * KIB)


def take(pid: int | str = "self") -> Holdings:
    process = Path("/proc") / str(pid)
    return Holdings(
        threads=Counter(_threads(process / "task")),
        descriptors=Counter(_descriptors(process / "fd")),
        maps=Counter(_shared_maps((process / "maps").read_text())),
        shared_files=Counter(path.name for path in Path("/dev/shm").iterdir()),
        children=Counter(map(str, children_of(pid))),
        memory=int(_field((process / "status").read_text(), "RssAnon")) * KIB,
    )


def least(looks: Sequence[Holdings]) -> Holdings:
    """What the process held at every look, and the least memory."""
    common: dict[str, Counter[str]] = {
        field: reduce(operator.and_, (getattr(look, field) for look in looks)) for field in FIELDS
    }
    return Holdings(**common, memory=min(look.memory for look in looks))


def _threads(tasks: Path) -> list[str]:
    """Their names. Linux wakes whoever joins a thread some time before it takes the thread off this list."""
    stats = [text.rpartition(")") for text in _texts(tasks, "stat")]
    return [start.partition("(")[2] for start, _, fields in stats if not int(fields.split()[_FLAGS]) & _PF_EXITING]


def _texts(folder: Path, name: str) -> list[str]:
    texts = []
    for entry in folder.iterdir():
        with suppress(OSError):  # a thread that ends meanwhile
            texts.append((entry / name).read_text().strip())
    return texts


def _descriptors(folder: Path) -> list[str]:
    kinds = []
    for entry in folder.iterdir():
        with suppress(OSError):  # the one that lists the folder
            kinds.append(re.sub(r":\[\d+\]|\d+", "", str(entry.readlink())))
    return kinds


def _shared_maps(text: str) -> list[str]:
    paths = [fields[5] for fields in (line.split(maxsplit=5) for line in text.splitlines()) if len(fields) == 6]
    return [path for path in paths if path.startswith(("/memfd:", "/dev/shm/"))]


def _field(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}:")]
    return line.split()[1]


def children_of(pid: int | str) -> list[int]:
    return [int(word) for text in _texts(Path(f"/proc/{pid}/task"), "children") for word in text.split()]


def listening_ports(pid: int) -> set[int]:
    """TCP ports on which the process listens, in whichever network namespace it is."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            sockets.add(str(entry.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports
