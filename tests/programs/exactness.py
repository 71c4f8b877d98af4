"""A rank: all-reduces of every dtype and operation over the table of sizes, against results made another way."""

import torch
import torch.distributed as dist
from contributions import DTYPES, contribution, expected, operations, reduce_op, same

import fairring  # noqa: F401  registers the backend on torch before 2.15

SLICE_BYTES = 64 << 10  # FAIRRING_SLICE_SIZE in the test


def sizes(world: int, dtype: torch.dtype) -> list[int]:
    slice_elements = SLICE_BYTES // dtype.itemsize
    around = [slice_elements - 1, slice_elements, slice_elements + 1, 5 * slice_elements // 2 + 3]
    return sorted({0, 1, world - 1, world, world + 1, *around})


def main() -> None:
    dist.init_process_group("fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    cases, wrong = 0, []
    for dtype in DTYPES:
        for elements in sizes(world, dtype):
            for name in operations(dtype):
                parts = [contribution(other, world, elements, dtype, name) for other in range(world)]
                tensor = parts[rank].clone()
                dist.all_reduce(tensor, op=reduce_op(name, rank))
                cases += 1
                if not same(tensor, expected(parts, name)):
                    wrong.append(f"{name} of {elements} {dtype}")
    works, tensors = [], [torch.full((1000 * i,), float(rank)) for i in range(20)]
    for tensor in tensors:  # many in flight, waited for in an order of this rank's own
        works.append(dist.all_reduce(tensor, async_op=True))
    for index in range(20):
        works[(index * 7 + rank) % 20].wait()
    assert all((tensor == world * (world - 1) / 2).all() for tensor in tensors)
    print(f"cases {cases} wrong {len(wrong)}", *wrong[:5])
    dist.destroy_process_group()


main()
