"""Report on this machine and this installation, and try whether two ranks here can work together.

Prints what a bug report needs: versions, processor, limits, interfaces and the variables in force. Sums tensors between
two ranks on this machine, and says what is wrong and what to do. Needs no other machine and no GPU, and reports even
without a working torch. The exit code is 1 if anything failed or the two ranks could not be tried. `fairring check`
looks at all ranks of a job together.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

HELP = "print what a bug report needs, and try Fairring on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="JSON instead of text")
    text = "how long the two ranks of a trial wait for each other (default: 30)"
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help=text)


def run(arguments: argparse.Namespace) -> int:
    from fairring.doctor import examination, text

    if not arguments.timeout > 0:
        arguments.parser.error(f"--timeout {arguments.timeout:g}: more than 0")
    if not arguments.json:
        print("fairring doctor: this takes some seconds", file=sys.stderr, flush=True)
    report = examination.examine(os.environ, arguments.timeout)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(text.lines(report)))
    summed = report["trials"] and not any(trial["error"] for trial in report["trials"])
    return 0 if summed and not any(finding["level"] == "FAIL" for finding in report["findings"]) else 1
