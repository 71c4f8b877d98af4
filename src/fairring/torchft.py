"""A process group of Fairring's in the form that torchft's Manager drives.

    manager = torchft.Manager(pg=fairring.torchft.ProcessGroupFairring(timeout=timedelta(seconds=30)), ...)

torchft decides which replicas take part in a step; this group takes them in by reconfigure, in the same process. The
members meet without a store: their handles come by torchft's lighthouse, or, if torchft calls configure (0.2.0), by the
store that it names, which may end as soon as they have met. Needs torch 2.15.
"""

from __future__ import annotations

import json
import secrets
import sys
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fairring import _core, between_sites, members

try:
    from torch._C._distributed_c10d import ReconfigureOptions
except ImportError as error:
    raise ImportError(
        f"fairring.torchft needs the reconfigure of torch 2.15, and this is torch {torch.__version__}; run: "
        f"{sys.executable} -m pip install 'torch>=2.15'"
    ) from error
try:
    import torchft
    from torchft.process_group import ProcessGroupWrapper, create_store_client
except ModuleNotFoundError as error:
    if error.name != "torchft":
        raise
    raise ImportError(
        f"fairring.torchft needs torchft, not installed here; run: {sys.executable} -m pip install torchft-nightly"
    ) from error

_quantizes = ContextVar("_quantizes", default=False)  # as the Manager's call under way asks of its group
NAME = "torchft"  # of every such group, in errors; all members have to give the same


class ProcessGroupFairring(ProcessGroupWrapper):
    """One for each rank. It has no members before the first reconfigure or configure, and none after abort()."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        """timeout: of every call, and of waiting for the other members."""
        super().__init__(timeout)
        self._pg: dist.ProcessGroup | None = None
        self._id = secrets.token_hex(16)
        # Outlives _pg: its handle stays the same, and an abort is over with the next reconfigure.
        self._lasting: dist.ProcessGroup | None = None

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-fairring"

    def _handle_id(self) -> str:
        return self._id

    def get_reconfigure_handle(self) -> str:
        """The handle by which other members find this rank. It must be kept as private as the job's store."""
        handle = {"fairring": self._group(dist.HashStore()).get_reconfigure_handle()}
        # torchft's wrappers around a group look for these keys. No store takes part.
        return json.dumps({"id": self._id, "store": "", "global_rank": getattr(self, "_global_rank", None)} | handle)

    def reconfigure(self, opts: ReconfigureOptions) -> dist.Work:
        """Leaves the former members for those of these handles; the work ends when all of them have done so."""
        options = ReconfigureOptions()
        options.uuid, options.timeout = opts.uuid, opts.timeout
        options.handles = type(opts.handles)(_ours(handle) for handle in opts.handles)
        group = self._group(dist.HashStore())
        work = group.reconfigure(options)
        self._pg = group
        return work

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *_others: Any, **_more: Any
    ) -> None:
        """The same in the interface of torchft 0.2.0: handles are exchanged through a store. Waits for all members.

        store_addr: host:port/prefix, another prefix each time. rank: of this member, a replica; world_size: the number
        of members. torchft's other arguments (its ranks within a replica) change nothing here.
        """
        self._replica_id = replica_id  # for what torchft logs of an abort
        store = create_store_client(store_addr, self._timeout)
        self._group(store)
        store.set(f"handle/{rank}", self.get_reconfigure_handle())
        if rank == 0:
            store.set("uuid", str(secrets.randbits(63)))
        keys = ["uuid", *(f"handle/{member}" for member in range(world_size))]
        store.wait(keys, self._timeout)
        uuid, *handles = store.multi_get(keys)
        options = ReconfigureOptions()
        options.uuid, options.handles = int(uuid), [handle.decode() for handle in handles]
        options.timeout = self._timeout
        self.reconfigure(options).wait()

    def errored(self) -> Exception | None:
        """The reason why this group must be reconfigured before its next call; None if it need not be."""
        if self._pg is None:
            return RuntimeError("the process group has no members: it was aborted, or never reconfigured")
        text = _core.first_error(self._pg._get_backend(torch.device("cpu")))
        return dist.DistBackendError(text) if text else None

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        if _quantizes.get() and self._pg is not None:
            (tensor,) = tensors
            return between_sites.all_reduce(tensor, "int8", op=getattr(opts, "reduceOp", opts), group=self._pg)
        work: dist.Work = super().allreduce(tensors, opts)
        return work

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        if self._lasting is not None:
            self._lasting.set_timeout(timeout)

    def shutdown(self) -> None:
        """Ends the group in good order: waits up to thirty seconds for peers that still need something of this rank."""
        self._pg = None
        if self._lasting is not None:
            self._lasting.shutdown()
            self._lasting = None

    def _group(self, store: dist.Store) -> dist.ProcessGroup:
        """store: only says by its address which network this rank is reached by, where nothing else does."""
        if self._lasting is None:
            # For the CPU only: no Manager has been run over the CUDA tensors of members that change (docs/torchft.md).
            self._lasting = members.new_group(self._timeout, NAME, store)
        return self._lasting


class Manager(torchft.Manager):
    """torchft's, whose allreduce(should_quantize=True) serves floats of any dtype, shape and device, by one call.

    They cross between sites (FAIRRING_SITE of each replica) as int8, and rounding errors are dropped. torchft's own
    needs Triton and CUDA: elsewhere it fails the step, or sends what is not quantized. torchft's DiLoCo calls it.
    """

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False, *others: Any, **more: Any) -> dist.Work:
        if should_quantize and not isinstance(self._pg, ProcessGroupFairring):
            raise ValueError(f"should_quantize needs a ProcessGroupFairring, and this Manager has {self._pg!r}")
        before = _quantizes.set(should_quantize)
        try:
            work: dist.Work = super().allreduce(tensor, False, *others, **more)
        finally:
            _quantizes.reset(before)
        return work


def _ours(handle: str) -> str:
    try:
        ours: str = json.loads(handle)["fairring"]
    except (ValueError, TypeError, KeyError):
        raise dist.DistBackendError(
            f"{handle!r} is no handle of a ProcessGroupFairring; give every replica's Manager one"
        ) from None
    return ours
