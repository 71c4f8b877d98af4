"""A rank: makes the same calls a hundred times, each time held up at other places, and prints how the bits compare.

What holds it up is work of a random size before some calls and before some waits, drawn by every rank for itself.
"""

import hashlib
import random

import torch
import torch.distributed as dist

import fairring  # noqa: F401

RUNS = 100
CALLS = [
    (torch.float32, "SUM", 20_011),
    (torch.bfloat16, "SUM", 70_001),
    (torch.float16, "AVG", 3),
    (torch.float32, "PRODUCT", 5_000),
    (torch.float64, "SUM", 9_001),
    (torch.float32, "MAX", 1_000),
    (torch.float16, "SUM", 33_001),
]


def hold_up(draw: random.Random) -> None:
    """Nothing half of the time; else some microseconds to some milliseconds of work."""
    if draw.random() < 0.5:
        side = draw.choice([8, 64, 256])
        torch.mm(torch.ones(side, side), torch.ones(side, side))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("fairring")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    inputs = [torch.randn(elements, generator=generator).to(dtype) for dtype, _, elements in CALLS]
    hashes = set()
    for run in range(RUNS):
        draw = random.Random(1000 * run + rank)
        tensors, works = [tensor.clone() for tensor in inputs], []
        for tensor, (_, name, _) in zip(tensors, CALLS, strict=True):
            hold_up(draw)
            works.append(dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name), async_op=True))
        draw.shuffle(works)
        for work in works:
            hold_up(draw)
            work.wait()
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.view(torch.uint8).numpy().tobytes())
        hashes.add(digest.hexdigest())
    print(f"runs {RUNS} results {len(hashes)}", *sorted(hashes))
    dist.destroy_process_group()


main()
