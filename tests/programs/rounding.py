"""A rank: sums and products of random floats against the promised expression, bit by bit.

Arguments: the ranks of each machine, as 3,1, and in how many groups the machines stand. Within a machine in order of
ranks, then the machines of a group in order, then the groups: in fp32 for floats of 16 bits, rounded once per level;
else in the dtype.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

import fairring  # noqa: F401

ELEMENTS = 40_003
FOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "AVG": torch.add,
}


def values(rank: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 + rank)
    exponents = torch.randint(-3, 4, (ELEMENTS,), generator=generator)
    return (torch.randn(ELEMENTS, generator=generator) * 2.0**exponents).to(dtype)


def level(parts: list[torch.Tensor], name: str) -> torch.Tensor:
    dtype = parts[0].dtype
    wide = [part.float() if dtype.itemsize == 2 else part for part in parts]
    return functools.reduce(FOLDS[name], wide)


def promised(machines: list[int], groups: int, dtype: torch.dtype, name: str) -> torch.Tensor:
    world, sums, first = sum(machines), [], 0
    for ranks in machines:
        parts = [values(rank, dtype) for rank in range(first, first + ranks)]
        if name == "AVG":  # scaled before the first sum, and not rounded between the two
            scaled = [part.float() * (1 / world) if dtype.itemsize == 2 else part * (1 / world) for part in parts]
            sums.append(functools.reduce(torch.add, scaled).to(dtype))
        else:
            sums.append(level(parts, name).to(dtype))
        first += ranks
    count = len(sums)
    members = [sums[group * count // groups : (group + 1) * count // groups] for group in range(groups)]
    return level([level(parts, name).to(dtype) for parts in members], name).to(dtype)


def main() -> None:
    machines, groups = [int(ranks) for ranks in sys.argv[1].split(",")], int(sys.argv[2])
    dist.init_process_group("fairring")
    cases, wrong = 0, []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for name in FOLDS:
            tensor = values(dist.get_rank(), dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
            cases += 1
            different = (tensor != promised(machines, groups, dtype, name)).sum().item()
            if different:
                wrong.append(f"{name} of {dtype}: {different} of {ELEMENTS}")
    print(f"cases {cases} wrong {len(wrong)}", *wrong)
    dist.destroy_process_group()


main()
