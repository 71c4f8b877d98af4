"""Measures a collective on gloo, on fairring and on a backend that does nothing, in turns, beside the network's speed.

    fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit -b 4 -e 64MiB -f 8 --json out.json
    fairring bench all-reduce --machines 2 --ranks 2 --sizes 4KiB --in-flight 1000 --coalesced
    torchrun --nnodes 2 ... -m fairring bench all-gather --sizes 64KiB,25MiB

A size is that of the tensor that stands for all ranks, as nccl-tests have it, in bytes or with a unit: KiB, MiB, GiB
(powers of 1024), KB, MB, GB. The tables go to stdout, progress to stderr. docs/bench.md says what the columns mean.
Exit code 1 if any element of any result was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fairring.bench import launch
from fairring.bench.collectives import ALL_REDUCE, BARRIER, COLLECTIVES, SEND_RECV
from fairring.bench.contestants import FLOOR
from fairring.bench.sizes import size_list, size_range

if TYPE_CHECKING:
    from fairring.bench.job import Job
    from fairring.bench.measure import Work

HELP = "by size: time, bandwidth, share of the network's limit, cost"
ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
OPS = ("sum", "avg", "min", "max")
# size up to which it holds, iterations timed, of warm-up: large calls take long and vary little
ITERATIONS = ((1 << 20, 50, 5), (32 << 20, 20, 2), (1 << 62, 5, 1))
# One small call takes less than ranks need to wake up beside each other, so its time would say when they did.
SMALL_BYTES, SMALL_IN_A_ROW = 64 << 10, 20

run = launch.run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-b", "--begin", default="4", metavar="SIZE", help="smallest (default: 4)")
    add("-e", "--end", default="64MiB", metavar="SIZE", help="largest (default: 64MiB)")
    add("-f", "--factor", type=float, default=8, metavar="X", help="from one size to the next (default: 8)")
    add("--sizes", metavar="LIST", help="these sizes instead: 4KiB,25MiB")
    add("--dtype", choices=ITEM_BYTES, default="float32", help="default: float32")
    add("--op", choices=OPS, default="sum", help="of what reduces (default: sum)")
    add("--in-flight", type=int, default=1, metavar="K", help="calls at once; times are of all K (default: 1)")
    add("--coalesced", action="store_true", help="these in one coalescing manager, for all-reduce")
    text = f"goes timed together, one after the other (default: {SMALL_IN_A_ROW} up to 64 KiB, else 1)"
    add("--in-a-row", type=int, metavar="N", help=text)
    add("--iterations", type=int, metavar="N", help="timed ones (default: 50 up to 1 MiB, 20 up to 32 MiB, else 5)")
    add("--warmup", type=int, metavar="N", help="untimed ones before (default: 5, 2, 1)")
    add("--check", action=argparse.BooleanOptionalAction, default=True, help="every element of every result (default)")
    launch.add_options(parser, f"stock,fairring,{FLOOR}", rounds=None)


def read(arguments: argparse.Namespace) -> None:
    """Adds sizes_bytes."""
    launch.refuse_less(arguments, in_flight=1, in_a_row=1)
    name, op = arguments.subcommand, arguments.op
    if arguments.in_flight != 1 and name == SEND_RECV:
        raise ValueError(f"--in-flight {arguments.in_flight}: {SEND_RECV} is one message at a time")
    if arguments.coalesced and name != ALL_REDUCE:
        raise ValueError(f"--coalesced: only for {ALL_REDUCE}")
    if arguments.sizes and name == BARRIER:
        raise ValueError(f"--sizes {arguments.sizes}: a {BARRIER} has no size")
    if op != OPS[0] and not COLLECTIVES[name].reduces:
        raise ValueError(f"--op {op}: {name} reduces nothing")
    if op == "avg" and arguments.dtype.startswith("int"):
        raise ValueError(f"--op avg of {arguments.dtype} is not defined on gloo and fairring; take --op sum or a float")
    item_bytes = ITEM_BYTES[arguments.dtype]
    if arguments.sizes:
        arguments.sizes_bytes = size_list(arguments.sizes, item_bytes)
    else:
        arguments.sizes_bytes = size_range(arguments.begin, arguments.end, arguments.factor, item_bytes)


def work(arguments: argparse.Namespace, job: Job) -> Work:
    """In a rank: it needs torch."""
    from fairring.bench import calls

    return calls.work(arguments, job)


def rounds(arguments: argparse.Namespace, size_bytes: int) -> dict[str, int]:
    """A heat's rounds, timed and of warm-up, and the goes that are timed together."""
    timed, warm_up = next((timed, warm) for limit, timed, warm in ITERATIONS if size_bytes <= limit)
    return {
        "rounds": arguments.iterations or timed,
        "warm_up": warm_up if arguments.warmup is None else arguments.warmup,
        "in_a_row": arguments.in_a_row or (SMALL_IN_A_ROW if size_bytes <= SMALL_BYTES else 1),
    }
