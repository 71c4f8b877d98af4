"""Becomes the user's command inside a machine of the lab: enters its namespaces, learns its names, then execs.

A process of its own and not a function between fork and exec, since the lab's process may have other threads.
Standard library only: every rank pays for its imports.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from fairring.lab import names, namespaces

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def main(arguments: Sequence[str]) -> int:
    """arguments: user namespace's and network namespace's descriptor ('' for neither), lines for the hosts file, the
    process to die with ('' for none), the command. Returns only where the command can't be run, with the shell's exit
    codes for that.
    """
    user, net, hosts, parent, *command = arguments
    if user:
        namespaces.enter(int(user), namespaces.USER)
    if net:
        namespaces.enter(int(net), namespaces.NET)
    if hosts:
        # Names are a convenience: if mounts are forbidden the lab does without.
        with suppress(OSError):
            names.add(hosts)
    if parent:
        namespaces.die_with_parent(signal.SIGKILL)
        if os.getppid() != int(parent):
            return _NOT_EXECUTABLE
    # Python ignores these two, and an ignored signal stays ignored across exec.
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    for text in filter(None, (user, net)):
        os.close(int(text))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(
            f"fairring lab: cannot run {command[0]!r}: {error.strerror}",
            file=sys.stderr,
            flush=True,
        )
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
