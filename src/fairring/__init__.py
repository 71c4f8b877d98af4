"""Fairring: a process group for PyTorch whose collectives follow the hierarchy of the cluster.

    torch.distributed.init_process_group("fairring")

torch 2.15 and later find the backend by its entry point; with older ones, `import fairring` registers it. Only the
command line (`fairring`, `python -m fairring`) does not: its start would wait for `import torch`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from fairring import replace

__all__ = ["register", "save_trace", "why"]


def register() -> None:
    """Makes the backend "fairring" known to torch.distributed, for CPU and CUDA tensors. A second call does nothing.

    Raises ImportError, with the command to run, if the package was not built for this torch.
    """
    import torch
    import torch.distributed as dist

    from fairring import flight_recorder, hardware_queues
    from fairring._modules import file_for

    if not dist.is_available():
        raise ImportError("this torch was built without torch.distributed, which Fairring is a backend of")
    file_for(torch.__version__)  # an error here rather than at the first group
    if "fairring" not in dist.Backend.backend_list:
        hardware_queues.raise_their_number()
        flight_recorder.wait_until_it_has_written()
        dist.Backend.register_backend("fairring", _create, extended_api=True, devices=["cpu", "cuda"])


def why(group: Any = None, last: int | None = 200) -> str:
    """Says in words what this rank's last calls waited for, judging by this rank's records alone.

    group: one of Fairring's; the default group if none is given. last: the number of calls; None: all that are kept.
    With FAIRRING_TRACE, `fairring why` uses the records of all ranks. Raises ValueError if the group is another
    backend's, or has not ended two calls.
    """
    from fairring.trace.own import explain_own

    return explain_own(group, last)


def save_trace(directory: str | Path, group: Any = None) -> Path:
    """Writes this rank's records of its last calls into a directory, which `fairring trace` reads.

    group: one of Fairring's; the default group if none is given. Needs no FAIRRING_TRACE, with which more calls are
    kept. Returns the file. Raises ValueError as why() does, OSError if the file can't be written.
    """
    from fairring.trace.own import save_own

    return save_own(Path(directory), group)


def _create(options: Any, backend_options: object) -> Any:
    from fairring.backend import create

    return create(options, backend_options)


def _is_command_line() -> bool:
    """Whether this process is the command itself: `fairring ...`, or `python -m fairring ...` while it resolves -m."""
    as_module = sys.argv[0] == "-m" and _module_of(sys.orig_argv) == "fairring"
    return as_module or Path(sys.argv[0]).name == "fairring"


def _module_of(words: list[str]) -> str:
    """The argument of -m on Python's command line: also in "-mfairring", and after other letters as in "-Im"."""
    for word, following in zip(words[1:], [*words[2:], ""], strict=True):
        flag = re.fullmatch(r"-[bBdEhiIOPqRsSuvVx?]*m(.*)", word)
        if flag:
            return flag[1] or following
    return ""


if not _is_command_line():
    register()
    replace.install()
