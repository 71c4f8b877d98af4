"""Draws what `fairring bench` has written: `fairring bench plot 2x2.json 2x4.json --out plots`

    latency        time by size, with the median deviation
    bandwidth      algorithm bandwidth by size, beside the limit that the measured link sets
    in-flight      bandwidth by calls in flight, of results with several --in-flight
    scaling        bandwidth by machines, of results with several layouts
    total-memory   bandwidth by slices in flight, of --sweep total-memory
    ddp            a training step and the communication part of it

Whichever the results allow. Needs matplotlib: pip install 'torch-fairring[plot]'
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairring.bench import results
from fairring.extra import MissingPackageError, require

HELP = "figures of the files that the other benchmarks write"
FORMATS = ("svg", "png", "pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="written by --json")
    add("--out", type=Path, default=Path(), metavar="FOLDER", help="for the figures (default: the present one)")
    add("--format", choices=FORMATS, default=FORMATS[0], help=f"default: {FORMATS[0]}")


def run(arguments: argparse.Namespace) -> int:
    try:
        found = [results.read(file) for file in arguments.files]
    except results.ResultsError as error:
        print(f"fairring bench plot: {error}", file=sys.stderr)
        return 1
    try:
        require("fairring bench plot", ("matplotlib",), "plot")
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        return 1
    from fairring.bench.figures import draw

    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        drawn = draw(found, arguments.out, arguments.format)
    except (KeyError, TypeError, AttributeError) as error:
        print(
            f"fairring bench plot: a file lacks something of a result: {type(error).__name__}: {error}", file=sys.stderr
        )
        return 1
    except OSError as error:
        print(f"fairring bench plot: --out {arguments.out} can't be written ({error.strerror})", file=sys.stderr)
        return 1
    if not drawn:
        print("fairring bench plot: these results hold nothing that can be drawn", file=sys.stderr)
        return 1
    for file in drawn:
        print(file)
    return 0
