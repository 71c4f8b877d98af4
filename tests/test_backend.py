"""The backend as a user sees it: real processes of one machine over loopback, beside the stock backend."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import LOOPBACK, RankError, Ranks, init_group

import fairring
from fairring.config import ConfigError

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64]
WORLDS = [1, 2, 3, 4]
kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    yield from _started(request.param)


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    yield from _started(2)


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    yield from _started(3)


@pytest.fixture
def strangers() -> Iterator[Ranks]:
    """Two ranks without a group yet, for one test alone."""
    ranks = Ranks(2)
    yield ranks
    ranks.kill()


def _started(size: int) -> Iterator[Ranks]:
    ranks = Ranks(size)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * size, "ranks that did not destroy their group did not end well"


# Registration


def test_the_backend_is_registered_for_cpu_and_cuda() -> None:
    fairring.register()  # again: does nothing
    assert dist.is_backend_available("fairring")
    assert dist.Backend("FAIRRING") == "fairring"
    assert dist.Backend.backend_capability["fairring"] == ["cpu", "cuda"]


@pytest.mark.smoke
def test_a_script_needs_one_line() -> None:
    needs_import = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15)
    script = f"""
import torch, torch.distributed as dist
{"import fairring" if needs_import else ""}
dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.arange(4.)
dist.all_reduce(tensor)
assert dist.get_backend() == "fairring" and tensor.tolist() == [0, 1, 2, 3]
dist.destroy_process_group()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tempfile.gettempdir())


def test_the_command_line_does_not_import_torch() -> None:
    script = "import sys; sys.argv[0] = 'fairring'; import fairring.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# Sums


def _exact(rank: int, size: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Multiples of the world's size, so small that sums and averages are exact in every dtype."""
    return (((torch.arange(elements) * 7 + rank * 3) % 11 - 5) * size).to(dtype)


def _check_sums(rank: int, dtype: torch.dtype, average: bool) -> None:
    size = dist.get_world_size()
    for elements in sorted({0, 1, size - 1, size, size + 1, 1 << 20}):
        tensor = _exact(rank, size, elements, dtype)
        total = torch.stack([_exact(other, size, elements, torch.int64) for other in range(size)]).sum(0)
        expected = (total // size if average else total).to(dtype)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
        assert torch.equal(tensor, expected), f"{elements} elements: {tensor} instead of {expected}"


@pytest.mark.parametrize("average", [False, True], ids=["sum", "avg"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce_gives_the_exact_sum(world: Ranks, dtype: torch.dtype, average: bool) -> None:
    world.run(_check_sums, dtype, average)


def _average_of_integers(rank: int) -> list[int]:
    tensor = torch.tensor([-7, 7, -1, 1]) if rank == 0 else torch.zeros(4, dtype=torch.int64)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    return tensor.tolist()


def test_the_average_of_integers_truncates_toward_zero(pair: Ranks) -> None:
    assert pair.run(_average_of_integers) == [[-3, 3, 0, 0]] * 2


def _strided(rank: int) -> None:
    base = torch.zeros(6, 8)
    view = base[::2, 1::3]
    view.copy_(torch.arange(9.0).reshape(3, 3) * (rank + 1))
    work = dist.all_reduce(view, async_op=True)
    future = work.get_future()
    work.wait()
    assert torch.equal(view, torch.arange(9.0).reshape(3, 3) * 3)
    assert base.sum() == view.sum(), "what lies between the view's elements was written"
    assert future.wait()[0] is not None
    leaf = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    assert torch.equal(leaf.detach(), torch.full((3, 2), 2.0))


def test_tensors_that_are_not_contiguous_get_their_sum_and_nothing_else(pair: Ranks) -> None:
    pair.run(_strided)


def _overlapping(_rank: int) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_reduce(torch.ones(1).expand(4))


def test_a_tensor_that_overlaps_itself_is_refused(pair: Ranks) -> None:
    pair.run(_overlapping)


# Works


def _asynchronous(rank: int) -> None:
    tensors = [torch.full((elements,), float(rank + 1)) for elements in (1, 1000, 1 << 18)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    order = works if rank == 0 else reversed(works)
    for work in order:
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
    assert all(torch.equal(tensor, torch.full_like(tensor, 3.0)) for tensor in tensors)
    assert works[0].result()[0].data_ptr() == tensors[0].data_ptr()


def test_asynchronous_calls_may_be_waited_for_in_any_order(pair: Ranks) -> None:
    pair.run(_asynchronous)


def _futures(rank: int) -> None:
    tensor = torch.full((5,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((5,), 2.0))
    late = dist.all_reduce(torch.ones(1), async_op=True)
    late.wait()
    assert late.get_future().wait()[0].item() == 2


def test_futures_carry_the_tensors_and_call_back(pair: Ranks) -> None:
    pair.run(_futures)


def _nested(rank: int) -> None:
    def inner(done: torch.futures.Future[Any]) -> Any:
        tensor = done.value()[0].clone()
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.full((3,), float(rank)), async_op=True).get_future().then(inner)
    assert torch.equal(future.wait(), torch.full((3,), 2.0))


def test_a_callback_may_wait_for_the_future_of_another_call(pair: Ranks) -> None:
    pair.run(_nested)


def _impatient(_rank: int) -> str:
    pending = kept["work"] = dist.all_reduce(torch.ones(7), async_op=True)
    with pytest.raises(dist.DistBackendError) as caught:
        pending.wait(timedelta(milliseconds=20))
    return str(caught.value)


def _all_reduce_ones(_rank: int, elements: int) -> float:
    tensor = torch.ones(elements)
    dist.all_reduce(tensor)
    return tensor.sum().item()


def _wait_again(_rank: int) -> float:
    kept["work"].wait()
    return float(kept["work"].result()[0].sum())


def test_a_wait_that_runs_out_names_the_call_and_leaves_it_running(pair: Ranks) -> None:
    (text,) = pair.run(_impatient, on=[0])
    assert "rank 0" in text
    assert "7 " in text
    assert "20 ms" in text
    assert pair.run(_all_reduce_ones, 7, on=[1]) == [14]
    assert pair.run(_wait_again, on=[0]) == [14]


# What is delegated


def _beside_gloo(rank: int, name: str) -> None:
    results = [_COLLECTIVES[name](rank, dist.get_world_size(), group) for group in (dist.group.WORLD, _gloo())]
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs), f"{name}: {ours} instead of {theirs}"


def _gloo() -> Any:
    if "gloo" not in kept:
        kept["gloo"] = dist.new_group(backend="gloo")
    return kept["gloo"]


Tensors = list[torch.Tensor]


def _broadcast(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.full((5,), rank)
    dist.broadcast(tensor, src=1, group=group)
    return [tensor]


def _reduce(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.full((5,), float(rank + 1))
    dist.reduce(tensor, dst=1, group=group)
    return [tensor] if rank == 1 else []


def _all_gather(rank: int, size: int, group: Any) -> Tensors:
    outputs = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(outputs, torch.full((3,), float(rank)), group=group)
    return outputs


def _all_gather_into_tensor(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3 * size)
    dist.all_gather_into_tensor(output, torch.full((3,), float(rank)), group=group)
    return [output]


def _gather(rank: int, size: int, group: Any) -> Tensors:
    outputs = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank)), outputs, dst=0, group=group)
    return outputs or []


def _scatter(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    inputs = [torch.full((3,), float(other)) for other in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, src=0, group=group)
    return [output]


def _reduce_scatter(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    dist.reduce_scatter(output, [torch.full((3,), float(rank + other)) for other in range(size)], group=group)
    return [output]


def _reduce_scatter_tensor(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    dist.reduce_scatter_tensor(output, torch.arange(3.0 * size) + rank, group=group)
    return [output]


def _all_to_all(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(2 * size)
    dist.all_to_all_single(output, torch.arange(2.0 * size) + 10 * rank, group=group)
    return [output]


def _send_and_receive(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    operations = [
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size, group),
        dist.P2POp(dist.irecv, output, (rank - 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [output]


def _receive_from_anyone(rank: int, _size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    if rank == 0:
        dist.send(torch.ones(3), 1, group=group)
    elif rank == 1:
        output[0] = dist.recv(output, group=group)
    return [output]


def _maximum(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.tensor([rank, -rank, 5])
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    return [tensor]


def _other_dtype(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.tensor([rank, 1], dtype=torch.int32)
    dist.all_reduce(tensor, group=group)
    return [tensor]


def _sparse(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank, rank + 1]]), torch.tensor([1.0, 2.0]), (8,))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


def _objects(rank: int, size: int, group: Any) -> Tensors:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    shared = [f"from {rank}"]
    dist.broadcast_object_list(shared, src=1, group=group)
    assert shared == ["from 1"]
    return [torch.tensor([entry["rank"] for entry in gathered])]


def _barrier(_rank: int, _size: int, group: Any) -> Tensors:
    dist.barrier(group=group)
    return []


def _coalesced(rank: int, _size: int, group: Any) -> Tensors:
    tensors = [torch.full((elements,), float(rank)) for elements in (0, 1, 1000)]
    with dist.distributed_c10d._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


_COLLECTIVES: dict[str, Callable[[int, int, Any], Tensors]] = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all_single": _all_to_all,
    "send and receive": _send_and_receive,
    "receive from anyone": _receive_from_anyone,
    "all_reduce of the maximum": _maximum,
    "all_reduce of int32": _other_dtype,
    "all_reduce of a sparse tensor": _sparse,
    "object collectives": _objects,
    "barrier": _barrier,
    "coalesced all_reduce": _coalesced,
}


@pytest.mark.parametrize("name", _COLLECTIVES)
def test_the_result_is_that_of_gloo(three: Ranks, name: str) -> None:
    three.run(_beside_gloo, name)


def _meet(rank: int) -> list[float]:
    tensor = torch.full((4,), float(rank))
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    return tensor.tolist()


def test_two_ranks_may_send_before_the_third_makes_any_call() -> None:
    ranks = Ranks(3)
    try:
        ranks.init()
        assert ranks.run(_meet, on=[0, 1]) == [[0.0] * 4] * 2
    finally:
        ranks.kill()


# Groups


def _subgroup(rank: int) -> list[float]:
    group: Any = dist.new_group([0, 2])
    tensor = torch.full((4,), float(rank + 1))
    if rank != 1:
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
    return tensor.tolist()


def test_a_group_of_some_ranks_sums_these(three: Ranks) -> None:
    assert three.run(_subgroup) == [[4.0] * 4, [2.0] * 4, [4.0] * 4]


def _train(rank: int, backend: str) -> bytes:
    torch.manual_seed(rank)  # DDP has to make the ranks equal
    group = dist.new_group(backend=backend)
    model: Any = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    torch.nn.init.constant_(model[0].bias, float(rank))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().sum().backward()
        optimizer.step()
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return flat.numpy().tobytes()


@pytest.mark.smoke
def test_ddp_trains_as_on_gloo_to_the_last_bit(pair: Ranks) -> None:
    ours, theirs = pair.run(_train, "fairring"), pair.run(_train, "gloo")
    assert ours[0] == ours[1]
    assert ours == theirs  # of two addends there is one sum


def _again(rank: int, size: int, port: int) -> list[float]:
    sums = []
    for round_number in range(3):
        init_group(rank, size, port, "fairring", 60)
        tensor = torch.full((3,), float(rank + round_number))
        dist.all_reduce(tensor)
        dist.broadcast(tensor, src=0)
        sums.append(tensor[0].item())
        dist.destroy_process_group()
    return sums


def test_a_destroyed_group_can_be_made_again_on_the_same_store(strangers: Ranks) -> None:
    assert strangers.run(_again, 2, strangers.store.port) == [[1.0, 3.0, 5.0]] * 2
    assert strangers.close() == [0, 0]


def _leave_without_waiting(rank: int) -> None:
    dist.all_reduce(torch.full((1 << 16,), float(rank)))
    dist.barrier()
    dist.all_reduce(torch.full((3,), float(rank)), async_op=True)


def test_a_process_that_does_not_destroy_its_group_ends_well(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_leave_without_waiting)
    assert strangers.close() == [0, 0]


# Failing


def _init_alone(**variables: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"FAIRRING_TOTAL_MEMROY": "1GiB"}, r"FAIRRING_TOTAL_MEMROY.*did you mean FAIRRING_TOTAL_MEMORY\?"),
        ({"FAIRRING_SLICE_SIZE": "big"}, r"FAIRRING_SLICE_SIZE='big'.*2\^63-1"),
        ({"TP_SOCKET_IFNAME": "nosuch0"}, r"TP_SOCKET_IFNAME='nosuch0'.*there are:.*lo"),
    ],
    ids=["unknown", "no size", "no interface"],
)
def test_a_setting_that_cant_be_used_is_an_error_at_init(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _init_alone(**variables)


def _expect_error(rank: int, size: int, port: int, timeout_seconds: float) -> str:
    init_group(rank, size, port, "fairring", timeout_seconds)
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


def test_ranks_that_never_make_the_group_are_named(strangers: Ranks) -> None:
    (text,) = strangers.run(_expect_error, 4, strangers.store.port, 0.5, on=[0])
    assert "rank 0" in text
    assert "rank(s) 1, 2, 3 of 4" in text
    assert "500 ms" in text


def test_settings_that_differ_are_an_error_that_shows_both() -> None:
    ranks = Ranks(2)
    try:
        ranks.run(_set_slice_size)
        texts = ranks.run(_expect_error, 2, ranks.store.port, 30)
    finally:
        ranks.kill()
    for text in texts:
        assert "FAIRRING_SLICE_SIZE=1048576" in text
        assert "FAIRRING_SLICE_SIZE=26214400" in text


def _set_slice_size(rank: int) -> None:
    import os

    if rank == 1:
        os.environ["FAIRRING_SLICE_SIZE"] = "1MiB"


def _backend() -> Any:
    group: Any = dist.group.WORLD
    return group._get_backend(torch.device("cpu"))


def _abort(_rank: int) -> str:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    _backend().abort()
    with pytest.raises(dist.DistBackendError) as caught:
        work.wait()
    with pytest.raises(RuntimeError):
        work.get_future().wait()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


def test_abort_ends_the_waits_and_the_calls_to_come(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_all_reduce_ones, 3)
    (text,) = strangers.run(_abort, on=[0])
    assert "rank 0 aborted" in text
    assert strangers.close() == [0, 0]


def _after_destroy(_rank: int) -> None:
    backend = _backend()
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="has ended"):
        backend.allreduce([torch.ones(1)], dist.AllreduceOptions())


def test_a_destroyed_group_refuses_calls(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_after_destroy)


def _die(_rank: int) -> None:
    import os

    os._exit(1)


def test_a_rank_that_dies_ends_the_others_wait_with_its_name(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_all_reduce_ones, 3)
    waiting = strangers.start(_expect_error_in_group, on=[0])
    strangers.start(_die, on=[1])
    (text,) = strangers.finish(waiting)
    assert "rank 1" in text


def _expect_error_in_group(_rank: int) -> str:
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(1 << 20))
    return str(caught.value)


def test_a_test_can_fail() -> None:
    ranks = Ranks(1)
    with pytest.raises(RankError, match="needle"):
        ranks.run(_raise)
    ranks.kill()


def _raise(_rank: int) -> None:
    raise ValueError("needle")


def test_the_secret_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef")
    ranks = Ranks(2, {**LOOPBACK, "FAIRRING_SECRET_FILE": str(path)})
    try:
        ranks.init()
        assert ranks.run(_all_reduce_ones, 3) == [6, 6]
    finally:
        ranks.kill()
