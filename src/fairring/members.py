"""Going on after members of a group have died: which steps count, and a smaller group for tensors of all devices.

A call that was under way when a rank died may have ended well on some of the others and not on the rest. When the
survivors meet again, by `shrink_group` or `reconfigure`, each reports how many calls were complete there, and all learn
the same: the last call that is complete on all of them, with every call before it. Keep a copy of the state of the last
two steps, each with its mark; after the meeting go back to the last one that counts:

    kept = [(members.mark(), copy_of(model))]
    while True:
        try:
            train_one_step(model)  # its calls, waited for
            kept = [kept[-1], (members.mark(), copy_of(model))]
        except dist.DistBackendError:
            ...  # shrink_group, or reconfigure and its wait()
            last = members.last_complete()
            kept = [one for one in kept if last.mark and one[0] <= last.mark]
            ...  # a rank without a copy takes the state of one that has one
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from fairring import _core

__all__ = ["LastComplete", "Mark", "handle", "last_complete", "mark", "new_group", "reconfigure", "shrink_group"]


class Mark(NamedTuple):
    """A place in a rank's calls. Marks of one rank compare in time; other ranks' marks have other numbers."""

    group: int  # how many groups this rank had left before: 0, 1, ...
    calls: int  # collective calls in that one, of which the meeting of a changed group is the first


class LastComplete(NamedTuple):
    mark: Mark | None  # here, of the last call that counts; None: no other rank has come by this one's state
    calls_of_rank: list[int | None]  # by rank of the new group: how many calls were complete there; None: likewise


def mark(group: dist.ProcessGroup | None = None) -> Mark:
    """The mark after the collective calls that this rank has made so far.

    group: one of Fairring's; the default group if none is given. Raises ValueError if it is another backend's, and
    DistBackendError if it has no members.
    """
    found = _core.mark(_backend(group))
    if found is None:
        raise ValueError("the group is not one of Fairring's")
    return Mark(*found)


def last_complete(group: dist.ProcessGroup | None = None) -> LastComplete | None:
    """The last complete call on which the ranks of a shrunk or reconfigured group agreed when they met.

    It is the same on all ranks. A step whose mark is not above `mark` counts on all ranks; a later step counts on none.
    A survivor that learns it at a later attempt learns the same. None before the meeting has ended, and if no rank was
    in a group before.
    """
    found = _core.last_complete(_backend(group))
    if found is None:
        return None
    here, calls_of_rank = found
    return LastComplete(Mark(*here) if here else None, calls_of_rank)


def new_group(
    timeout: timedelta = timedelta(minutes=30), name: str = "beside", store: dist.Store | None = None
) -> dist.ProcessGroup:
    """A group beside the default one, for CPU tensors. It has no members before reconfigure().

    timeout: of its calls. name: in errors, the same on all members. store: no rank is met by it; a TCPStore says by its
    address which network this rank is reached by, where nothing else does. torch does not know the group: its
    shutdown() ends it, not destroy_process_group. Needs torch 2.15, or raises ImportError.
    """
    from fairring import backend

    _reconfigure_options()
    options: Any = dist.distributed_c10d._DistributedBackendOptions()
    options.store = dist.HashStore() if store is None else store
    options.timeout, options.group_id, options.enable_reconfigure = timeout, name, True
    options.group_rank, options.group_size = 0, 1
    made: Any = dist.ProcessGroup(options.store, 0, 1)
    made._set_default_backend(made.BackendType.CUSTOM)
    made._register_backend(torch.device("cpu"), made.BackendType.CUSTOM, backend.create(options, None))
    group: dist.ProcessGroup = made
    return group


def handle(group: dist.ProcessGroup | None = None) -> str:
    """By this text the other members of a reconfigured group find this rank. Keep it as private as the job's store.

    group: one that was made with `enable_reconfigure=True`; the default group if none is given. Needs torch 2.15.
    """
    found: str = _chosen(group).get_reconfigure_handle()
    return found


def reconfigure(
    number: int, handles: Sequence[str], group: dist.ProcessGroup | None = None, timeout: timedelta | None = None
) -> dist.Work:
    """Leaves the group's members for those of these handles, in the order of their new ranks.

    All of them give the same number, which was never used before, and the same handles. The Work ends when all have
    come, or with an error that names one that has not within the timeout (the group's, if none is given), at once if
    its process has ended. Needs torch 2.15.
    """
    options = _reconfigure_options()
    options.uuid, options.handles = number, list(handles)
    if timeout is not None:
        options.timeout = timeout
    work: dist.Work = _chosen(group).reconfigure(options)
    return work


def _reconfigure_options() -> Any:
    try:
        from torch._C._distributed_c10d import ReconfigureOptions
    except ImportError as error:
        raise ImportError(
            f"groups that are reconfigured need torch 2.15, and this is torch {torch.__version__}; run: "
            f"{sys.executable} -m pip install 'torch>=2.15'"
        ) from error
    return ReconfigureOptions()


def shrink_group(
    ranks_to_exclude: list[int], group: dist.ProcessGroup | None = None, **options: Any
) -> dist.ProcessGroup:
    """torch's `shrink_group`, whose new group serves tensors of the CPU and of CUDA devices, as the old one did.

    torch registers it for one kind of device: that which the group is bound to (`device_id=`), or else the CPU. The
    arguments are torch's, and so are the errors.

    Works without the old group's store too, if the process that held it has ended. The new group then has a store of
    this rank's own: no further group can be made by way of it, but the new one can be shrunk again.
    """
    _leave_a_store_that_has_gone(_chosen(group))
    made: Any = dist.shrink_group(ranks_to_exclude, group, **options)
    types = made._device_types
    backend = made._get_backend(types[0])
    for device, kind in (("cpu", made.BackendType.GLOO), ("cuda", made.BackendType.NCCL)):
        if torch.device(device) not in types:
            made._register_backend(torch.device(device), kind, backend)
    shrunk: dist.ProcessGroup = made
    return shrunk


def _leave_a_store_that_has_gone(group: dist.ProcessGroup) -> None:
    """torch connects the new group to the old one's store once more, and waits for it as long as the store's timeout.

    By then the old group has been destroyed, so an error comes too late.
    """
    world: Any = dist.distributed_c10d._world
    name, store = world.pg_map[group]
    try:
        store.check(["fairring"])  # the connection of a holder that has ended is broken
    except RuntimeError:
        world.pg_map[group] = (name, dist.HashStore())


def _chosen(group: dist.ProcessGroup | None) -> Any:
    return dist.distributed_c10d._get_default_group() if group is None else group


def _backend(group: dist.ProcessGroup | None) -> object:
    chosen = _chosen(group)
    cpu = torch.device("cpu")
    return chosen._get_backend(cpu if cpu in chosen._device_types else chosen._device_types[0])
