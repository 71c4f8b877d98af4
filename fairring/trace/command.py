"""Reads the traces that the ranks of a job have left in FAIRRING_TRACE's directory.

fairring trace explain DIR              who or what made the job slow, in words
fairring trace merge DIR -o job.json    one trace of all ranks on one clock, for Perfetto
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HELP = "explain or merge the traces of a job's ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("explain", "merge"))
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the traces of all ranks are")
    parser.add_argument("--group", help="by name; the one with most calls if none is given")
    parser.add_argument("--last", type=int, metavar="CALLS", help="explain so many calls; all that are kept by default")
    parser.add_argument("-o", "--out", type=Path, default=Path("trace.json"), help="the merged trace (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    from fairring.trace.merge import merge
    from fairring.trace.records import TraceError, largest, load
    from fairring.trace.words import explain

    try:
        ranks = largest(load(arguments.directory), arguments.group)
        if arguments.what == "explain":
            print(explain(ranks, arguments.last))
            return 0
        name = ranks[0].group.replace("/", "_")
        merged = merge(sorted(arguments.directory.glob(f"{name}-rank*.json")))
        arguments.out.write_text(json.dumps(merged))
        print(f"{arguments.out}: {len(ranks)} ranks, {len(merged['traceEvents'])} events; open it at ui.perfetto.dev")
    except (TraceError, OSError) as error:
        print(f"fairring trace: {error}", file=sys.stderr)
        return 1
    return 0
