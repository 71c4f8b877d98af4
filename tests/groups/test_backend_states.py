"""Torch's thread-local states: calls and callbacks have those of their caller, though other threads carry them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

ROWS, COLUMNS = 4, 6
Layout = Callable[[torch.Tensor], torch.Tensor]


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16):
        yield


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": contextlib.nullcontext,
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": autocast,
    "default device": lambda: torch.device("meta"),
    "dispatch mode": Passing,
}


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t()


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """With gaps between the elements of its rows."""
    whole = tensor.new_zeros(tensor.shape[0], tensor.shape[1] * 2)
    whole[:, ::2] = tensor
    return whole[:, ::2]


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """For inputs: the rows share their memory."""
    return tensor[:1].expand(tensor.shape)


# By their names: of a tensor that is written, and of one that is read.
LAYOUTS: dict[str, tuple[Layout, Layout]] = {
    "contiguous": (torch.clone, torch.clone),
    "transposed": (_transposed, _transposed),
    "strided": (_strided, _strided),
    "expanded": (_strided, _expanded),
}


class Calls:
    """Each makes one call on tensors of that layout and returns the pairs of result and expected value."""

    def __init__(self, written: Layout, read: Layout) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.written, self.read = written, read

    def _of(self, rank: int, rows: int = ROWS) -> torch.Tensor:
        """A rank's values; all its rows are alike, so that an expanded tensor may have them."""
        columns = torch.arange(COLUMNS, dtype=torch.float32, device="cpu")
        return (columns + 10 * rank).repeat(rows, 1)

    def _all(self, rows: int = ROWS) -> list[torch.Tensor]:
        return [self._of(rank, rows) for rank in range(self.world)]

    def _input(self, rows: int = ROWS) -> torch.Tensor:
        return self.read(self._of(self.rank, rows))

    def _inputs(self) -> list[torch.Tensor]:
        return [self._input() for _ in range(self.world)]

    def _output(self, rows: int = ROWS) -> torch.Tensor:
        return self.written(torch.zeros(rows, COLUMNS, device="cpu"))

    def _outputs(self) -> list[torch.Tensor]:
        return [self._output() for _ in range(self.world)]

    def _in_place(self) -> torch.Tensor:
        return self.written(self._of(self.rank))

    def _sum(self, rows: int = ROWS) -> torch.Tensor:
        return torch.stack(self._all(rows)).sum(0)

    def all_reduce(self) -> Any:
        tensor = self._in_place()
        dist.all_reduce(tensor)
        return [(tensor, self._sum())]

    def all_reduce_coalesced(self) -> Any:
        tensors = [self._in_place(), self._in_place()]
        dist.all_reduce_coalesced(tensors)
        return [(tensor, self._sum()) for tensor in tensors]

    def coalesced_by_the_manager(self) -> Any:
        tensors = [self._in_place(), self._in_place()]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        return [(tensor, self._sum()) for tensor in tensors]

    def all_reduce_sparse(self) -> Any:
        tensor = self._in_place().to_sparse()
        dist.all_reduce(tensor)
        return [(tensor.to_dense(), self._sum())]

    def reduce(self) -> Any:
        tensor = self._in_place()
        dist.reduce(tensor, 0)
        return [(tensor, self._sum() if self.rank == 0 else self._of(self.rank))]

    def broadcast(self) -> Any:
        tensor = self._in_place()
        dist.broadcast(tensor, 1)
        return [(tensor, self._of(1))]

    def all_gather(self) -> Any:
        outputs = self._outputs()
        dist.all_gather(outputs, self._input())
        return zip(outputs, self._all(), strict=True)

    def all_gather_into_tensor(self) -> Any:
        output = self._output(ROWS * self.world)
        dist.all_gather_into_tensor(output, self._input())
        return [(output, torch.cat(self._all()))]

    def all_gather_coalesced(self) -> Any:
        outputs = [[self._output()] for _ in range(self.world)]
        dist.all_gather_coalesced(outputs, [self._input()])
        return zip([one for (one,) in outputs], self._all(), strict=True)

    def gather(self) -> Any:
        outputs = self._outputs() if self.rank == 0 else None
        dist.gather(self._input(), outputs, 0)
        return zip(outputs or [], self._all() if outputs else [], strict=True)

    def scatter(self) -> Any:
        output = self._output()
        dist.scatter(output, self._inputs() if self.rank == 0 else None, 0)
        return [(output, self._of(0))]

    def reduce_scatter(self) -> Any:
        output = self._output()
        dist.reduce_scatter(output, self._inputs())
        return [(output, self._sum())]

    def reduce_scatter_tensor(self) -> Any:
        output = self._output()
        dist.reduce_scatter_tensor(output, self._input(ROWS * self.world))
        return [(output, self._sum())]

    def all_to_all_single(self) -> Any:
        output = self._output(ROWS * self.world)
        dist.all_to_all_single(output, self._input(ROWS * self.world))
        return [(output, torch.cat(self._all()))]

    def all_to_all(self) -> Any:
        outputs = self._outputs()
        dist.all_to_all(outputs, self._inputs())
        return zip(outputs, self._all(), strict=True)

    def send_and_recv(self) -> Any:
        if self.rank == 0:
            dist.send(self._input(), 1)
            return []
        output = self._output()
        dist.recv(output, 0)
        return [(output, self._of(0))]

    def isend_and_irecv(self) -> Any:
        peer, output = 1 - self.rank, self._output()
        works = [dist.isend(self._input(), peer, tag=3), dist.irecv(output, peer, tag=3)]
        for work in works:
            assert work is not None
            work.wait()
        return [(output, self._of(peer))]

    def recv_from_any(self) -> Any:
        if self.rank == 0:
            dist.send(self._input(), 1)
            return []
        output = self._output()
        dist.recv(output)
        return [(output, self._of(0))]


CALLS = sorted(name for name in vars(Calls) if not name.startswith("_"))


def _wrong(_rank: int, state: str) -> list[str]:
    """The calls, with their layouts, that fail or bring another result under that state."""
    wrong = []
    for layout, (written, read) in LAYOUTS.items():
        for name in CALLS:
            with STATES[state]():
                try:
                    pairs = list(getattr(Calls(written, read), name)())
                    if not all(torch.equal(result, expected) for result, expected in pairs):
                        wrong.append(f"{name}, {layout}: another result")
                except Exception as error:
                    wrong.append(f"{name}, {layout}: {error}")
    return wrong


@pytest.mark.parametrize("state", STATES)
def test_every_call_works_under_a_state_of_its_caller(pair: Ranks, state: str) -> None:
    assert len(CALLS) == 18
    assert pair.run(_wrong, state) == [[], []]


def _inference_tensors_outside(_rank: int) -> list[bool]:
    with torch.inference_mode():
        tensors = [written(torch.ones(ROWS, COLUMNS)) for written, _ in LAYOUTS.values()]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return [bool((tensor == 2).all()) for tensor in tensors]


def test_inference_tensors_are_reduced_outside_of_inference_mode(pair: Ranks) -> None:
    assert pair.run(_inference_tensors_outside) == [[True] * len(LAYOUTS)] * 2


def _state() -> dict[str, object]:
    return {
        "inference": torch.is_inference_mode_enabled(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default device": str(torch.get_default_device()),
        "dispatch mode": type(_get_current_dispatch_mode()).__name__,
        "makes inference tensors": torch.ones(1).is_inference(),
    }


def _seen_by_a_callback(rank: int, state: str, layout: str) -> bool:
    """Whether a callback that another thread calls sees the state of its caller."""
    store = dist.distributed_c10d._get_default_store()
    written, _ = LAYOUTS[layout]
    tensor = written(torch.ones(ROWS, COLUMNS))
    if rank == 1:  # its call comes when rank 0 has added its callback
        store.wait([f"added/{state}/{layout}"])
        dist.all_reduce(tensor)
        return True
    with STATES[state]():
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        seen = work.get_future().then(lambda _: _state())
        own = _state()
    store.set(f"added/{state}/{layout}", "")
    return bool(seen.wait() == own)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("state", STATES)
def test_a_callback_sees_the_state_of_its_caller(pair: Ranks, state: str, layout: str) -> None:
    assert pair.run(_seen_by_a_callback, state, layout) == [True, True]
