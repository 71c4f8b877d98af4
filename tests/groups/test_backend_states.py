"""Torch's thread-local states: calls and callbacks have those of their caller, though other threads carry them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from every_call import CALLS, EveryCall, Layout, fault
from ranks import Ranks
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

ROWS, COLUMNS = 4, 6


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


def _wrong(_rank: int, state: str) -> list[str]:
    """The calls, with their layouts, that fail or bring another result under that state."""
    wrong = []
    for layout, (written, read) in LAYOUTS.items():
        for name in CALLS:
            with STATES[state]():
                text = fault(EveryCall(written=written, read=read, alike=layout == "expanded"), name)
            wrong += [f"{layout}: {text}"] * bool(text)
    return wrong


@pytest.mark.parametrize("state", STATES)
def test_every_call_works_under_a_state_of_its_caller(pair: Ranks, state: str) -> None:
    assert len(CALLS) == 24
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
