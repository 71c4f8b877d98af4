"""A rank: sparse all-reduces of values that no order of summation leaves alone, beside dense ones of the same values.

Rows are drawn at random, none twice on a rank; prints how many results have other values than the dense one's.
"""

from itertools import product

import torch
import torch.distributed as dist

import fairring  # noqa: F401  registers the backend on torch before 2.15

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(40, 3), (700, 64), (5000,), (9, 300, 5)]  # the last dimension dense, but of the third
SHARES = [0.02, 0.4, 1.0]  # of the rows


def main() -> None:
    dist.init_process_group("fairring")
    draw = torch.Generator().manual_seed(dist.get_rank())
    cases, wrong = 0, []
    for dtype, shape, share, op in product(DTYPES, SHAPES, SHARES, (dist.ReduceOp.SUM, dist.ReduceOp.AVG)):
        sizes = shape[:-1] or shape
        mask = torch.rand(sizes, generator=draw) < share
        dense = torch.randn(shape, generator=draw).to(dtype) * mask.view(*sizes, *[1] * (len(shape) - len(sizes)))
        indices = mask.nonzero().T
        sparse = torch.sparse_coo_tensor(indices, dense[tuple(indices)], shape, check_invariants=True)
        dist.all_reduce(sparse, op=op)
        dist.all_reduce(dense, op=op)
        cases += 1
        if not sparse.to_dense().equal(dense):
            wrong.append(f"{op} of {dtype} {shape} {share}")
    print(f"cases {cases} wrong {len(wrong)}", *wrong[:5])
    dist.destroy_process_group()


main()
