"""Measures all-reduces of many small tensors: coalesced by torch, listed in one call, and as a loop of async ones.

    fairring bench many --machines 2 --ranks 4 --rate 1gbit --json many.json
    fairring bench many --machines 2 --ranks 2 --rate 1gbit --tensors 300 --sizes 1KiB,100KiB
    torchrun --nnodes 2 ... -m fairring bench many

The tensors take their dtypes in turn, and sizes between two bounds, alike on all ranks. torch lists tensors of one
dtype alone, and Gloo coalesces no others, so there it is as many bytes of the first one. Exit code 1 if any element of
any result was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fairring.bench import launch
from fairring.bench.collective import ITEM_BYTES
from fairring.bench.contestants import FLOOR, STOCK, Contestant, parse_contestants
from fairring.bench.launch import add_options, listed, refuse_less
from fairring.bench.sizes import size_list

HELP = "many small tensors: coalesced, in one call, and as a loop of asynchronous calls"
WAYS = ("coalesced", "listed", "loop")
LARGEST_ITEM = max(ITEM_BYTES.values())
GOLDEN = 0.6180339887498949  # its multiples modulo 1 fill the unit interval evenly, for any number of them


@dataclass(frozen=True)
class Options:
    contestants: list[Contestant]
    dtypes: list[str]
    sizes: list[int]  # bytes of each tensor
    ways: list[str]
    iterations: int
    warm_up: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tensors", type=int, default=1000, metavar="N", help="default: %(default)s")
    add(
        "--sizes", default="4KiB", metavar="SIZE[,SIZE]", help="of all, or the smallest and the largest (default: 4KiB)"
    )
    add("--dtypes", default="float32,bfloat16,int64", metavar="LIST", help="in turn (default: %(default)s)")
    add("--ways", default=",".join(WAYS), metavar="LIST", help="default: %(default)s")
    add_options(parser, f"{STOCK},fairring,{FLOOR}", rounds=(20, 3))


def read(arguments: argparse.Namespace) -> Options:
    """Raises ValueError for options that make no sense."""
    refuse_less(arguments, tensors=1, iterations=1, warmup=0)
    bounds = size_list(arguments.sizes, LARGEST_ITEM)
    if len(bounds) > 2 or bounds != sorted(bounds):
        raise ValueError(f"--sizes {arguments.sizes}: one size, or the smallest and the largest")
    return Options(
        contestants=parse_contestants(arguments.backends),
        dtypes=listed(arguments, "dtypes", tuple(ITEM_BYTES)),
        sizes=spread(bounds[0], bounds[-1], arguments.tensors),
        ways=listed(arguments, "ways", WAYS),
        iterations=arguments.iterations,
        warm_up=arguments.warmup,
    )


def spread(smallest: int, largest: int, count: int) -> list[int]:
    """Sizes in whole elements of any dtype, evenly over the logarithm between the two, in no particular order."""
    ratio = largest / smallest
    exact = [smallest * ratio ** (place * GOLDEN % 1) for place in range(count)]
    return [max(LARGEST_ITEM, int(size) // LARGEST_ITEM * LARGEST_ITEM) for size in exact]


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, read, "fairring.bench.many_calls")
