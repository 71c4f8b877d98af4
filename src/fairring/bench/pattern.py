"""Values whose sums are known exactly, so that every element of a collective's result can be checked.

Small integers that repeat with a prime period and differ by rank and by call: their sum, and every partial sum in any
order, is exact in the dtype. AVG may round once per rank, so there each element may be off by world * eps of its value.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXACT_UP_TO = {
    torch.bfloat16: 1 << 8,
    torch.float16: 1 << 11,
    torch.float32: 1 << 24,
    torch.float64: 1 << 53,
    torch.int32: 1 << 30,
    torch.int64: 1 << 62,
}
PERIODS = (13, 11, 7, 5, 3, 2)
COPY_PERIOD, COPY_STEP = 251, 31  # the largest prime below 256, up to which all dtypes are exact; apart by rank
REPEATS = 4096  # periods in one row at most, so that filling and comparing run at the memory's speed


def fitting_period(dtype: torch.dtype, world: int) -> int:
    """The largest period whose sums over all ranks are exact. Raises ValueError if there is none."""
    fitting = [period for period in PERIODS if (period - 1) * world <= EXACT_UP_TO[dtype]]
    if not fitting:
        raise ValueError(f"sums over {world} ranks are not exact in {dtype}; use float32 for so many ranks")
    return fitting[0]


class Pattern:
    """The values of one dtype, world and op (of calls.OPS). Raises ValueError if no exact sum is possible."""

    def __init__(self, dtype: torch.dtype, world: int, op: str) -> None:
        self._dtype, self._world, self._op, self._period = dtype, world, op, fitting_period(dtype, world)

    def fill(self, tensor: Tensor, rank: int, call: int) -> None:
        """Puts this rank's contribution to this call into a flat tensor."""
        _repeat(self._values(rank, call).to(self._dtype), tensor)

    def wrong(self, tensor: Tensor, call: int) -> int:
        """The number of wrong elements of a result."""
        row = _row(self._expected(call), tensor)
        return sum(int(self._differs(part, row[: part.shape[-1]]).sum()) for part in _rows(tensor, len(row)))

    def fill_copy(self, tensor: Tensor, rank: int, call: int) -> None:
        """Puts values into a flat tensor that is only moved. They differ from those of up to 250 other ranks."""
        _repeat(self._copied(rank, call), tensor)

    def wrong_copy(self, tensor: Tensor, rank: int, call: int) -> int:
        """The number of elements that are not those that this rank filled in for this call."""
        row = _row(self._copied(rank, call), tensor)
        return sum(int((part != row[: part.shape[-1]]).sum()) for part in _rows(tensor, len(row)))

    def _copied(self, rank: int, call: int) -> Tensor:
        return ((torch.arange(COPY_PERIOD) + COPY_STEP * rank + call) % COPY_PERIOD).to(self._dtype)

    def _values(self, rank: int, call: int) -> Tensor:
        return (torch.arange(self._period) + 3 * rank + call) % self._period

    def _expected(self, call: int) -> Tensor:
        all_values = torch.stack([self._values(rank, call) for rank in range(self._world)])
        if self._op in ("min", "max"):
            return (all_values.amin(0) if self._op == "min" else all_values.amax(0)).to(self._dtype)
        total = all_values.sum(0)
        if self._op == "sum":
            return total.to(self._dtype)
        if self._dtype.is_floating_point:
            return (total.double() / self._world).to(self._dtype)
        return total // self._world

    def _differs(self, part: Tensor, row: Tensor) -> Tensor:
        if self._op == "avg" and self._dtype.is_floating_point:
            off = (part.double() - row.double()).abs()
            return ~(off <= self._world * torch.finfo(self._dtype).eps * row.double())  # NaN is wrong too
        return part != row


def _row(period: Tensor, tensor: Tensor) -> Tensor:
    """The period, as often as the tensor needs it, or REPEATS times."""
    return period.to(tensor.device).repeat(min(REPEATS, tensor.numel() // len(period) + 1))


def _repeat(period: Tensor, tensor: Tensor) -> None:
    """Fills a flat tensor with the period, again and again."""
    row = _row(period, tensor)
    for part in _rows(tensor, len(row)):
        part.copy_(row[: part.shape[-1]])


def _rows(tensor: Tensor, length: int) -> list[Tensor]:
    """The tensor as whole rows of this length, and the rest."""
    whole = tensor.numel() // length * length
    return [tensor[:whole].view(-1, length), tensor[whole:]]
