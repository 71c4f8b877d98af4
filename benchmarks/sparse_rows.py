"""Merging the rows of a sparse tensor that have the same index, as a rank does before it sends any.

    python benchmarks/sparse_rows.py --rows 200000 --width 256 --entries 50000 --json rows.json

The entries are those that a batch makes of an embedding: uniform, or by Zipf's law, where few indices have most.
Contenders, in turns: Fairring's own (`fairring._core.merged_rows`); torch's `coalesce`; `unique`: torch.unique with the
inverse, then index_add_; `search`: torch.unique, each index found in it by binary search, then index_add_, as a
sparse all-reduce by dense buffers does with the indices of all ranks. Their sums are compared with those of float64
before any is timed.

ms: median of so many rounds. cpu_ms: of the processor time that this program takes meanwhile, in which other programs
count little. match_ms: of the time without the sums, where the two are apart. GB/s:
the bytes of the entries' values by the median; of_copy: the ratio to copying these, measured in the same rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairring import _core

INDICES = ("uniform", "zipf")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WARM_UP = 2


def draw(rows: int, entries: int, distribution: str) -> Tensor:
    """Indices, some more than once. zipf: index i is i+1 times rarer than index 0."""
    numbers = torch.Generator().manual_seed(1)
    if distribution == "uniform":
        return torch.randint(rows, (entries,), generator=numbers)
    weights = (1.0 / torch.arange(1, rows + 1, dtype=torch.float64)).cumsum(0)
    places = torch.rand(entries, generator=numbers, dtype=torch.float64) * weights[-1]
    return torch.searchsorted(weights, places).clamp(max=rows - 1)


def summed(values: Tensor, inverse: Tensor, count: int) -> Tensor:
    return values.new_zeros(count, *values.shape[1:]).index_add_(0, inverse, values)


def by_unique(tensor: Tensor) -> tuple[Tensor, Tensor]:
    indices, values = tensor._indices()[0], tensor._values()
    kept, inverse = torch.unique(indices, return_inverse=True)
    return kept, summed(values, inverse, len(kept))


def by_search(tensor: Tensor) -> tuple[Tensor, Tensor]:
    indices, values = tensor._indices()[0], tensor._values()
    kept = torch.unique(indices)
    return kept, summed(values, torch.searchsorted(kept, indices), len(kept))


def parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    return tensor._indices()[0], tensor._values()


CONTENDERS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "fairring": lambda tensor: parts(_core.merged_rows(tensor)),
    "coalesce": lambda tensor: parts(tensor.coalesce()),
    "unique": by_unique,
    "search": by_search,
}
# Only the part of the last two that finds the indices.
MATCHING: dict[str, Callable[[Tensor], Any]] = {
    "unique": lambda tensor: torch.unique(tensor._indices()[0], return_inverse=True),
    "search": lambda tensor: torch.searchsorted(torch.unique(tensor._indices()[0]), tensor._indices()[0]),
}


def wrong(tensor: Tensor, contender: str) -> int:
    """How many sums are further from those of float64 than rounding can bring them."""
    indices, values = parts(tensor)
    kept, inverse = torch.unique(indices, return_inverse=True)
    got_indices, got = CONTENDERS[contender](tensor)
    if not torch.equal(got_indices, kept):
        return got.numel()
    bad = 0
    most = int(torch.bincount(inverse).max())
    tolerance = most * torch.finfo(values.dtype).eps
    for columns in torch.arange(values.shape[1], device=values.device).split(64):  # little memory
        own = values[:, columns].double()
        size = summed(own.abs(), inverse, len(kept))
        bad += int(((got[:, columns].double() - summed(own, inverse, len(kept))).abs() > tolerance * size).sum())
    return bad


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    kept = work()
    end, end_cpu = time.perf_counter(), time.process_time()
    del kept  # giving it back is nobody's here
    return end - begin, end_cpu - begin_cpu


def measure(options: argparse.Namespace, distribution: str, dtype: str) -> list[dict[str, Any]]:
    indices = draw(options.rows, options.entries, distribution)
    values = torch.randn(options.entries, options.width, dtype=DTYPES[dtype])
    tensor = torch.sparse_coo_tensor(
        indices.unsqueeze(0), values, (options.rows, options.width), check_invariants=False
    )
    errors = {contender: wrong(tensor, contender) for contender in CONTENDERS}
    target = torch.empty_like(values)
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    processor: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    matching: dict[str, list[float]] = {name: [] for name in MATCHING}
    copies = []
    for turn in range(WARM_UP + options.rounds):
        copied = seconds(lambda: target.copy_(values))
        taken = {name: seconds(lambda act=act: act(tensor)) for name, act in CONTENDERS.items()}
        matched = {name: seconds(lambda act=act: act(tensor)) for name, act in MATCHING.items()}
        if turn < WARM_UP:
            continue
        copies.append(copied[0])
        for name, (clock, own) in taken.items():
            times[name].append(clock)
            processor[name].append(own)
        for name, (clock, _) in matched.items():
            matching[name].append(clock)
    size = values.numel() * values.element_size()
    shape = {"rows": options.rows, "width": options.width, "entries": options.entries}
    return [
        {
            **shape,
            "indices": distribution,
            "dtype": dtype,
            "unique": len(torch.unique(indices)),
            "contender": name,
            "ms": statistics.median(times[name]) * 1e3,
            "cpu_ms": statistics.median(processor[name]) * 1e3,
            "match_ms": statistics.median(matching[name]) * 1e3 if name in matching else None,
            "GB/s": size / statistics.median(times[name]) / 1e9,
            "of_copy": statistics.median(copies) / statistics.median(times[name]),
            "wrong": errors[name],
        }
        for name in CONTENDERS
    ]


def line(row: dict[str, Any]) -> str:
    match = "" if row["match_ms"] is None else f"{row['match_ms']:.2f}"
    return (
        f"{row['indices']:<8} {row['dtype']:<5} {row['unique']:>8} {row['contender']:<9} {row['ms']:>9.2f}"
        f" {row['cpu_ms']:>9.2f} {match:>9}"
        f" {row['GB/s']:>7.2f} {row['of_copy']:>8.3f} {row['wrong']:>6}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="of the table")
    parser.add_argument("--width", type=int, default=256, help="elements of a row")
    parser.add_argument("--entries", type=int, default=50_000, help="of the gradient")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="file to write all rows to")
    options = parser.parse_args()
    print(
        f"# {options.entries} entries of {options.width} elements, {options.rows} rows,"
        f" {torch.get_num_threads()} threads, torch {torch.__version__}, median of {options.rounds}"
    )
    print("indices  dtype   unique contender        ms    cpu_ms  match_ms    GB/s  of_copy  wrong")
    rows = []
    for distribution, dtype in itertools.product(INDICES, DTYPES):
        for row in measure(options, distribution, dtype):
            print(line(row), flush=True)
            rows.append(row)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
