"""Sums that cross between sites in fewer bytes: a half, a quarter or an eighth.

    from fairring.between_sites import Residuals, compressed
    replica.register_comm_hook(Residuals("int8"), compressed)  # of DDP; for FSDP2: compress_shards

The sum of each site is rounded to the format before it is sent to the others, and so is the sum of all sites. Rounding
errors are kept and added in the next step. All ranks get the same bits. docs/algorithms.md lists the formats and their
promises.
"""

# Without `from __future__ import annotations`: DDP compares the hook's annotations with the types themselves.

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fairring import _core, members
from fairring.format_trial import FormatTrial

Format = str | None  # "bf16", "int8" or "int4"; None: as they are


def all_reduce(
    tensor: Tensor,
    format: str,  # noqa: A002
    residual: Tensor | None = None,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> dist.Work:
    """Starts an all-reduce, in place, that crosses between sites in the format "bf16", "int8" or "int4".

    tensor: of floats. Any but contiguous fp32 on the CPU is copied there and back, as its device comes to it.
    residual: contiguous fp32 on the CPU, of as many elements, zeros before the first call. It keeps what rounding
    takes, for the next call with it. None: that is dropped. op: SUM or AVG. group: one of Fairring's that serves CPU
    tensors. All ranks must give the same format. Raises ValueError.
    """
    if residual is None:
        residual = zeros_of_floats(tensor.numel())
    how = dist.ReduceOp(getattr(op, "op", op))  # torch's options have a ReduceOp, programs give its type
    return _core.all_reduce_between_sites(_backend(group), format, tensor, residual, how)


def zeros_of_floats(*shape: int) -> Tensor:
    """fp32 on the CPU, whatever the program's defaults are."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _backend(group: dist.ProcessGroup | None) -> Any:
    ours: Any = group or dist.group.WORLD
    try:
        return ours._get_backend(torch.device("cpu"))
    except RuntimeError as error:
        raise ValueError(
            "sums cross between sites in a format by way of the CPU, and this group has no backend for its tensors: "
            'make it with the backend "fairring" or "cpu:fairring,cuda:fairring"'
        ) from error


class Residuals:
    """The rounding errors of each bucket's gradients: 4 bytes for each element, on every rank.

    Each model needs an object of its own. format: of all buckets, or a function that gives each bucket's, the same on
    all ranks; or "auto": by turns in DDP's first 16 steps, and then the least lossy one that made a step no slower than
    any other did, but for a tenth. If that is none, what the turns have rounded off is never sent. group: the one that
    DDP uses; the default group if none is given.
    """

    def __init__(
        self,
        format: Format | Callable[[dist.GradBucket], Format] = "bf16",  # noqa: A002
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._format = format
        self.group = group
        self._of_bucket: dict[int, _Kept] = {}
        self._loaded: dict[tuple[int, ...], Tensor] = {}  # that no bucket has asked for yet
        self._trial: FormatTrial | None = None  # of "auto"
        self._tried_in: tuple[Any, int] | None = None  # the backend, and how many groups it had left before
        self._chosen: dict[str, str | None] | None = None  # by the trial of a checkpoint
        self._shards: list[tuple[int, int]] = []  # of FSDP2: this rank's number in each mesh, and the mesh's size
        self._place: tuple[Any, ...] | None = None

    def format_of(self, bucket: dist.GradBucket) -> Format:
        """To be called once for each bucket of a step, in their order."""
        if self._format == "auto":
            return self._tried(bucket)
        return self._format(bucket) if callable(self._format) else self._format

    def _tried(self, bucket: dist.GradBucket) -> Format:
        if bucket.index() == 0:
            here = _backend(self.group), members.mark(self.group).group
            if self._trial is None or self._tried_in != here:  # members may be new, and know of no choice
                self._trial, self._tried_in = FormatTrial(self.group, self._chosen), here
            self._trial.begin_step(bucket.buffer().device)
        return self._trial.format if self._trial else None

    def of(self, bucket: dist.GradBucket) -> Tensor:
        """The bucket's residuals: zeros at first, and again when the bucket holds other parameters than before.

        So are all buckets' when this rank or the number of ranks has changed: other elements are its part then.
        """
        parameters = bucket.parameters()
        sizes = (parameter.numel() for parameter in parameters)
        return self._of((bucket.index(), *sizes), [parameter.data_ptr() for parameter in parameters])

    def of_shard(self, number: int, sizes: Sequence[int]) -> Tensor:
        """Likewise of one of FSDP2's modules. sizes: of its parameters' shards; 0 for those that are frozen."""
        return self._of((number, *sizes), [])

    def _of(self, shape: tuple[int, ...], whose: list[int]) -> Tensor:
        backend = _backend(self.group)
        place = (backend.rank(), backend.size(), *self._shards)
        if place != self._place:
            self.forget()
            self._place = place
        kept = self._of_bucket.get(shape[0])
        if kept is None or (kept.shape, kept.whose) != (shape, whose):
            residual = self._loaded.pop(shape, None)
            kept = _Kept(whose, shape, zeros_of_floats(sum(shape[1:])) if residual is None else residual)
            self._of_bucket[shape[0]] = kept
        return kept.residual

    def forget(self) -> None:
        """Drops all residuals: after a failed call they are meaningless."""
        self._of_bucket.clear()
        self._loaded.clear()

    def state_dict(self) -> dict[str, Any]:
        """The residuals of this rank, for a checkpoint: each rank saves its own, between two steps."""
        buckets = self._loaded | {kept.shape: kept.residual for kept in self._of_bucket.values()}
        chosen = self._trial.state if self._trial else self._chosen
        return {"place": self._place, "buckets": buckets, "chosen": chosen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with what this rank saved. A bucket of other sizes begins with zeros, as do all in another group.

        DDP makes its buckets anew after the first step. What was saved waits for buckets of its sizes.
        """
        self.forget()
        self._place = state["place"]
        self._chosen, self._trial = state.get("chosen"), None
        self._loaded = {shape: residual.clone() for shape, residual in state["buckets"].items()}


@dataclass
class _Kept:
    whose: list[int]  # the addresses of the bucket's parameters
    shape: tuple[int, ...]  # its index, and the elements of each: the same in another process
    residual: Tensor


def compressed(residuals: Residuals, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook: returns the mean of the gradients. Those of CUDA are copied to the CPU and back.

    Raises ValueError if the group is not Fairring's.
    """
    gradients = bucket.buffer()
    format_ = residuals.format_of(bucket)
    if format_ is None or not gradients.is_floating_point():
        work: Any = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=residuals.group, async_op=True)
    else:
        work = all_reduce(gradients, format_, residuals.of(bucket), dist.ReduceOp.AVG, residuals.group)
    return _gradients_of(work.get_future(), residuals)


def _gradients_of(future: torch.futures.Future[list[Tensor]], residuals: Residuals) -> torch.futures.Future[Tensor]:
    def first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        try:
            return done.value()[0]
        except Exception:
            residuals.forget()
            raise

    return future.then(first)


def compress_shards(model: torch.nn.Module, residuals: Residuals) -> None:
    """Has FSDP2 average the gradients of a site's shards with those of the other sites, in the residuals' format.

        mesh = init_device_mesh("cpu", (sites, ranks_of_site), mesh_dim_names=("site", "shard"))
        fully_shard(model, mesh=mesh["shard"])
        compress_shards(model, Residuals("int8", mesh.get_group("site")))

    All ranks call it at once. The residuals' group is of those that hold the same shards, one of each site: all sites
    must begin with equal parameters. A factor of set_gradient_divide_factor() counts within the site, before the mean
    of the sites. set_requires_all_reduce() does nothing: only set_requires_gradient_sync() puts a sum off. Rounding
    errors are dropped when only some parameters of a module have gradients.

    Raises ValueError if the model is not sharded so, the group holds different shards, or the format is a function;
    backward() raises the group's errors.
    """
    from torch.distributed.tensor import DTensor

    if callable(residuals._format) or residuals._format == "auto":
        raise ValueError("FSDP2 has no buckets whose format a function or auto could choose: give its name")
    together = _sharded_together(model)
    meshes = {parameter.device_mesh for parameter in model.parameters() if isinstance(parameter, DTensor)}
    if not together or any(mesh.ndim != 1 for mesh in meshes):
        raise ValueError(
            "compress_shards needs a model that fully_shard has cut between the ranks of a site alone, over a mesh of "
            f"one dimension; this one has {len(together)} such modules, over {[tuple(mesh.shape) for mesh in meshes]}"
        )
    residuals._shards = sorted((mesh.get_local_rank(), mesh.size()) for mesh in meshes)
    _expect_the_same_shards(residuals._shards, residuals.group)
    for number, (module, parameters) in enumerate(together):
        module.set_all_reduce_hook(partial(_average_shards, residuals, residuals._format, number, parameters))


def _sharded_together(model: torch.nn.Module) -> list[tuple[Any, list[Any]]]:
    """The modules of FSDP2, each with the parameters whose gradients it reduces at once."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    modules: dict[Any, Any] = {}  # by their state: modules that were given to fully_shard together share one
    parameters: dict[Any, dict[Any, None]] = defaultdict(dict)

    def visit(module: torch.nn.Module, state: Any) -> None:
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            modules.setdefault(state, module)
        sharded = (one for one in module.parameters(recurse=False) if isinstance(one, DTensor))
        parameters[state].update(dict.fromkeys(sharded))
        for child in module.children():
            visit(child, state)

    visit(model, None)
    return [(module, list(parameters[state])) for state, module in modules.items()]


def _expect_the_same_shards(shards: list[tuple[int, int]], group: dist.ProcessGroup | None) -> None:
    text = 'give Residuals the group of the ranks that hold the same shards, one of each site: mesh.get_group("site")'
    if group is None:
        raise ValueError(f"compress_shards needs a group: {text}")
    of_ranks = torch.empty(group.size(), dtype=torch.int64, device="cpu")
    dist.all_gather_into_tensor(of_ranks, torch.tensor([zlib.crc32(str(shards).encode())], device="cpu"), group=group)
    seen = of_ranks.tolist()
    others = [rank for rank, each in enumerate(seen) if each != seen[group.rank()]]
    if others:
        held = ", ".join(f"{number} of {size}" for number, size in shards)
        raise ValueError(
            f"rank {group.rank()} of the group holds the shards {held}, and ranks {others} of it hold others, which "
            f"have no mean: {text}"
        )


def _padded(shard: Any) -> int:
    """The elements of each rank's part in FSDP2's sums: all ranks' are as large as the first one's."""
    (placement,), parts = shard.placements, shard.device_mesh.size()
    length = shard.shape[placement.dim]
    return int(-(-length // parts) * (shard.numel() // max(length, 1)))


def _average_shards(
    residuals: Residuals, format_: Format, number: int, parameters: Sequence[Any], gradients: Tensor
) -> None:
    if format_ is None:
        dist.all_reduce(gradients, dist.ReduceOp.AVG, residuals.group)
        return
    sizes = [_padded(parameter) if parameter.requires_grad else 0 for parameter in parameters]
    # FSDP2 leaves out parameters without gradients and does not say which: elements of others may be in their place.
    residual = residuals.of_shard(number, sizes) if sum(sizes) == gradients.numel() else None
    try:
        all_reduce(gradients, format_, residual, dist.ReduceOp.AVG, residuals.group).wait()
    except Exception:
        residuals.forget()
        raise
