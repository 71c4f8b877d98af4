"""All-reduces and steps of DDP on CUDA tensors, on fairring and on nccl over sockets, in the same emulated machines.

Machines share the GPUs that are there (tests/gpu_machines.py): ranks on one GPU take turns on it, so this shows how the
two compare there, and what the host pays, not what a cluster would give. Run by `make bench-gpu`, which has tests/ on
Python's path.

Times are of the slowest rank. ms: median of so many rounds, from the call to the end of the result on the device.
host_us: what the call itself takes the host. wait_us: what wait() takes it. In DDP: step_ms, and gap_ms from the last
gradient to the end of backward, on the device, which is what an optimizer would wait.

sparse: the gradient of an embedding of which each rank touches some rows, some of them twice. On fairring it is reduced
as it is; NCCL reduces no sparse tensors, so on nccl it is the dense one, of as many rows of the table as memory allows
(table_rows), made before the clock starts. A dense table takes as much longer as it has more rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emulated_devices
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import RankError
from torch import nn

SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]  # bytes
ROUNDS, WARM_UP = 20, 5
BACKENDS = ["fairring", "nccl"]
IN_FLIGHT, BUCKET = 8, 25 << 20
TABLE_ROWS, TABLE_WIDTH, TOUCHED = 5_000_000, 2048, 50_000
SPARSE_ROUNDS = 5
WIDTH = 2048  # of DDP's layers: 200 MB of gradients
if emulated_devices.ARE_HERE:  # they have no speed: this shows that the program runs
    SIZES, ROUNDS, WARM_UP, SPARSE_ROUNDS = [4 << 10, 1 << 20], 1, 0, 1
    BUCKET, TABLE_ROWS, TOUCHED, WIDTH = 1 << 20, 5000, 50, 64
MOST_DENSE = 4 << 30  # bytes: through sockets more would take minutes
PATIENCE_SECONDS = 900  # with one row: four processes may take turns on one GPU


def all_reduce(_rank: int, size: int, in_flight: int) -> dict[str, float]:
    tensors = [torch.ones(size // 4, device="cuda") for _ in range(in_flight)]
    whole, calls, waits = [], [], []
    for _ in range(WARM_UP + ROUNDS):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        called = time.perf_counter()
        for work in works:
            work.wait()
        waited = time.perf_counter()
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - begin)
        calls.append((called - begin) / in_flight)
        waits.append((waited - called) / in_flight)
    return {
        "ms": statistics.median(whole[WARM_UP:]) * 1e3,
        "host_us": statistics.median(calls[WARM_UP:]) * 1e6,
        "wait_us": statistics.median(waits[WARM_UP:]) * 1e6,
    }


def touched_rows(rank: int) -> torch.Tensor:
    numbers = torch.Generator(device="cuda").manual_seed(rank)
    indices = torch.randint(TABLE_ROWS, (1, TOUCHED), generator=numbers, device="cuda")
    values = torch.ones(TOUCHED, TABLE_WIDTH, device="cuda")
    shape = (TABLE_ROWS, TABLE_WIDTH)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)


def table_rows() -> int:
    """The number of rows of a dense tensor that every rank on this GPU can hold."""
    sharing = -(-dist.get_world_size() // torch.cuda.device_count())
    room = min(torch.cuda.mem_get_info()[0] // (2 * sharing), MOST_DENSE)
    return min(TABLE_ROWS, room // (4 * TABLE_WIDTH))


def sparse(rank: int, backend: str) -> dict[str, float]:
    rows = torch.tensor([table_rows()], device="cuda")
    dist.all_reduce(rows, op=dist.ReduceOp.MIN)  # memory differs, and ranks take theirs while others look
    count = TABLE_ROWS if backend == "fairring" else int(rows)
    dense = None if backend == "fairring" else torch.ones(count, TABLE_WIDTH, device="cuda")
    times = []
    for _ in range(1 + SPARSE_ROUNDS):
        tensor = touched_rows(rank) if dense is None else dense
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return {"table_rows": count, "width": TABLE_WIDTH, "touched": TOUCHED, "ms": statistics.median(times[1:]) * 1e3}


def ddp(_rank: int) -> dict[str, float]:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(12)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    last_gradient = torch.cuda.Event(enable_timing=True)
    layers[0].weight.register_post_accumulate_grad_hook(lambda _: last_gradient.record())
    inputs = torch.randn(256, WIDTH, device="cuda")
    steps, gaps = [], []
    for _ in range(WARM_UP + ROUNDS):
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        model(inputs).square().mean().backward()
        end.record()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - begin)
        gaps.append(last_gradient.elapsed_time(end))
    return {"step_ms": statistics.median(steps[WARM_UP:]) * 1e3, "gap_ms": statistics.median(gaps[WARM_UP:])}


def slowest(results: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(result[name] for result in results) for name in results[0]}


def measure(layout: str, backend: str) -> Iterator[dict[str, Any]]:
    """Row by row. Raises RankError where a rank fails, or is late."""
    ranks = start(layout, backend, PATIENCE_SECONDS)
    where = {"layout": layout, "backend": backend}
    try:
        for size, in_flight in [*((size, 1) for size in SIZES), (BUCKET, IN_FLIGHT)]:
            result = slowest(ranks.run(all_reduce, size, in_flight))
            yield {**where, "what": "all-reduce", "bytes": size, "in_flight": in_flight, **result}
        yield {**where, "what": "sparse", **slowest(ranks.run(sparse, backend))}
        yield {**where, "what": "ddp", **slowest(ranks.run(ddp))}
    finally:
        ranks.kill()


def line(row: dict[str, Any]) -> str:
    keys = [key for key in row if key not in ("layout", "backend", "what")]
    values = [f"{key}={row[key]:.2f}" if isinstance(row[key], float) else f"{key}={row[key]}" for key in keys]
    return f"{row['layout']} {row['backend']:<9}{row['what']:<11}{' '.join(values)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", default="2x1,3x1,4x1", help="machines x ranks, with commas")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="with commas")
    parser.add_argument("--json", type=Path, help="file to write all rows to")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no CUDA device here")
        return
    print(
        f"# {torch.cuda.get_device_name()} x {torch.cuda.device_count()}, torch {torch.__version__}, median of {ROUNDS}"
    )
    rows, failures = [], 0
    for layout, backend in itertools.product(options.layouts.split(","), options.backends.split(",")):
        try:
            for row in measure(layout, backend):
                print(line(row), flush=True)
                rows.append(row)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))
        except RankError as error:
            failures += 1
            print(f"{layout} {backend:<9}failed, without its other rows: {error}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
