"""Measures all-reduces of sparse gradients beside dense ones of the same table, on gloo and on fairring in turns.

    python benchmarks/sparse_gradients.py --machines 2 --ranks 4 --rate 1gbit --json sparse.json
    python benchmarks/sparse_gradients.py --machines 2 --ranks 2 --rows 50000 --densities 0.1%,1% --indices zipf
    torchrun --nnodes 2 ... benchmarks/sparse_gradients.py

Each rank touches as many different rows of a table as the density says, drawn uniformly or by Zipf's law. Every element
of every result is compared. The counted bytes are divided by those that the best form needs for these rows. What would
not fit into memory is left out, with the reason. Exit code 1 if any element was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from sparse_rows import Table, Touched, bounds, touched

from fairring.bench import launch
from fairring.bench.job import Job
from fairring.bench.measure import Work
from fairring.bench.memory import Footprint
from fairring.bench.race import Go, Heat, Racer, Runner
from fairring.bench.rows import Amounts

DTYPES = ("float32", "float64", "float16", "bfloat16")
SPARSE, DENSE = "sparse", "dense"
FORMS = (SPARSE, DENSE)
INDICES = ("uniform", "zipf")
SPARE = 0.8  # at most this share of a host's free memory may be needed
STAGING_BYTES = 64 << 20  # about FAIRRING_TOTAL_MEMORY's default and the additional staging of small calls


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rows", type=int, default=200_000, metavar="N", help="of the table (default: %(default)s)")
    add("--width", type=int, default=256, metavar="N", help="elements of a row (default: %(default)s)")
    add("--dtype", choices=DTYPES, default="float32", help="default: %(default)s")
    densities = "0.1%,1%,5%,20%,50%"
    text = "share of the table that each rank touches (default: "
    add("--densities", default=densities, metavar="LIST", help=text + densities.replace("%", "%%") + ")")
    add("--indices", default=",".join(INDICES), metavar="LIST", help="how rows are drawn (default: %(default)s)")
    add("--forms", default=",".join(FORMS), metavar="LIST", help="of the tensors (default: %(default)s)")
    launch.add_options(parser, "stock,fairring", rounds=(10, 1))


def read(arguments: argparse.Namespace) -> None:
    """Adds shares, of the table, and reads the lists."""
    launch.refuse_less(arguments, rows=1, width=1)
    launch.refuse_floor(arguments)
    arguments.forms = launch.listed(arguments, "forms", FORMS)
    arguments.indices = launch.listed(arguments, "indices", INDICES)
    arguments.shares = [density(text) for text in arguments.densities.split(",")]


def density(text: str) -> float:
    """A share, from "0.1%" or "0.001"."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"--densities: {text!r} is no share of the table; write for instance 0.1%,50%")
    return share


def work(arguments: Namespace, job: Job) -> Work:
    facts = {"rows": arguments.rows, "width": arguments.width, "dtype": arguments.dtype, "left_out": []}
    title = f"table of {arguments.rows} x {arguments.width}, {arguments.dtype}"
    return Work(title, partial(heats, arguments, job, facts["left_out"]), key="rows of a rank", facts=facts)


def heats(arguments: Namespace, job: Job, left_out: list[str], racers: Sequence[Racer]) -> list[Heat]:
    """left_out: gets the entrants whose memory would not suffice, with the reason."""
    found = []
    for drawn in arguments.indices:
        for share in arguments.shares:
            name, rows = f"{share * 100:g}% {drawn}", draw(arguments, job, drawn, share)
            entrants = []
            for form, racer in ((form, racer) for form in arguments.forms for racer in racers):
                why = obstacle(needed(racer, form, rows), job)
                if form == SPARSE and racer.contestant.backend == "nccl":
                    why = "is none that NCCL reduces"
                if why:
                    left_out.append(f"{name}: {racer.contestant.name}, {form} {why}")
                else:
                    entrants.append((form, racer))
            table = Table(rows.rows, rows.width * rows.dtype.itemsize, len(rows.union))
            own = {"indices": drawn, "density": share, "touched": len(rows.of_rank[0]), "union": table.result}
            moved = Amounts(least=bounds(rows.brought(job.places), table), own=own)
            start = partial(runners, arguments, job, drawn, share, entrants)
            if entrants:
                found.append(Heat(name, start, arguments.warmup, arguments.iterations, amounts=moved))
    return found


def draw(arguments: Namespace, job: Job, drawn: str, share: float) -> Touched:
    count = max(1, round(share * arguments.rows))
    of_rank = [touched(arguments.rows, count, drawn, rank) for rank in range(job.place.world)]
    return Touched(arguments.rows, arguments.width, getattr(torch, arguments.dtype), of_rank)


def needed(racer: Racer, form: str, rows: Touched) -> int:
    """About the bytes on one rank, besides the memory that all entrants' goes share."""
    row_bytes = rows.width * rows.dtype.itemsize
    most, result = max(map(len, rows.of_rank)), len(rows.union)
    if form == DENSE:
        return rows.rows * row_bytes + STAGING_BYTES
    if racer.contestant.backend == "gloo":  # gathers every rank's rows, and adds them up one rank after another
        return (3 * len(rows.of_rank) * most + 2 * result) * row_bytes
    return 2 * (most + result) * row_bytes + STAGING_BYTES


def obstacle(size_bytes: int, job: Job) -> str:
    """The reason why so much memory of each rank would not suffice; empty: it does. The same answer on all ranks."""
    free = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # one for the machines of an emulated cluster
    hosts = [(boot, int(free[1]) * 1024 if free else 0)] * job.place.world
    dist.all_gather_object(hosts, hosts[0])
    for boot in dict(hosts):
        of_host = [free_bytes for other, free_bytes in hosts if other == boot]
        whole = len(of_host) * size_bytes
        if whole > SPARE * min(of_host):
            gib = 1 << 30
            return f"needs some {whole / gib:.1f} GiB on a host that has {min(of_host) / gib:.1f} GiB free"
    return ""


def runners(
    arguments: Namespace, job: Job, drawn: str, share: float, entrants: Sequence[tuple[str, Racer]]
) -> list[Runner]:
    """They share the dense table."""
    rows, rank = draw(arguments, job, drawn, share), job.place.rank
    dense = torch.zeros(rows.rows if DENSE in dict(entrants) else 0, rows.width, dtype=rows.dtype)

    def prepare(form: str, racer: Racer, turn: int) -> Go:
        if form == DENSE:
            rows.fill(dense, rank, turn)
        tensor = dense if form == DENSE else rows.sparse(rank, turn)
        return Go(partial(dist.all_reduce, tensor, group=racer.group), partial(rows.wrong, tensor, turn))

    return [Runner(racer, partial(prepare, form, racer), form, Footprint()) for form, racer in entrants]


if __name__ == "__main__":
    sys.exit(launch.main(sys.modules[__name__]))
