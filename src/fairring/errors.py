"""The errors of Fairring's groups, with the ranks that they are about.

    except fairring.errors.GroupError as error:
        print(error.kind, error.ranks)  # "peer died" (3,)

Each is a `torch.distributed.DistBackendError`, so that programs written for other backends catch it. It is the same
whichever way it comes: from a call, from `wait()`, by a future or one of its callbacks, from `backward()`. It can be
pickled. torch itself makes a RuntimeError, with no more than the text, of an error that leaves a future's callback.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from fairring import _core

__all__ = ["GroupError", "MismatchError", "RankDiedError", "RankLateError", "RankLeftError"]


class GroupError(dist.DistBackendError):
    """An error of a group or of one of its calls.

    kind: "configuration", "usage", "mismatch", "peer died", "peer left", "timeout", "connection", "aborted", "refused"
    or "system". ranks: those that died, left, are late or refused; both sides of a difference or of a broken
    connection. They count in the group, as the text does, and none is there where the error is about no rank.
    """

    kind: str = ""
    ranks: tuple[int, ...] = ()


class RankDiedError(GroupError):
    """A rank's process ended, or gave no sign of life for too long."""


class RankLeftError(GroupError):
    """A rank destroyed its group while others needed it."""


class RankLateError(GroupError):
    """The timeout of a call, or of waiting for the other ranks, is over. Without ranks where only wait() gave up."""


class MismatchError(GroupError):
    """Two ranks made different calls."""


TYPES: dict[str, type[GroupError]] = {
    "peer died": RankDiedError,
    "peer left": RankLeftError,
    "timeout": RankLateError,
    "mismatch": MismatchError,
}


def hand_out() -> None:
    """From now on an error of Fairring's that torch turns into a Python exception is one of the types above.

    torch knows an error of C++ by its text alone, and turns it into a DistBackendError at many places of its own: a
    Work's wait(), futures, the end of backward(). All of them make the exception by calling the type.
    """
    shown: Any = dist.DistBackendError
    shown.__new__ = _made


def _made(cls: type[Exception], *arguments: Any) -> Exception:
    text = str(arguments[0]).removesuffix("\n") if arguments else ""
    found = _core.shown_error(text) if cls is dist.DistBackendError else None
    if found is None:
        return RuntimeError.__new__(cls, *arguments)
    kind, ranks = found
    error = RuntimeError.__new__(TYPES.get(kind, GroupError), *arguments)
    error.kind, error.ranks = kind, tuple(ranks)
    return error
