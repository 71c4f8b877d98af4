"""Sums that cross between sites in a format: of any shape and dtype, and of FSDP2's shards."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from fairring.between_sites import Residuals, all_reduce, compress_shards
from fairring.traffic import Moved, traffic

STEPS = 6


@pytest.fixture(scope="module")
def four() -> Any:
    """Two sites of two ranks."""
    places = [{"FAIRRING_SITE": f"site{rank // 2}", "FAIRRING_MACHINE": f"machine{rank // 2}"} for rank in range(4)]
    with Ranks(4, of_rank=places) as ranks:
        ranks.init()
        yield ranks


def _summed(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> list[float]:
    """How far the mean and the future's tensor are from the exact mean, with strides that are not contiguous."""
    given = [torch.randn(shape, generator=torch.Generator().manual_seed(other)) for other in range(4)]
    last = len(shape) - 1
    exact = torch.stack(given).mean(0).transpose(0, last)
    errors = []
    for wait in (lambda work: [work.wait()], lambda work: [work.get_future().wait()]):
        tensor = given[rank].to(dtype, copy=True).transpose(0, last)
        wait(all_reduce(tensor, "int8", op=dist.ReduceOp.AVG))
        errors.append(float((tensor - exact).abs().max()))
    return errors


@pytest.mark.parametrize("shape", [(500,), (20, 25), (5, 10, 10), (2, 5, 5, 10)])
def test_a_tensor_of_any_shape_strides_and_dtype_is_rounded_alike_on_all_ranks(
    four: Ranks, shape: tuple[int, ...]
) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        errors = four.run(_summed, dtype, shape)
        assert errors == [errors[0]] * 4
        assert errors[0][0] == errors[0][1]
        assert 1e-4 < errors[0][0] < 0.05


def _refused(_rank: int) -> None:
    with pytest.raises(ValueError, match=r"as int8 are of floats, not of torch\.int64"):
        all_reduce(torch.ones(3, dtype=torch.int64), "int8")
    for model, residuals, text in (
        (nn.Linear(2, 2), Residuals("int8"), "needs a model that fully_shard has cut between the ranks of a site"),
        (nn.Linear(2, 2), Residuals(lambda _: "int8"), "the format can't be a function of them: give its name"),
        (_sharded(_mesh()), Residuals("int8"), r"has 3 such modules, over \[\(2, 2\)\]"),
    ):
        with pytest.raises(ValueError, match=text):
            compress_shards(model, residuals)


def test_what_can_not_cross_so_is_refused(four: Ranks) -> None:
    four.run(_refused)


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


def _compressed_shards(rank: int, form: str | None) -> tuple[int, str, float, bool]:
    """Bytes to other sites; a hash, and the distance from plain HSDP; whether resumed ones have the same bits."""
    mesh = _mesh()
    exact = _train(_sharded(mesh), rank, range(STEPS))
    model, residuals = _sharded(mesh["shard"]), Residuals(form, mesh.get_group("site"))
    compress_shards(model, residuals)
    before = traffic(residuals.group).get("site", Moved()).bytes
    _train(model, rank, range(STEPS - 2))
    sent = traffic(residuals.group)["site"].bytes - before
    saved = copy.deepcopy((model.state_dict(), residuals.state_dict()))
    ours = _train(model, rank, range(STEPS - 2, STEPS))
    model.load_state_dict(saved[0])
    residuals.load_state_dict(saved[1])
    again = _train(model, rank, range(STEPS - 2, STEPS))
    digest = hashlib.sha256(ours.numpy().tobytes()).hexdigest()
    return sent, digest, float((ours - exact).abs().max()), torch.equal(ours, again)


def test_shards_of_fsdp_cross_in_fewer_bytes_with_the_same_bits_everywhere_and_after_a_checkpoint(four: Ranks) -> None:
    sent = {}
    for form, apart in ((None, 1e-5), ("int8", 1e-2), ("int4", 0.1)):
        said = four.run(_compressed_shards, form)
        sent[form] = sum(one[0] for one in said)
        assert len({one[1] for one in said}) == 1, form
        assert max(one[2] for one in said) < apart, form
        assert form is None or min(one[2] for one in said) > 1e-6, form
        assert all(one[3] for one in said), form
    assert sent[None] / sent["int8"] > 3.8
    assert sent[None] / sent["int4"] > 7.2
