"""Measures steps of data-parallel training: what a step takes with gloo and with fairring, and what without either.

    fairring bench ddp --machines 2 --ranks 2 --rate 1gbit --json ddp.json
    torchrun --nnodes 2 ... -m fairring bench ddp

A transformer on random bytes, by default of the demo's shape, in DistributedDataParallel. Each round trains one step on
every backend and one in which DDP exchanges nothing; the communication part of a step is what it takes longer than
that. Exit code 1 if something failed, or if ranks end with different parameters.
"""

from __future__ import annotations

import argparse

from fairring.bench import launch
from fairring.bench.contestants import STOCK, Contestant, parse_contestants
from fairring.bench.launch import add_options, refuse_less

HELP = "steps of data-parallel training, and the communication part of them"
BACKENDS = f"{STOCK},fairring"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--width", type=int, default=384, help="of the model; it needs width² memory (default: %(default)s)")
    add("--layers", type=int, default=6, help="of the model (default: %(default)s)")
    add("--batch", type=int, default=2, help="sequences of 64 bytes per rank and step (default: %(default)s)")
    add("--bucket-mib", type=float, default=25, metavar="N", help="DDP's bucket_cap_mb (default: %(default)s)")
    add_options(parser, BACKENDS, rounds=(20, 3))


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, _read, "fairring.bench.training")


def _read(arguments: argparse.Namespace) -> list[Contestant]:
    refuse_less(arguments, iterations=1, warmup=0, layers=1, batch=1, width=64)
    if not arguments.bucket_mib > 0:
        raise ValueError(f"--bucket-mib {arguments.bucket_mib:g}: more than nothing")
    if arguments.width % 64:
        raise ValueError(f"--width {arguments.width}: a multiple of 64, the width of an attention head")
    contestants = parse_contestants(arguments.backends)
    if not all(one.sums for one in contestants):
        raise ValueError(f"--backends {arguments.backends}: the step that exchanges nothing is measured anyway")
    return contestants
