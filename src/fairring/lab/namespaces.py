"""The system calls of namespaces. Python has them from 3.12 on only, and pyroute2's wrapper would cost every rank
0.15 s of imports; so ctypes. Every function acts on the calling process, which must have one thread.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

MOUNT = 0x00020000
USER = 0x10000000
NET = 0x40000000
_KINDS = {"user": USER, "mnt": MOUNT, "net": NET}  # by their names in /proc

_BIND = 0x1000
_RECURSIVE = 0x4000
_RECEIVE_ONLY = 0x80000
_DETACH = 2
_SET_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Moves this process into new namespaces of these kinds. Raises OSError."""
    _check(_libc.unshare(kinds), "unshare")


def enter(descriptor: int, kind: int) -> None:
    """Moves this process into the namespace that the descriptor names. Raises OSError."""
    _check(_libc.setns(descriptor, kind), "setns")


def enter_those_of(pid: int, names: Sequence[str] = ("user", "net")) -> None:
    """Moves this process into another one's namespaces, except those that are its own already. Raises OSError.

    names: as in /proc/PID/ns, "user" before those that belong to it.
    """
    own, there = Path("/proc/self/ns"), Path(f"/proc/{pid}/ns")
    others = [name for name in names if (own / name).readlink() != (there / name).readlink()]
    descriptors = {name: os.open(there / name, os.O_RDONLY) for name in others}
    try:
        for name, descriptor in descriptors.items():
            enter(descriptor, _KINDS[name])
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def unshare_user_and_net() -> None:
    """Into a new user and network namespace, where this process has every capability. Raises OSError.

    The user keeps his own number there, so that files look as before and what he execs gets no capabilities.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(USER | NET)
    # The kernel wants setgroups denied before it lets an unprivileged process map a group.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        try:
            Path("/proc/self", name).write_text(text)
        except OSError as error:
            raise OSError(error.errno, f"writing {text!r} to /proc/self/{name}: {error.strerror}") from error


def keep_mounts_private() -> None:
    """Keeps mounts made in this process's namespace inside it; outside mounts still come in. Raises OSError."""
    _mount(None, Path("/"), None, _RECURSIVE | _RECEIVE_ONLY)


def mount_tmpfs(directory: Path) -> None:
    """Raises OSError."""
    _mount(None, directory, b"tmpfs", 0)


def bind(source: Path, target: Path) -> None:
    """Makes the target's path lead to the source, which need not stay reachable. Raises OSError."""
    _mount(source, target, None, _BIND)


def detach(target: Path) -> None:
    """Removes the topmost mount there; files in use live on. Raises OSError."""
    _check(_libc.umount2(bytes(target), _DETACH), f"umount of {target}")


def die_with_parent(signum: int) -> None:
    """Asks the kernel to send this process the signal when the thread that made it ends; survives exec."""
    _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signum, 0, 0, 0), "prctl")


def _mount(source: Path | None, target: Path, kind: bytes | None, flags: int) -> None:
    name = b"none" if source is None else bytes(source)
    _check(_libc.mount(name, bytes(target), kind, ctypes.c_ulong(flags), None), f"mount on {target}")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
