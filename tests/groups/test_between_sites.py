"""Sums that cross between sites in a format: of any shape and dtype, and of FSDP2's shards."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of, on_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fairring import members
from fairring.between_sites import Residuals, all_reduce, compress_shards, compressed
from fairring.format_trial import FORMATS, least_lossy
from fairring.traffic import Moved, counting, traffic

STEPS = 6
HAS_RECONFIGURE = hasattr(dist.distributed_c10d, "_reconfigure")


@pytest.fixture(scope="module")
def four() -> Any:
    """Two sites of two ranks."""
    places = [{"FAIRRING_SITE": f"site{rank // 2}", "FAIRRING_MACHINE": f"machine{rank // 2}"} for rank in range(4)]
    with Ranks(4, of_rank=places) as ranks:
        ranks.init()
        yield ranks


def _sent_to_sites(group: Any = None) -> int:
    return traffic(group).get("site", Moved()).bytes


def _summed(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[list[float], int]:
    """How far the mean and the future's tensor are from the exact mean, with strides that are not contiguous.

    And the bytes of both to the other site.
    """
    before = _sent_to_sites()
    given = [torch.randn(shape, generator=torch.Generator().manual_seed(other)) for other in range(4)]
    last = len(shape) - 1
    exact = torch.stack(given).mean(0).transpose(0, last)
    errors = []
    for wait in (lambda work: [work.wait()], lambda work: [work.get_future().wait()]):
        tensor = given[rank].to(dtype, copy=True).transpose(0, last)
        wait(all_reduce(tensor, "int8", op=dist.ReduceOp.AVG))
        errors.append(float((tensor - exact).abs().max()))
    dist.barrier()  # its messages are the last to go to the other site
    return errors, _sent_to_sites() - before


@pytest.mark.parametrize("shape", [(500,), (20, 25), (5, 10, 10), (2, 5, 5, 10)])
def test_a_tensor_of_any_shape_strides_and_dtype_is_rounded_alike_on_all_ranks(
    four: Ranks, shape: tuple[int, ...]
) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        said = four.run(_summed, dtype, shape)
        errors = said[0][0]
        assert [one[0] for one in said] == [errors] * 4
        assert errors[0] == errors[1]
        assert 1e-4 < errors[0] < 0.05
        assert sum(one[1] for one in said) < 2 * 2 * 500 * 4 / 3.5, "each site sends each of two sums in a format"


def _mean_errors(_rank: int) -> list[float]:
    values = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    errors = []
    for form in ("bf16", "int8", "int4"):
        with counting() as moved:
            all_reduce(values.clone(), form).wait()
            dist.barrier()  # a rank that has sent its sum last may still be about to count it
        errors.append(moved["site"].mean_error)
        assert f"mean error {moved['site'].mean_error:.2%}" in str(moved["site"])
    with counting() as moved:
        dist.all_reduce(values)
    assert moved["site"].mean_error == 0
    assert "error" not in str(moved["site"])
    return errors


def test_the_mean_error_of_a_format_is_counted(four: Ranks) -> None:
    """Of normal values a bf16 loses a thousandth; an integer's scale is a block's largest by 127, or by 7."""
    for bf16, int8, int4 in four.run(_mean_errors):
        assert 0.0005 < bf16 < 0.003
        assert 0.004 < int8 < 0.012
        assert 0.08 < int4 < 0.2


@on_ranks("four")
def test_what_can_not_cross_so_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=r"as int8 between sites is of dense floats, not of Long"):
        all_reduce(torch.ones(3, dtype=torch.int64), "int8")
    for model, residuals, text in (
        (nn.Linear(2, 2), Residuals("int8"), "needs a model that fully_shard has cut between the ranks of a site"),
        (nn.Linear(2, 2), Residuals(lambda _: "int8"), "no buckets whose format a function .* could choose: give its"),
        (nn.Linear(2, 2), Residuals("auto"), "no buckets whose format .* or auto could choose: give its name"),
        (_sharded(_mesh()), Residuals("int8"), r"has 3 such modules, over \[\(2, 2\)\]"),
        (_sharded(_mesh()["shard"]), Residuals("int8"), "needs a group: give Residuals the group of the ranks that"),
        (
            _sharded(_mesh()["shard"]),
            Residuals("int8", dist.group.WORLD),
            rf"rank {rank} of the group holds the shards {rank % 2} of 2, and ranks \[{1 - rank % 2}, {3 - rank % 2}\]",
        ),
        (
            _sharded(init_device_mesh("cpu", (4,))),
            Residuals("int8", _mesh().get_group("site")),
            rf"rank {rank // 2} of the group holds the shards {rank} of 4, and ranks \[{1 - rank // 2}\] of it",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            compress_shards(model, residuals)
    on_cuda_alone: Any = dist.new_group(backend="cuda:fairring")
    with pytest.raises(ValueError, match="this group has no backend for its tensors: make it with the backend"):
        all_reduce(torch.ones(3), "int8", group=on_cuda_alone)


@pytest.mark.parametrize("format_of", [{0: "int8", 1: "int8", 2: "int4", 3: "int4"}, {0: "bf16", 1: "bf16"}])
@on_ranks("four")
def test_a_site_with_another_format_or_none_is_refused_with_a_sentence(rank: int, format_of: dict[int, str]) -> None:
    group: Any = dist.new_group()
    form, tensor = format_of.get(rank), torch.ones(300)
    with pytest.raises(dist.DistBackendError) as raised:
        (all_reduce(tensor, form, group=group) if form else dist.all_reduce(tensor, group=group, async_op=True)).wait()
    for form in format_of.values():
        assert f"all_reduce as {form} between sites SUM of 300 Float32" in str(raised.value)
    assert "all ranks must make the same calls" in str(raised.value)


@on_ranks("four")
def test_a_site_with_another_version_is_refused_with_a_sentence(rank: int) -> None:
    with mock.patch("importlib.metadata.version", return_value=f"0.{rank // 2}"):
        group: Any = dist.new_group()
    words = r"settings differ between ranks: rank 0 \(.* version=0\.0; rank [23] \(.* version=0\.1"
    with pytest.raises(dist.DistBackendError, match=words):
        all_reduce(torch.ones(300), "int8", group=group).wait()


@on_ranks("four")
def test_a_sum_that_is_copied_back_ends_like_any_other(rank: int) -> None:
    """Of a sum that is copied back: all see it complete, and the caller's inference mode holds for the copy."""
    for wait in (lambda work: work.wait(), lambda work: work.synchronize(), lambda work: work.get_future().wait()):
        with torch.inference_mode():
            tensor = torch.full((300,), rank, dtype=torch.float64)
            work = all_reduce(tensor, "int8")
            wait(work)
        assert (tensor - 6).abs().max() < 0.1
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
    empty = torch.empty(0, dtype=torch.bfloat16)
    for tensor in (empty, empty.float(), torch.ones(2, 3).t()):
        (result,) = all_reduce(tensor, "int8").get_future().wait()
        assert result.dtype == tensor.dtype
        assert result.data_ptr() == tensor.data_ptr()
    residual = torch.full((6,), 0.25)
    with pytest.raises(ValueError, match="needs a place for each element: clone the tensor"):
        all_reduce(torch.ones(3).expand(2, 3), "int8", residual)
    assert residual.tolist() == [0.25] * 6


@on_ranks("four")
def test_a_sum_that_would_be_copied_back_fails_like_any_other(rank: int) -> None:
    """Rank 0 alone makes the call, and the group is ended."""
    group: Any = dist.new_group()
    if rank:
        return
    residual = torch.zeros(300)
    work = all_reduce(torch.ones(300, dtype=torch.float64), "int8", residual, group=group)
    assert not work.is_completed()
    assert not work.is_success()
    backend_of(group).abort()
    for wait in (work.wait, work.synchronize):
        with pytest.raises(dist.DistBackendError, match="abort"):
            wait()
    assert work.is_completed()
    assert not work.is_success()
    assert "abort" in str(work.exception())


def _other_defaults(rank: int, defaults: Callable[[], AbstractContextManager[None]]) -> str:
    """A hash of gradients that crossed so, with residuals."""
    torch.manual_seed(rank)
    model, sample = nn.Linear(64, 64), torch.randn(8, 64)
    replica, residuals = DistributedDataParallel(model), Residuals("int8")
    replica.register_comm_hook(residuals, compressed)
    with defaults():
        for _ in range(2):
            replica(sample).square().mean().backward()
        gradient = model.weight.grad
        assert gradient is not None
        all_reduce(gradient, "int4").wait()
    (kept,) = residuals.state_dict()["buckets"].values()
    assert kept.dtype == torch.float32
    assert kept.is_cpu
    assert kept.any()
    return hashlib.sha256(gradient.numpy().tobytes()).hexdigest()


@contextmanager
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def _meta() -> Iterator[None]:
    with torch.device("meta"):
        yield


def test_the_programs_default_dtype_and_device_do_not_matter(four: Ranks) -> None:
    assert (
        len({digest for defaults in (nullcontext, _float64, _meta) for digest in four.run(_other_defaults, defaults)})
        == 1
    )


# --- auto

TURNS = 4 * len(FORMATS)  # steps of a trial


def _in_turns(rank: int) -> tuple[list[str | None], list[bool]]:
    """The formats of a training's steps, and hashes of its parameters: as trained, and from checkpoints.

    On rank 1 alone steps in bf16 are slow. In the end rank 0 alone goes on without a checkpoint.
    """
    took = (1.0 + 9 * (number % 4 == 0) + 9 * (number % 4 == 1 and rank == 1) for number in itertools.count())
    clock = mock.Mock(monotonic=mock.Mock(side_effect=itertools.accumulate(took, initial=0.0)))
    said: list[str | None] = []

    def noted(residuals: Residuals, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        future = compressed(residuals, bucket)
        if bucket.index() == 0 and residuals._trial is not None:
            said.append(residuals._trial.format)
        return future

    noted.__annotations__ = compressed.__annotations__
    with mock.patch("fairring.format_trial.time", clock):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
        replica, residuals = DistributedDataParallel(model, bucket_cap_mb=0.05), Residuals("auto")
        replica.register_comm_hook(residuals, noted)
        _train_replica(replica, rank, range(TURNS + 2))
        saved = copy.deepcopy((model.state_dict(), residuals.state_dict()))
        steps = range(TURNS + 2, TURNS + 4)
        ours = _train_replica(replica, rank, steps)
        model.load_state_dict(saved[0])
        residuals.load_state_dict(saved[1])
        same = [torch.equal(ours, _train_replica(replica, rank, steps))]
        of_ranks: list[Any] = [None] * 4
        dist.all_gather_object(of_ranks, ours)
        same.append(all(torch.equal(ours, other) for other in of_ranks))
        if rank:
            residuals.load_state_dict(saved[1])
        else:
            residuals.load_state_dict(Residuals("auto").state_dict())
        _train_replica(replica, rank, range(2))
    return said, same


def _train_replica(replica: nn.Module, rank: int, steps: range) -> Tensor:
    """Returns the parameters."""
    for step in steps:
        sample = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * step + rank))
        replica.zero_grad()
        (replica(sample) - sample.flip(1)).square().mean().backward()
        with torch.no_grad():
            for parameter in replica.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=0.5)
    return torch.cat([parameter.detach().flatten() for parameter in replica.parameters()])


def test_auto_lets_formats_take_turns_and_all_ranks_keep_the_one_that_is_quick_on_all(four: Ranks) -> None:
    chosen = ["int8"] * 2
    said = four.run(_in_turns)
    assert [one[0] for one in said] == [[*FORMATS * 4, *chosen * 3, None, "bf16"]] * 4
    assert [one[1] for one in said] == [[True, True]] * 4


kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


def _begin_apart(_rank: int) -> str:
    kept["group"] = members.new_group()
    kept["residuals"] = Residuals("auto", kept["group"])
    return members.handle(kept["group"])


def _begin_trial(_rank: int, number: int, handles: list[str]) -> list[str | None]:
    members.reconfigure(number, handles, kept["group"]).wait()
    bucket = mock.Mock(index=lambda: 0, buffer=lambda: torch.empty(0))
    return [kept["residuals"].format_of(bucket) for _ in range(3)]


@pytest.mark.skipif(not HAS_RECONFIGURE, reason="PyTorch before 2.15 has no reconfigure")
def test_auto_begins_anew_where_members_may_be_new(four: Ranks) -> None:
    handles = four.run(_begin_apart)
    for number in (1, 2):
        assert four.run(_begin_trial, number, handles) == [[None, "bf16", "int8"]] * 4


@pytest.mark.parametrize(
    ("seconds", "format_"),
    [
        ([10.0, 5.5, 3.2, 2.4], "int4"),
        ([10.0, 5.5, 2.6, 2.4], "int8"),
        ([1.0, 1.0, 1.0, 1.0], None),
        ([1.09, 1.0, 1.2, 1.3], None),
        ([1.11, 1.0, 1.2, 1.3], "bf16"),
        ([0.0, 0.0, 0.0, 0.0], None),
    ],
)
def test_auto_takes_the_least_lossy_format_that_is_as_fast_as_any_but_for_a_tenth(
    seconds: list[float], format_: str | None
) -> None:
    assert FORMATS[least_lossy(seconds)] == format_


# --- FSDP2


def _mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("site", "shard"))


def _sharded(mesh: DeviceMesh) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    return model


def _train(model: nn.Module, rank: int, steps: range) -> Tensor:
    """Returns the whole parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in steps:
        sample = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        (model(sample) - sample.flip(1)).square().mean().backward()
        optimizer.step()
    shards: list[Any] = list(model.parameters())
    return torch.cat([shard.detach().full_tensor().flatten() for shard in shards])


def _compressed_shards(rank: int, form: str | None) -> tuple[int, str, float, list[bool]]:
    """Bytes to other sites; a hash, and the distance from plain HSDP; whether resumed ones have the same bits.

    They are resumed with their own residuals, with those of the mate's shard, and with none.
    """
    mesh = _mesh()
    exact = _train(_sharded(mesh), rank, range(STEPS))
    model, residuals = _sharded(mesh["shard"]), Residuals(form, mesh.get_group("site"))
    compress_shards(model, residuals)
    before = _sent_to_sites(residuals.group)
    _train(model, rank, range(STEPS - 2))
    sent = _sent_to_sites(residuals.group) - before
    saved = copy.deepcopy((model.state_dict(), residuals.state_dict()))
    of_ranks: list[Any] = [None] * 4
    dist.all_gather_object(of_ranks, saved[1])
    ours = _train(model, rank, range(STEPS - 2, STEPS))
    ends = []
    for state in (saved[1], of_ranks[rank ^ 1], Residuals().state_dict()):
        model.load_state_dict(saved[0])
        residuals.load_state_dict(state)
        ends.append(_train(model, rank, range(STEPS - 2, STEPS)))
    same = [torch.equal(ours, ends[0]), torch.equal(ours, ends[2]), torch.equal(ends[1], ends[2])]
    digest = hashlib.sha256(ours.numpy().tobytes()).hexdigest()
    return sent, digest, float((ours - exact).abs().max()), same


def test_shards_of_fsdp_cross_in_fewer_bytes_with_the_same_bits_everywhere_and_after_a_checkpoint(four: Ranks) -> None:
    sent = {}
    for form, apart in ((None, 1e-5), ("int8", 1e-2), ("int4", 0.1)):
        said = four.run(_compressed_shards, form)
        sent[form] = sum(one[0] for one in said)
        assert len({one[1] for one in said}) == 1, form
        assert max(one[2] for one in said) < apart, form
        assert form is None or min(one[2] for one in said) > 1e-6, form
        for _, _, _, (with_its_own, without, mates_as_without) in said:
            assert (with_its_own, without, mates_as_without) == (True, form is None, True), form
    assert sent[None] / sent["int8"] > 3.8
    assert sent[None] / sent["int4"] > 7.2


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def forward(self, sample: Tensor, chosen: Sequence[int]) -> Tensor:
        return torch.stack([self.experts[expert](sample) for expert in chosen]).sum(0)


def _experts_in_turn(rank: int) -> list[list[tuple[int, ...]]]:
    """The sizes whose rounding errors are kept, after steps with one expert, the other, both, and one."""
    mesh = _mesh()
    torch.manual_seed(0)
    model, residuals = _Experts(), Residuals("int8", mesh.get_group("site"))
    fully_shard(model, mesh=mesh["shard"])
    compress_shards(model, residuals)
    kept = []
    for chosen in ([0], [1], [0, 1], [0]):
        model.zero_grad()
        sample = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))
        model(sample, chosen).square().mean().backward()
        kept.append(list(residuals.state_dict()["buckets"]))
    return kept


def test_experts_of_equal_size_share_no_rounding_errors(four: Ranks) -> None:
    whole = (0, 32 * 64, 32, 32 * 64, 32)
    assert four.run(_experts_in_turn) == [[[], [], [whole], [whole]]] * 4
