"""Measures collectives, DDP steps and the making of groups, on gloo and on fairring in turns, and plots the results.

fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit --json out.json    in an emulated cluster
torchrun ... -m fairring bench all-reduce --json out.json                        on a real one, on every machine
fairring bench plot out.json
"""

from __future__ import annotations

import argparse

from fairring.bench.collectives import COLLECTIVES
from fairring.subcommands import add_subcommands

HELP = "measure collectives, DDP, many or sparse tensors and init beside other backends; plot the results"

BENCHMARKS = {
    **dict.fromkeys(COLLECTIVES, "fairring.bench.collective"),
    "ddp": "fairring.bench.ddp",
    "init": "fairring.bench.init_group",
    "many": "fairring.bench.many",
    "plot": "fairring.bench.plot",
    "sparse": "fairring.bench.sparse",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, "BENCHMARK", BENCHMARKS)
