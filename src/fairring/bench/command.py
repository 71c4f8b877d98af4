"""Measures collectives on gloo and on fairring in turns.

fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit --json out.json    in an emulated cluster
torchrun ... -m fairring bench all-reduce --json out.json                        on a real one, on every machine
"""

from __future__ import annotations

import argparse

from fairring.bench.collectives import COLLECTIVES
from fairring.subcommands import add_subcommands

HELP = "measure collectives beside other backends"

BENCHMARKS = dict.fromkeys(COLLECTIVES, "fairring.bench.collective")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, "BENCHMARK", BENCHMARKS)
