"""Measures all-reduces of sparse gradients beside dense ones of the same table, on gloo and on fairring in turns.

    fairring bench sparse --machines 2 --ranks 4 --rate 1gbit --json sparse.json
    fairring bench sparse --machines 2 --ranks 2 --rows 50000 --densities 0.1%,1% --indices zipf
    torchrun --nnodes 2 ... -m fairring bench sparse

Each rank touches as many different rows of a table as the density says, drawn uniformly or by Zipf's law. Every element
of every result is compared. Beside the counted bytes stand those that the best form needs for these rows. What would
not fit into memory is left out, with the reason. Exit code 1 if any element was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fairring.bench import launch
from fairring.bench.contestants import FLOOR, STOCK, Contestant, parse_contestants
from fairring.bench.launch import add_options, listed, refuse_less

HELP = "sparse gradients: time and bytes by density, beside dense ones"
DTYPES = ("float32", "float64", "float16", "bfloat16")
SPARSE, DENSE = "sparse", "dense"
FORMS = (SPARSE, DENSE)
INDICES = ("uniform", "zipf")


@dataclass(frozen=True)
class Options:
    contestants: list[Contestant]
    forms: list[str]
    rows: int
    width: int
    dtype: str
    courses: list[tuple[str, float]]  # how the rows are drawn, and their share of the table
    warm_up: int
    iterations: int


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
    add_options(parser, f"{STOCK},fairring", rounds=(10, 1))


def read(arguments: argparse.Namespace) -> Options:
    """Raises ValueError for options that make no sense."""
    refuse_less(arguments, rows=1, width=1, iterations=1, warmup=0)
    forms, indices = listed(arguments, "forms", FORMS), listed(arguments, "indices", INDICES)
    contestants = parse_contestants(arguments.backends)
    if any(one.backend == FLOOR for one in contestants):
        raise ValueError(f"--backends {arguments.backends}: {FLOOR} sums nothing that could be compared")
    return Options(
        contestants=contestants,
        forms=forms,
        rows=arguments.rows,
        width=arguments.width,
        dtype=arguments.dtype,
        courses=[(drawn, density(text)) for drawn in indices for text in arguments.densities.split(",")],
        warm_up=arguments.warmup,
        iterations=arguments.iterations,
    )


def density(text: str) -> float:
    """A share, from "0.1%" or "0.001"."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"--densities: {text!r} is no share of the table; write for instance 0.1%,50%")
    return share


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, read, "fairring.bench.sparse_calls")
