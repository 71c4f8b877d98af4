"""The ranks' inputs to an all-reduce and the expected result, made by torch in one process, in wider types."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
DTYPES = [*FLOATS, *SIGNED, *UNSIGNED, torch.bool]
PREMUL_SUM = "PREMUL_SUM"


def operations(dtype: torch.dtype) -> list[str]:
    """Those that are defined for the dtype."""
    common = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype in FLOATS:
        return [*common, "AVG", PREMUL_SUM]
    bits = ["BAND", "BOR", "BXOR"]
    return common + bits if dtype == torch.bool else [*common, *bits, "AVG"]


def reduce_op(name: str, rank: int) -> dist.ReduceOp:
    """PREMUL_SUM's factor is another on every rank."""
    return dist._make_nccl_premul_sum(_factor(rank)) if name == PREMUL_SUM else getattr(dist.ReduceOp, name)


def contribution(rank: int, world: int, elements: int, dtype: torch.dtype, name: str) -> torch.Tensor:
    """Floats whose results are exact in every dtype, with NaNs and infinities for MIN and MAX; integers of any bits."""
    index = torch.arange(elements)
    if dtype in FLOATS:
        values = ((index * 7 + rank * 3) % 7 - 3).double()
        if name in ("SUM", "AVG", PREMUL_SUM):
            values *= world
        elif name == "PRODUCT":
            values = torch.tensor([1.0, -2.0, 0.5, -1.0, 2.0, 1.0, -0.5], dtype=torch.float64)[(index + rank) % 7]
        else:
            values[index % 11 == rank] = float("nan")
            values[index % 13 == rank] = float("inf")
            values[index % 17 == rank] = -float("inf")
        return values.to(dtype)
    bits = (index + 1) * 6364136223846793005 + (rank + 1) * 1442695040888963407
    bits ^= bits >> 29
    bits *= -4658895280553007687
    if name == "AVG" and dtype == torch.uint64:
        bits = (bits >> 8) & ((1 << 56) - 1)  # the reference has 63 bits
    return ((bits >> 40) & 1).bool() if dtype == torch.bool else _narrowed(bits, dtype)


def expected(parts: list[torch.Tensor], name: str) -> torch.Tensor:
    dtype = parts[0].dtype
    if dtype == torch.bool:
        names = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}
        return _fold([part.long() for part in parts], names.get(name, name)).bool()
    if dtype in FLOATS:
        wide = [part.double() for part in parts]
        if name == PREMUL_SUM:
            wide = [part * _factor(rank) for rank, part in enumerate(wide)]
        result = _fold(wide, "SUM" if name in ("AVG", PREMUL_SUM) else name)
        return (result / len(parts) if name == "AVG" else result).to(dtype)
    if name in ("MIN", "MAX") and dtype == torch.uint64:  # in the order of signed ones
        flipped = [part.view(torch.int64) ^ torch.iinfo(torch.int64).min for part in parts]
        return (_fold(flipped, name) ^ torch.iinfo(torch.int64).min).view(dtype)
    result = _narrowed(_fold([_widened(part) for part in parts], "SUM" if name == "AVG" else name), dtype)
    if name == "AVG":
        result = _narrowed(torch.div(_widened(result), len(parts), rounding_mode="trunc"), dtype)
    return result


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, and NaN where the other is."""
    if not a.is_floating_point():
        return torch.equal(_comparable(a), _comparable(b))
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0))


def _factor(rank: int) -> float:
    return (1.0, -0.5, 2.0)[rank % 3]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor.long()


def _narrowed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The lowest bits."""
    return values.view(dtype) if dtype == torch.uint64 else values.to(dtype)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return _widened(tensor) if tensor.dtype in UNSIGNED else tensor


def _fold(parts: list[torch.Tensor], name: str) -> torch.Tensor:
    steps: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "SUM": torch.add,
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    return functools.reduce(steps[name], parts)
