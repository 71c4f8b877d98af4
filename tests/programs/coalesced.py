"""A rank: calls of many tensors, of mixed dtypes and sizes, beside all-reduces of each tensor alone: the same bits."""

import random

import torch
import torch.distributed as dist
from contributions import DTYPES, contribution, operations, reduce_op
from torch.distributed.distributed_c10d import _coalescing_manager

import fairring  # noqa: F401  registers the backend on torch before 2.15

OPERATIONS = ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM", "BAND", "BOR", "BXOR"]
SHAPES = [[1], [7, 3, 1], [1] * 50, [0, 5, 0], [100, 20_000, 3, 64], [4096] * 12 + [1, 33_333]]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.view(torch.uint8).equal(b.view(torch.uint8))


def tensors_for(name: str, sizes: list[int], draw: random.Random) -> list[torch.Tensor]:
    """Drawn alike on all ranks; values that sums round, where the dtype has any."""
    dtypes = [dtype for dtype in DTYPES if name in operations(dtype)]
    rank, world = dist.get_rank(), dist.get_world_size()
    made = []
    for size in sizes:
        dtype = draw.choice(dtypes)
        tensor = contribution(rank, world, size, dtype, name)
        if dtype.is_floating_point and name in ("SUM", "AVG", "PREMUL_SUM"):
            tensor = torch.randn(size, generator=torch.Generator().manual_seed(rank)).to(dtype)
        made.append(tensor)
    return made


def main() -> None:
    dist.init_process_group("fairring")
    rank, draw = dist.get_rank(), random.Random(3)
    cases, wrong = 0, []
    for name in OPERATIONS:
        for sizes in SHAPES:
            alone = tensors_for(name, sizes, draw)
            together = [tensor.clone() for tensor in alone]
            for tensor in alone:
                dist.all_reduce(tensor, op=reduce_op(name, rank))
            with _coalescing_manager(async_ops=cases % 2 == 0) as manager:
                for tensor in together:
                    dist.all_reduce(tensor, op=reduce_op(name, rank))
            manager.wait()
            cases += 1
            if not all(map(same_bits, alone, together)):
                wrong.append(f"{name} of {sizes}")
    print(f"cases {cases} wrong {len(wrong)}", *wrong[:5])
    dist.destroy_process_group()


main()
