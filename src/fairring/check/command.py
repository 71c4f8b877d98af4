"""Report on this machine, this installation and, between ranks, the links: what a bug report needs, and what is wrong.

Alone it sums tensors between two ranks on this machine; it needs no other machine, and reports even without a working
torch. Started on every rank of a job (torchrun, `fairring lab`), it measures the latency and the bandwidth of each
level beside what the planner predicts, and rank 0 prints. The exit code is 1 if anything failed, or the two ranks could
not be tried.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from fairring.extra import OF_OBJECTS, require
from fairring.subcommands import seconds

HELP = "examine this machine, or all ranks of a job and their links; for a bug report too"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="JSON instead of text")
    text = "between ranks: write the measured cost rows to this file, for FAIRRING_COST_ROWS on all ranks"
    add("--save", type=Path, metavar="FILE", help=text)
    text = "how long ranks wait for each other (default: 120)"
    add("--timeout", type=seconds(0.1), default=120.0, metavar="SECONDS", help=text)


def run(arguments: argparse.Namespace) -> int:
    try:
        report = _together(arguments) if _has_partners() else _alone(arguments)
    except (ImportError, ValueError, RuntimeError, OSError) as error:
        print(f"fairring check: {error}", file=sys.stderr)
        return 1
    if report is None:
        return 0
    _print(report, arguments.json)
    return 0 if _is_well(report) else 1


def _is_well(report: dict[str, Any]) -> bool:
    """Whether nothing has failed and, on a machine alone, both trials have summed right."""
    trials = report["ranks"][0]["trials"]  # None: between ranks there are none
    summed = trials is None or (bool(trials) and not any(trial["error"] for trial in trials))
    return summed and not any(finding["level"] == "FAIL" for finding in report["findings"])


def _has_partners() -> bool:
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def _print(report: dict[str, Any], as_json: bool) -> None:
    from fairring.check import text

    if as_json:
        print(json.dumps(report, indent=2))
    else:
        text.print_report(report)


def _alone(arguments: argparse.Namespace) -> dict[str, Any]:
    from fairring.check import report

    if arguments.save:
        raise ValueError("--save needs several ranks to measure between: start it with torchrun")
    if not arguments.json:
        print("fairring check: this takes some seconds", file=sys.stderr, flush=True)
    return report.alone(os.environ, arguments.timeout)


def _together(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The report on rank 0, None on the others."""
    require("fairring check between ranks", OF_OBJECTS)
    from fairring.check.measure import join

    return join(os.environ, arguments.save, arguments.timeout)
