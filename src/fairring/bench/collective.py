"""Measures a collective on gloo, on fairring and on a backend that does nothing, in turns, beside the network's speed.

    fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit -b 4 -e 64MiB -f 8 --json out.json
    torchrun --nnodes 2 ... -m fairring bench all-gather --sizes 64KiB,25MiB

A size is that of the tensor that stands for all ranks, as nccl-tests have it, in bytes or with a unit: KiB, MiB, GiB
(powers of 1024), KB, MB, GB. The tables go to stdout, progress to stderr. docs/bench.md says what the columns mean.
Exit code 1 if any element of any result was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from fairring.bench import launch
from fairring.bench.collectives import BARRIER, COLLECTIVES, SEND_RECV
from fairring.bench.contestants import FLOOR, STOCK, Contestant, parse_contestants
from fairring.bench.launch import add_options, refuse_less
from fairring.bench.sizes import size_list, size_range

HELP = "by size: time, bandwidth, share of the network's limit, cost"
BACKENDS = f"{STOCK},fairring,{FLOOR}"
ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
OPS = ("sum", "avg", "min", "max")
# size up to which it holds, iterations timed, of warm-up: large calls take long and vary little
ITERATIONS = ((1 << 20, 50, 5), (32 << 20, 20, 2), (1 << 62, 5, 1))
# One small call takes less than ranks need to wake up beside each other, so its time would say when they did.
SMALL_BYTES, SMALL_IN_A_ROW = 64 << 10, 20


@dataclass(frozen=True)
class Options:
    collective: str
    contestants: list[Contestant]
    sizes: list[int]  # bytes
    dtype: str
    op: str
    in_flight: int
    in_a_row: int | None  # None: by size
    check: bool
    iterations: int | None  # None: by size, as is warm_up
    warm_up: int | None

    def rounds(self, size_bytes: int) -> tuple[int, int]:
        """Timed, and of warm-up."""
        timed, warm = next((timed, warm) for limit, timed, warm in ITERATIONS if size_bytes <= limit)
        return self.iterations or timed, warm if self.warm_up is None else self.warm_up

    def goes_in_a_row(self, size_bytes: int) -> int:
        return self.in_a_row or (SMALL_IN_A_ROW if size_bytes <= SMALL_BYTES else 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-b", "--begin", default="4", metavar="SIZE", help="smallest (default: 4)")
    add("-e", "--end", default="64MiB", metavar="SIZE", help="largest (default: 64MiB)")
    add("-f", "--factor", type=float, default=8, metavar="X", help="from one size to the next (default: 8)")
    add("--sizes", metavar="LIST", help="these sizes instead: 4KiB,25MiB")
    add("--dtype", choices=ITEM_BYTES, default="float32", help="default: float32")
    add("--op", choices=OPS, default="sum", help="of what reduces (default: sum)")
    add("--in-flight", type=int, default=1, metavar="K", help="calls at once; times are of all K (default: 1)")
    text = f"goes timed together, one after the other (default: {SMALL_IN_A_ROW} up to 64 KiB, else 1)"
    add("--in-a-row", type=int, metavar="N", help=text)
    add("--iterations", type=int, metavar="N", help="timed ones (default: 50 up to 1 MiB, 20 up to 32 MiB, else 5)")
    add("--warmup", type=int, metavar="N", help="untimed ones before (default: 5, 2, 1)")
    add("--check", action=argparse.BooleanOptionalAction, default=True, help="every element of every result (default)")
    add_options(parser, BACKENDS, rounds=None)


def read(arguments: argparse.Namespace) -> Options:
    """Raises ValueError for what makes no sense."""
    refuse_less(arguments, in_flight=1, in_a_row=1, iterations=1, warmup=0)
    _refuse_unknown_here(arguments)
    contestants = parse_contestants(arguments.backends)
    _refuse_undefined(contestants, arguments.dtype, arguments.op)
    return Options(
        collective=arguments.subcommand,
        contestants=contestants,
        sizes=[0] if arguments.subcommand == BARRIER else _sizes(arguments),
        dtype=arguments.dtype,
        op=arguments.op,
        in_flight=arguments.in_flight,
        in_a_row=arguments.in_a_row,
        check=arguments.check,
        iterations=arguments.iterations,
        warm_up=arguments.warmup,
    )


def _refuse_unknown_here(arguments: argparse.Namespace) -> None:
    """Options of some collectives that others have no meaning for."""
    if arguments.in_flight != 1 and arguments.subcommand == SEND_RECV:
        raise ValueError(f"--in-flight {arguments.in_flight}: {SEND_RECV} is one message at a time")
    if arguments.sizes and arguments.subcommand == BARRIER:
        raise ValueError(f"--sizes {arguments.sizes}: a {BARRIER} has no size")
    if arguments.op != OPS[0] and not COLLECTIVES[arguments.subcommand].reduces:
        raise ValueError(f"--op {arguments.op}: {arguments.subcommand} reduces nothing")


def _sizes(arguments: argparse.Namespace) -> list[int]:
    item_bytes = ITEM_BYTES[arguments.dtype]
    if arguments.sizes:
        return size_list(arguments.sizes, item_bytes)
    return size_range(arguments.begin, arguments.end, arguments.factor, item_bytes)


def _refuse_undefined(contestants: Sequence[Contestant], dtype: str, op: str) -> None:
    if op == "avg" and dtype.startswith("int"):
        who = next((one.name for one in contestants if one.sums), None)
        raise ValueError(f"--op avg of {dtype} is not defined on all of them ({who}); take --op sum or a float")


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, read, "fairring.bench.calls")
