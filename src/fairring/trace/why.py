"""Asks the live ranks of a job what they wait for, and says which rank, machine or link makes it slow.

The job runs with FAIRRING_TRACE=DIR. The ranks of this machine write their traces there when asked. If DIR is shared
with other machines, their ranks are included as they wrote last.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairring.subcommands import at_least
from fairring.trace.command import read

HELP = "who or what makes a live job slow"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="the job's FAIRRING_TRACE")
    parser.add_argument("--group", help="by name; the one with most calls, and any that stands still, if none is given")
    parser.add_argument(
        "--last", type=at_least(1), metavar="CALLS", default=200, help="look at so many calls (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from fairring.trace.live import ask, nobody_answers

    answered, refused = ask(arguments.directory, arguments.last + 1)
    for said in refused:
        print(f"fairring why: {said}", file=sys.stderr)
    if not answered:
        if not refused:
            print(f"fairring why: {nobody_answers(arguments.directory)}", file=sys.stderr)
        return 1
    return read(arguments.directory, arguments, out=None)
