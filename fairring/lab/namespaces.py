"""The system calls of namespaces. Python has them from 3.12 on only, and pyroute2's wrapper would cost every rank
0.15 s of imports; so ctypes. Every function acts on the calling process, which must have one thread.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

USER = 0x10000000
NET = 0x40000000

_SET_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Moves this process into new namespaces of these kinds. Raises OSError."""
    _check(_libc.unshare(kinds), "unshare")


def enter(descriptor: int, kind: int) -> None:
    """Moves this process into the namespace that the descriptor names. Raises OSError."""
    _check(_libc.setns(descriptor, kind), "setns")


def unshare_user_and_net() -> None:
    """Into a new user and network namespace, where this process has every capability. Raises OSError.

    The user keeps his own number there, so that files look as before and what he execs gets no capabilities.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(USER | NET)
    # The kernel wants setgroups denied before it lets somebody without privileges map a group.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        try:
            Path("/proc/self", name).write_text(text)
        except OSError as error:
            raise OSError(error.errno, f"writing {text!r} to /proc/self/{name}: {error.strerror}") from error


def die_with_parent(signum: int) -> None:
    """Asks the kernel to send this process the signal when the thread that made it ends; survives exec."""
    _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signum, 0, 0, 0), "prctl")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
