"""A rank: prints a hash of all-reduced values that no order of summation leaves alone."""

import hashlib

import torch
import torch.distributed as dist

import fairring  # noqa: F401


def main() -> None:
    dist.init_process_group("fairring")
    generator = torch.Generator().manual_seed(dist.get_rank())
    digest = hashlib.sha256()
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for elements in (5, 1000, 300_001):
            tensor = torch.randn(elements, generator=generator).to(dtype)
            dist.all_reduce(tensor)
            digest.update(tensor.view(torch.uint8).numpy().tobytes())
    print(digest.hexdigest())
    dist.destroy_process_group()


main()
