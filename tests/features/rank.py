"""The rank that a feature plays: its number, its world and its backend."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SIZE = 4
RANKS_PER_MACHINE = 2
GROUP_TIMEOUT = timedelta(seconds=20)  # ends a call that hangs, so that the feature shows an error


@dataclass(frozen=True)
class Rank:
    number: int
    backend: str
    port: int  # of the world's store
    size: int = SIZE

    @property
    def next(self) -> int:
        return (self.number + 1) % self.size

    @property
    def previous(self) -> int:
        return (self.number - 1) % self.size

    @property
    def everyone(self) -> range:
        return range(self.size)

    def store(self, name: str) -> dist.Store:
        return dist.PrefixStore(name, dist.TCPStore("127.0.0.1", self.port, is_master=False))

    def init(self, name: str, backend: str | None = None, timeout: timedelta = GROUP_TIMEOUT, **options: Any) -> None:
        """The default group; a name may be used again once the last such group is destroyed."""
        place: dict[str, Any] = {"store": self.store(name), "rank": self.number, "world_size": self.size}
        dist.init_process_group(backend or self.backend, timeout=timeout, **place, **options)

    def part(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's rows of a batch."""
        return tensor.chunk(self.size)[self.number]

    def folder(self, name: str) -> Path:
        """The same on all ranks of this world, and no other world's."""
        path = Path(tempfile.gettempdir()) / f"fairring-features-{self.port}" / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def made(number: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers that differ between ranks: their sums are exact in every dtype."""
    count = torch.Size(shape).numel()
    values = (torch.arange(count) * 7 + number * 3) % 11
    if dtype.is_complex:
        return torch.complex(values.double() - 5, (values.double() + number) % 4).to(dtype).view(shape)
    if dtype == torch.bool:
        return (values > 4).view(shape)
    return (values if dtype in UNSIGNED else values - 5).to(dtype).view(shape)


def all_made(size: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [made(number, *shape, dtype=dtype) for number in range(size)]


UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def same(actual: Any, expected: Any) -> None:
    """Every bit of two tensors, or of two lists of them."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """As near as two orders of summation are."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
