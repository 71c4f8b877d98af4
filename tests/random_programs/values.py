"""The numbers of a program, and what reductions have to make of them by docs/design.md#numbers-and-bits.

Torch and numpy compute what is expected, each rank for itself, from the data of all ranks.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
REDUCED = (*FLOATS, *INTEGERS, *COMPLEX, "bool")
MOVED = (*REDUCED, "complex32", "float8_e4m3fn", "float8_e5m2")
SUMS = ("SUM", "AVG", "PREMUL_SUM")
OPERATIONS = (*SUMS, "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
FLAVOURS = ("small", "any", "any", "special")  # small: integers, whose sums are exact in every order
_PERIOD = 8191  # elements after which data repeat: a prime, so that no slice and no shard is a multiple of it
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_WORDS = {"SUM": "or", "MAX": "or", "BOR": "or", "PRODUCT": "and", "MIN": "and", "BAND": "and", "BXOR": "xor"}
_NUMPY: dict[str, Any] = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def defined(name: str, dtype: str) -> bool:
    """docs/collectives.md's table of operations."""
    if dtype in FLOATS:
        return name not in ("BAND", "BOR", "BXOR")
    if dtype in INTEGERS:
        return name != "PREMUL_SUM"
    return name not in ("AVG", "PREMUL_SUM") if dtype == "bool" else name in SUMS


def flat(tensor: Tensor) -> Tensor:
    """Its elements as a row of stride 1, every bit as it is: to copy a bool would make it 0 or 1."""
    row = as_bits(tensor.detach()).contiguous()
    return row.as_strided((row.numel(),), (1,)).view(tensor.dtype)


def raw(tensor: Tensor) -> Tensor:
    return flat(tensor).view(torch.uint8)


def as_bits(tensor: Tensor) -> Tensor:
    """As integers of its size, which copy without a look at what they mean."""
    return tensor.view(_BITS[tensor.element_size()])


def canonical(tensor: Tensor, signs_of_zeros: bool = True) -> Tensor:
    """The bytes, but of a NaN only that it is one: its payload is promised nowhere."""
    row = flat(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
    if row.is_floating_point():
        row = torch.where(row.isnan(), torch.full_like(row, math.nan), row)
        if not signs_of_zeros:
            row = torch.where(row == 0, torch.zeros_like(row), row)
    return raw(row)


def drawn(key: tuple[int, ...], dtype: str, shape: tuple[int, ...], flavour: str) -> Tensor:
    """The same numbers for the same key, on every rank."""
    count = math.prod(shape)
    some = _period(key, getattr(torch, dtype), min(count, _PERIOD), flavour)
    return raw(some).repeat(-(-count // _PERIOD))[: count * some.element_size()].view(some.dtype).view(shape)


@functools.lru_cache(2000)  # a rank needs those of its group, and needs them twice
def _period(key: tuple[int, ...], dtype: torch.dtype, count: int, flavour: str) -> Tensor:
    return _some(np.random.default_rng(key), dtype, count, flavour)


def _some(draw: np.random.Generator, dtype: torch.dtype, count: int, flavour: str) -> Tensor:
    if not count:
        return torch.empty(0, dtype=dtype)
    if flavour == "bytes":
        return torch.from_numpy(np.frombuffer(draw.bytes(count * dtype.itemsize), np.uint8).copy()).view(dtype)
    if dtype.is_complex:
        return torch.view_as_complex(_some(draw, dtype.to_real(), 2 * count, flavour).view(count, 2))
    if dtype is torch.bool:  # any byte but 0 is true
        choice = [0, 1] if flavour == "small" else [0, 0, 1, 2, 128, 255]
        return torch.from_numpy(draw.choice(np.array(choice, np.uint8), count)).view(torch.bool)
    if not dtype.is_floating_point:
        kind = np.dtype(str(dtype).removeprefix("torch."))
        if flavour != "small":
            return torch.from_numpy(np.frombuffer(draw.bytes(count * kind.itemsize), kind).copy())
        return torch.from_numpy(draw.integers(-3 if kind.kind == "i" else 0, 4, count).astype(kind))
    if flavour == "small":
        return torch.from_numpy(draw.integers(-3, 4, count)).to(dtype)
    numbers = torch.from_numpy(np.ldexp(draw.standard_normal(count), draw.integers(-6, 7, count))).to(dtype)
    if flavour == "special":
        limits = torch.finfo(dtype)
        least = limits.tiny * limits.eps  # denormal
        special = [math.nan, math.inf, -math.inf, 0.0, -0.0, least, -3 * least, limits.max, limits.min, limits.tiny]
        chosen = torch.tensor(special, dtype=torch.float64).to(dtype)[torch.from_numpy(draw.integers(0, 10, count))]
        numbers = torch.where(torch.from_numpy(draw.random(count) < 0.2), chosen, numbers)
    return numbers


@dataclass(frozen=True)
class Operation:
    """factors: of each member, for PREMUL_SUM. on_tensor: they are handed over as tensors, of the call's dtype."""

    name: str
    factors: tuple[float, ...] = ()
    on_tensor: bool = False

    def __str__(self) -> str:
        return self.name + (str(list(self.factors)) if self.name == "PREMUL_SUM" else "")

    def reduce_op(self, member: int, dtype: str) -> Any:
        if self.name != "PREMUL_SUM":
            return getattr(dist.ReduceOp, self.name)
        factor = self.factors[member]
        kind = getattr(torch, dtype)
        real = kind.to_real() if kind.is_complex else kind
        return dist._make_nccl_premul_sum(torch.tensor([factor], dtype=real) if self.on_tensor else factor)

    def expected(self, parts: list[Tensor], order: list[Any]) -> Tensor:
        """parts: of each member, alike. order: World.order_of_sums."""
        dtype = parts[0].dtype
        if dtype.is_complex:
            return torch.view_as_complex(self.expected([torch.view_as_real(part) for part in parts], order))
        if dtype is torch.bool:
            word = {"or": torch.logical_or, "and": torch.logical_and, "xor": torch.logical_xor}[_WORDS[self.name]]
            return functools.reduce(word, [part.view(torch.uint8) != 0 for part in parts])
        if not dtype.is_floating_point:
            return torch.from_numpy(self._integers([part.numpy() for part in parts]))
        if self.name in ("MIN", "MAX"):
            return functools.reduce(functools.partial(_extreme, least=self.name == "MIN"), parts)
        return self._level(parts, order)[0]

    def _integers(self, parts: list[Any]) -> Any:
        total = parts[0].copy()
        with np.errstate(over="ignore"):
            for part in parts[1:]:
                total = _NUMPY[self.name](total, part)
        if self.name != "AVG":
            return total
        count = np.array(len(parts), total.dtype)
        return (total - np.fmod(total, count)) // count  # toward zero

    def _level(self, parts: list[Tensor], order: Any) -> tuple[Tensor, Tensor]:
        """The level's result, and the same as the next one adds it: floats of 16 bits widened."""
        narrow = parts[0].dtype
        wide = torch.float32 if narrow.itemsize == 2 else narrow
        if isinstance(order, int):
            return parts[order], self._scaled(parts[order], wide, order, len(parts))
        values = [self._level(parts, member)[1] for member in order]
        total = functools.reduce(torch.mul if self.name == "PRODUCT" else torch.add, values).to(narrow)
        return total, total.to(wide)

    def _scaled(self, part: Tensor, wide: torch.dtype, member: int, count: int) -> Tensor:
        if self.name == "AVG":
            return part.to(wide) * (torch.ones((), dtype=wide) / count)
        if self.name == "PREMUL_SUM":
            factor = torch.tensor(self.factors[member], dtype=part.dtype if self.on_tensor else wide)
            return part.to(wide) * factor.to(wide)
        return part.to(wide)


def _extreme(a: Tensor, b: Tensor, least: bool) -> Tensor:
    """A NaN wins, and -0 is less than 0."""
    first = (a < b) | ((a == b) & a.signbit()) if least else (a > b) | ((a == b) & b.signbit())
    return torch.where(a.isnan(), a, torch.where(b.isnan(), b, torch.where(first, a, b)))
