"""Tensors of any device in groups without a stock backend: emulated CUDA, a device of another kind, and both mixed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from every_call import CALLS, EveryCall, fault
from gpu_machines import machines
from ranks import Ranks, backend_of, init_group, on_ranks
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fairring.between_sites import Residuals, all_reduce, compressed
from fairring.outer import DiLoCo

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
    pytest.mark.skipif(not hasattr(c10d, "_create_gloo_process_group"), reason="of torch 2.15"),
]

SECOND = "privateuseone"
GROUP = f"cpu:gloo,cuda:gloo,{SECOND}:gloo"
LAYOUTS = {
    "cuda": ["cuda"] * 4,
    "second": [SECOND] * 4,
    "mixed": ["cpu", "cuda", SECOND, "cuda"],
    "mixed otherwise": [SECOND, "cpu", "cuda", "cpu"],
}


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    late = {"EMULATED_CUDA_LATE_US": "500", "EMULATED_CUDA_LATE_ONE_IN": "7"}
    ranks = machines("2+1+1", environment={"FAIRRING_REPLACE": "gloo", "FAIRRING_CUDA": "host", **late})
    ranks.run(_begin, ranks.store.port)
    yield ranks
    assert ranks.close() == [0] * ranks.size


def _begin(rank: int, port: int) -> None:
    from fairring import replace

    replace.install()
    torch._register_device_module(SECOND, types.ModuleType(SECOND))
    torch.ops.load_library(str(Path(os.environ[emulated_devices.LIBRARIES]) / "libsecond_device.so"))
    init_group(rank, 4, port, GROUP, 60)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t()


def _faults(rank: int, devices: list[str]) -> list[str]:
    device, dtypes = devices[rank], [torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool]
    kinds = {str(dtype): EveryCall(device=device, dtype=dtype, shape=(27, 37)) for dtype in dtypes}
    kinds.update({f"{size} elements": EveryCall(device=device, shape=(1, size)) for size in (0, 1, 70_001)})
    kinds["transposed"] = EveryCall(device=device, shape=(27, 37), written=_transposed, read=_transposed)
    undefined = {"torch.bool": "reduce", "torch.complex64": "max"}
    faults = [
        f"{kind}: {fault(calls, name)}"
        for kind, calls in kinds.items()
        for name in CALLS
        if name != "all_reduce_sparse" and undefined.get(kind, "-") not in name
    ]
    return [text for text in faults if not text.endswith(": ")]


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_call_gives_the_results_of_the_cpu(four: Ranks, layout: str) -> None:
    assert four.run(_faults, LAYOUTS[layout]) == [[]] * 4


@on_ranks("four")
def test_a_message_may_be_shorter_than_its_receive(rank: int) -> None:
    sending: Any = dist.isend(torch.ones(1000, device="cuda"), (rank + 1) % 4)
    tensor = torch.full((1003,), 7.0, device="cuda")
    dist.recv(tensor, (rank - 1) % 4)
    sending.wait()
    assert tensor.tolist() == [1.0] * 1000 + [7.0] * 3


@on_ranks("four")
def test_calls_keep_the_order_of_streams(rank: int) -> None:
    """What the caller's stream had enqueued before comes before, and what it enqueues after wait() comes behind."""
    side = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(side):
            tensor = torch.empty(50_000, device="cuda").fill_(rank + 1)
            gathered = torch.empty(4 * 50_000, device="cuda").fill_(-1)
            works: list[Any] = [
                dist.all_reduce(tensor, async_op=True),
                dist.all_gather_into_tensor(gathered, torch.full((50_000,), rank + 1.0, device="cuda"), async_op=True),
            ]
            for work in works:
                work.wait()
            ends = (tensor * 2).aminmax()
            each = gathered.reshape(4, -1).aminmax(dim=1)
            assert [end.item() for end in ends] == [20, 20]
            assert [end.tolist() for end in each] == [[1, 2, 3, 4]] * 2


@contextlib.contextmanager
def _standing_still() -> Iterator[Callable[[], None]]:
    """In a stream that goes on once the function is called."""
    gate = threading.Event()
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(100) and None)
    launch = ctypes.CDLL("libcudart.so.13").cudaLaunchHostFunc
    stream = torch.cuda.Stream()
    try:
        with torch.cuda.stream(stream):
            assert launch(ctypes.c_void_p(stream.cuda_stream), wait, None) == 0
            yield gate.set
    finally:
        gate.set()
        stream.synchronize()


@on_ranks("four")
def test_a_call_returns_before_its_stream_has_come_to_it(rank: int) -> None:
    """Calls return, and those of another stream and group go on, while this stream has yet to come to the first."""
    elements = 50_000
    other = torch.cuda.Stream()
    second: Any = dist.new_group()
    tensor, part, free, crossing = (torch.empty(elements, device="cuda") for _ in range(4))
    given, gathered, exchanged = (torch.empty(4 * elements, device="cuda") for _ in range(3))

    def nothing() -> None:
        pass

    def step(go: Callable[[], None]) -> None:
        tensor.fill_(rank + 1)
        crossing.fill_(rank + 1)
        given.fill_(rank)
        works: list[Any] = [
            dist.all_reduce(tensor, async_op=True),
            dist.all_gather_into_tensor(gathered, given[:elements], async_op=True),
            dist.reduce_scatter_tensor(part, given, async_op=True),
            dist.all_to_all_single(exchanged, given, async_op=True),
            all_reduce(crossing, "int8"),
        ]
        with torch.cuda.stream(other):
            for _ in range(3):
                free.fill_(1)
                dist.all_reduce(free, group=second)
                assert free.aminmax().max == 4
        assert go is nothing or not any(work.is_completed() for work in works)
        dist.barrier(group=second)
        go()
        for work in works:
            work.wait()
        assert [whole.aminmax().max for whole in (tensor, part, crossing)] == [10, 6, 10]
        for whole in (gathered, exchanged):
            assert whole.reshape(4, -1).aminmax(dim=1).min.tolist() == [0, 1, 2, 3]

    step(nothing)
    # An allocation may wait for all that the device has to do. So the host's memory is there before, in torch's cache.
    _cached = [torch.empty(size, pin_memory=True) for size in (elements, 4 * elements) for _ in range(12)]
    del _cached
    for late in ({0, 1, 2, 3}, {0}):
        with _standing_still() if rank in late else contextlib.nullcontext(nothing) as go:
            step(go)
    dist.destroy_process_group(second)


def _any_holds(memory: bool) -> bool:
    holds = torch.tensor([int(memory)])
    dist.all_reduce(holds, dist.ReduceOp.MAX)
    return bool(holds)


@on_ranks("four")
def test_memory_is_let_go_once_the_call_is_over() -> None:
    dist.all_reduce(torch.ones(1000, device="cuda"))
    before = torch.cuda.memory_allocated()
    works: list[Any] = [dist.all_reduce(torch.ones(100_000, device="cuda"), async_op=True) for _ in range(3)]
    gathered = torch.empty(4 * 1000, device="cuda")
    works.append(dist.all_gather_into_tensor(gathered, torch.ones(1000, device="cuda"), async_op=True))
    for work in works:
        work.wait()
    assert gathered.unique().tolist() == [1]
    del work, works, gathered
    while _any_holds(torch.cuda.memory_allocated() > before):  # the thread that tells of a call's end, a little longer
        pass


@on_ranks("four")
def test_a_future_has_the_result(rank: int) -> None:
    tensor = torch.ones(1000).to(["cuda", SECOND][rank % 2])
    doubled_later = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0].cpu() * 2)
    assert doubled_later.wait().unique().tolist() == [8]
    work = dist.all_reduce(tensor, async_op=True)
    work.block_current_stream()
    assert tensor.cpu().unique().tolist() == [16]
    assert work.is_completed()


@on_ranks("four")
def test_a_graph_can_not_capture_a_call() -> None:
    tensor = torch.ones(10, device="cuda")
    refused = pytest.raises(RuntimeError, match="a CUDA graph can't capture calls that go through the host's memory")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        dist.all_reduce(tensor)
    dist.all_reduce(tensor)
    assert tensor.unique().tolist() == [4]


@on_ranks("four")
def test_objects_go_by_tensors_of_a_device(rank: int) -> None:
    mine: list[Any] = [{"rank": rank}, None] if rank == 1 else [None, None]
    dist.broadcast_object_list(mine, 1, device=torch.device("cuda"))
    assert mine == [{"rank": 1}, None]
    everybodys: list[Any] = [None] * 4
    dist.all_gather_object(everybodys, rank)
    assert everybodys == [0, 1, 2, 3]


def _by_fairrings_name(rank: int, devices: list[str]) -> None:
    """FAIRRING_CUDA=host."""
    group: Any = dist.new_group(backend=GROUP.replace("gloo", "fairring"))
    tensor = torch.full((5,), rank + 1.0).to(devices[rank])
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [10] * 5


def test_a_group_without_nccl(four: Ranks) -> None:
    four.run(_by_fairrings_name, LAYOUTS["mixed"])


@on_ranks("four")
def test_a_group_of_one_rank(rank: int) -> None:
    group, _ = dist.new_subgroups(1)
    tensor = torch.full((5,), rank + 1.0, device="cuda")
    dist.all_reduce(tensor, group=group)
    dist.all_gather_into_tensor(gathered := torch.empty(5, device="cuda"), tensor, group=group)
    assert tensor.tolist() == gathered.tolist() == [rank + 1] * 5


def _when_a_rank_aborts(rank: int, devices: list[str]) -> str:
    group: Any = dist.new_group()
    dist.all_reduce(torch.ones(1000).to(devices[rank]), group=group)
    if rank == 3:
        dist.barrier()
        backend_of(group, "cuda").abort()
        return "rank 3 aborted"
    work = dist.all_reduce(torch.ones(70_001).to(devices[rank]), group=group, async_op=True)
    dist.barrier()
    with pytest.raises(dist.DistBackendError) as caught:
        work.wait()
    with pytest.raises(dist.DistBackendError):
        dist.broadcast(torch.ones(3).to(devices[rank]), 0, group=group)
    return str(caught.value)


def test_an_error_of_the_group_ends_the_call_on_every_device(four: Ranks) -> None:
    for text in four.run(_when_a_rank_aborts, LAYOUTS["mixed"]):
        assert "rank 3 aborted" in text


def _ddp(model: nn.Module, _device: str) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def _fsdp(model: nn.Module, device: str) -> nn.Module:
    fully_shard(model, mesh=init_device_mesh(device, (4,)))
    return model


def _losses(rank: int, device: str, wrap: Callable[[nn.Module, str], nn.Module]) -> list[float]:
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).to(device), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(5):
        inputs = (torch.arange(256).reshape(32, 8) % (7 + rank + step)).float().to(device)
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _train(rank: int, wrap: Callable[[nn.Module, str], nn.Module]) -> None:
    assert _losses(rank, "cuda", wrap) == _losses(rank, "cpu", wrap)


@pytest.mark.parametrize("wrap", [_ddp, _fsdp])
def test_models_train_as_on_the_cpu(four: Ranks, wrap: Callable[[nn.Module, str], nn.Module]) -> None:
    four.run(_train, wrap)


# --- between sites, in a format


@pytest.fixture(scope="module")
def across() -> Iterator[Ranks]:
    """Two ranks, each at a site of its own."""
    environment = {"FAIRRING_REPLACE": "gloo", "FAIRRING_CUDA": "host", "EMULATED_CUDA_LATE_US": "500"}
    ranks = machines("2x1", environment=environment, of_last={"FAIRRING_SITE": "far"})
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * ranks.size


@on_ranks("across")
def test_sums_cross_between_sites_in_a_format_from_any_device(rank: int) -> None:
    """In the order of streams, with the same bits as on the CPU, also by a future."""
    given = torch.randn(300, 7, generator=torch.Generator().manual_seed(rank))
    all_reduce(expected := given.t().contiguous(), "int8").wait()
    with torch.cuda.stream(torch.cuda.Stream()):
        for get in (lambda work: work.wait(), lambda work: work.get_future().wait()):
            tensor = torch.empty(300, 7, device="cuda").copy_(given).t()
            get(all_reduce(tensor, "int8"))
            assert torch.equal((tensor * 1).cpu(), expected)


def _compressed(model: nn.Module, _device: str) -> nn.Module:
    replica = nn.parallel.DistributedDataParallel(model)
    replica.register_comm_hook(Residuals("int4"), compressed)
    return replica


def _by_outer_steps(rank: int) -> None:
    torch.manual_seed(rank)
    model = nn.Linear(8, 4).to("cuda")
    diloco = DiLoCo(model, functools.partial(torch.optim.SGD, lr=1.0), 2, delay=1, format="int8")
    for _ in range(4):
        model.weight.data += rank
        diloco.step()
    diloco.finish()
    of_all = [torch.empty_like(model.weight) for _ in range(2)]
    dist.all_gather(of_all, model.weight.detach())
    assert torch.equal(of_all[0], of_all[1])


def test_models_on_a_device_train_between_sites_as_on_the_cpu(across: Ranks) -> None:
    across.run(_train, _compressed)
    across.run(_by_outer_steps)
