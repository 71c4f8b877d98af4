"""Measures all-reduces, DDP steps and the making of groups, on gloo and on fairring in turns, and plots the results.

fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit --json out.json    in an emulated cluster
torchrun ... -m fairring bench all-reduce --json out.json                        on a real one, on every machine
fairring bench plot out.json
"""

from __future__ import annotations

import argparse
from importlib import import_module

HELP = "measure all-reduce, DDP and init beside other backends; plot the results"

# As the table of cli.py: a module each, which imports torch in run() alone.
BENCHMARKS = {
    "all-reduce": "fairring.bench.all_reduce",
    "ddp": "fairring.bench.ddp",
    "init": "fairring.bench.init_group",
    "plot": "fairring.bench.plot",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    benchmarks = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK", required=True)
    for name, module_name in BENCHMARKS.items():
        module = import_module(module_name)
        benchmark = benchmarks.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        benchmark.set_defaults(parser=benchmark)
        module.add_arguments(benchmark)


def run(arguments: argparse.Namespace) -> int:
    return int(import_module(BENCHMARKS[arguments.benchmark]).run(arguments))
