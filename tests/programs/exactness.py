"""A rank: all-reduces of every dtype and operation over the table of sizes, against sums made another way."""

import torch
import torch.distributed as dist

import fairring  # noqa: F401  registers the backend on torch before 2.15

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64]
SLICE_ELEMENTS = (64 << 10) // 4  # of FAIRRING_SLICE_SIZE in the test, for four-byte elements


def contribution(rank: int, world: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Multiples of the world's size, so small that sums and averages are exact in every dtype."""
    return (((torch.arange(elements) * 7 + rank * 3) % 7 - 3) * world).to(dtype)


def main() -> None:
    dist.init_process_group("fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = {0, 1, world - 1, world, world + 1, SLICE_ELEMENTS - 1, SLICE_ELEMENTS, SLICE_ELEMENTS + 1, 200_003}
    checked = 0
    for dtype in DTYPES:
        for elements in sorted(sizes):
            parts = [contribution(other, world, elements, torch.int64) for other in range(world)]
            total = torch.stack(parts).sum(dim=0)
            for op, expected in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total // world)):
                tensor = contribution(rank, world, elements, dtype)
                dist.all_reduce(tensor, op=op)
                assert torch.equal(tensor, expected.to(dtype)), (rank, dtype, op, elements, tensor, expected)
                checked += 1
    works, tensors = [], [torch.full((1000 * i,), float(rank)) for i in range(20)]
    for tensor in tensors:  # many in flight, waited for in an order of this rank's own
        works.append(dist.all_reduce(tensor, async_op=True))
    for index in range(20):
        works[(index * 7 + rank) % 20].wait()
    assert all((tensor == world * (world - 1) / 2).all() for tensor in tensors)
    print(f"checked {checked}")
    dist.destroy_process_group()


main()
