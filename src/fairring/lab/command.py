"""An emulated cluster on one machine: `fairring lab --machines 2 --ranks 2 --rate 1gbit -- python train.py`

Every machine is a network namespace of its own behind a link that is shaped in both directions. The command runs once
per rank with the variables that torchrun sets, as root or, through user namespaces, without. The exit code is 0 if all
ranks end with 0, else that of the rank that failed first (128+n for signal n), and 125 if the lab itself fails.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fairring.lab.cluster import ORDERS, LabError, parse_machines
from fairring.lab.lab import Lab
from fairring.lab.output import Printer
from fairring.lab.wiring import NETWORKS

HELP = "run a command on an emulated cluster of several machines"

_LAB_FAILED = 125
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fairring lab [options] -- COMMAND [ARGUMENT ...]"
    add = parser.add_argument
    add(
        "--machines",
        type=int,
        metavar="N",
        help="how many machines (default: as --ranks says, else 1)",
    )
    add(
        "--ranks",
        default="1",
        metavar="N",
        help="ranks on every machine, or one number for each: 4,3,2 (default: 1)",
    )
    add(
        "--rate",
        default="1gbit",
        help="of each machine's link, each way: 100mbit, 2.5gbit, none (default: 1gbit); 1gbit,100mbit: of each of two",
    )
    text = "of the links of single machines, by number: 1=100mbit,3=none"
    add("--own-rates", default="", metavar="N=RATE", help=text)
    text = "the machines stand in so many sites, or so many of them in each: 3,1 (default: 1)"
    add("--sites", default="1", metavar="N", help=text)
    add("--site-rate", default="none", metavar="RATE", help="of each site's uplink, each way (default: none)")
    text = "from one site to another, one way: 20ms (default: 0ms)"
    add("--site-delay", default="0ms", metavar="TIME", help=text)
    add("--interfaces", type=int, default=1, metavar="N", help="of each machine, with a link each (default: 1)")
    text = "CUDA devices of each machine, which do not exist: slow, for seeing whether a script is right on them"
    add("--emulated-gpus", type=int, default=0, metavar="N", help=text)
    add(
        "--order",
        choices=ORDERS,
        default="block",
        help="how ranks are dealt to machines (default: block)",
    )
    text = "namespaces: fail where they aren't possible; none: all in the present network (default: auto)"
    add("--network", choices=NETWORKS, default="auto", help=text)
    text = "this rank writes straight to the terminal, for progress bars; others are hidden unless they fail"
    add("--only-rank", type=int, metavar="R", help=text)
    text = "how long the others may go on when a rank failed or the lab was told to end (default: 30)"
    add("--grace", type=float, default=30.0, metavar="SECONDS", help=text)


def run(arguments: argparse.Namespace) -> int:
    printer = Printer()
    try:
        lab = Lab(
            command=arguments.command,
            machines=parse_machines(arguments.ranks, arguments.machines),
            rate=arguments.rate,
            own_rates=arguments.own_rates,
            interfaces=arguments.interfaces,
            emulated_gpus=arguments.emulated_gpus,
            sites=arguments.sites,
            site_rate=arguments.site_rate,
            site_delay=arguments.site_delay,
            order=arguments.order,
            network=arguments.network,
            grace=arguments.grace,
            printer=printer,
            only_rank=arguments.only_rank,
        )
    except LabError as error:
        arguments.parser.error(str(error))
    try:
        with _passing_signals_on(lab), lab:
            return lab.wait().exit_code
    except LabError as error:
        printer.say(str(error))
        return _LAB_FAILED
    except BrokenPipeError:
        # As for any program whose reader has gone; buffered output must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


@contextmanager
def _passing_signals_on(lab: Lab) -> Iterator[None]:
    """Python's handlers do nothing; the number of every signal arrives as a byte at a descriptor that the lab polls."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)

        def pass_on() -> None:
            for signum in receiver.recv(64):
                lab.pass_on(signum)

        lab.watch(receiver.fileno(), pass_on)
        wakeup = signal.set_wakeup_fd(sender.fileno())
        handlers = {signum: signal.signal(signum, lambda *_: None) for signum in _PASSED_ON}
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(wakeup)
