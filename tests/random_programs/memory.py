"""Tensors somewhere in a larger memory, contiguous or not, and a look at whether what lies around them has stayed."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from random_programs.values import as_bits, raw

_AROUND = 0xA5


class Placed:
    """tensor has the elements of `data`. draw: of its strides and its offset; None: it is contiguous, alone."""

    def __init__(self, data: Tensor, draw: random.Random | None) -> None:
        offset, strides = (0, data.contiguous().stride()) if draw is None else _drawn_strides(draw, tuple(data.shape))
        last = offset + sum(max(0, size - 1) * stride for size, stride in zip(data.shape, strides, strict=True))
        beyond = 0 if draw is None else draw.choice((0, 1, 9))
        self._memory = torch.full(((last + 1 + beyond) * data.element_size(),), _AROUND, dtype=torch.uint8)
        self.tensor = self._memory.view(data.dtype).as_strided(data.shape, strides, offset)
        as_bits(self.tensor).copy_(as_bits(data))

    def around(self) -> Tensor:
        """The whole memory without the tensor: nothing but the byte with which it was filled."""
        memory = self._memory.clone()
        tensor = self.tensor
        elements = as_bits(memory.view(tensor.dtype)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        elements.fill_(as_bits(torch.full_like(memory, _AROUND)[: tensor.element_size()].view(tensor.dtype))[0])
        return memory

    def around_before(self) -> Tensor:
        return torch.full_like(self._memory, _AROUND)


def blank(dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor that a call has to overwrite."""
    empty = torch.empty(shape, dtype=getattr(torch, dtype))
    raw(empty).fill_(0x5B)
    return empty


def _drawn_strides(draw: random.Random, shape: tuple[int, ...]) -> tuple[int, list[int]]:
    order = list(range(len(shape)))
    if draw.random() < 0.6:
        draw.shuffle(order)
    strides, step = [0] * len(shape), draw.choice((1, 1, 1, 2, 3))
    for dimension in reversed(order):
        odd = shape[dimension] == 1 and draw.random() < 0.5  # no element uses it
        strides[dimension] = draw.choice((1, 5, 7)) if odd else step
        step = step * max(1, shape[dimension]) + draw.choice((0, 0, 1, 5))
    return draw.choice((0, 1, 3, 17)), strides
