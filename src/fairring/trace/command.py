"""Records a job, or reads the traces that its ranks have left in FAIRRING_TRACE's directory.

fairring trace -- torchrun train.py     run it with FAIRRING_TRACE; then explain, and merge into job.json
fairring trace explain DIR              who or what made the job slow, in words
fairring trace merge DIR -o job.json    one trace of all ranks on one clock, for Perfetto
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from glob import escape
from pathlib import Path

from fairring.subcommands import at_least

HELP = "record a job; explain or merge the traces of its ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("explain", "merge"))
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="where the traces of all ranks are")
    parser.add_argument("--into", type=Path, help="where a job's traces go (fairring-trace-<time>)")
    parser.add_argument("--group", help="by name; the one with most calls if none is given")
    parser.add_argument(
        "--last", type=at_least(1), metavar="CALLS", help="explain so many calls; all that are kept by default"
    )
    parser.add_argument("-o", "--out", type=Path, help="the merged trace (trace.json; of a recorded job DIR/job.json)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.command:
        return _record(arguments)
    if arguments.what is None or arguments.directory is None:
        arguments.parser.error("give explain or merge with a DIR, or a command behind --")
    if arguments.what == "explain":
        return read(arguments.directory, arguments, out=None)
    return read(arguments.directory, arguments, out=arguments.out or Path("trace.json"), explained=False)


def _record(arguments: argparse.Namespace) -> int:
    """Returns the command's own exit code; if a signal has ended it, 128 and the signal's number, as in shells."""
    directory = (arguments.into or Path(time.strftime("fairring-trace-%Y%m%d-%H%M%S"))).absolute()
    env = {**os.environ, "FAIRRING_TRACE": str(directory)}
    try:
        job = subprocess.Popen(arguments.command, env=env)
    except OSError as error:
        print(f"fairring trace: can't run {arguments.command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    while True:
        try:
            code = job.wait()
            break
        except KeyboardInterrupt:  # the job has received it too
            continue
    explained = read(directory, arguments, out=arguments.out or directory / "job.json")
    return (128 - code if code < 0 else code) or explained


def read(directory: Path, arguments: argparse.Namespace, out: Path | None, explained: bool = True) -> int:
    from fairring.trace.files import largest, load
    from fairring.trace.merge import merge
    from fairring.trace.records import TraceError
    from fairring.trace.words import explain_job

    try:
        groups = load(directory)
        if explained:
            print(explain_job(groups, arguments.group, arguments.last))
        if out is not None:
            ranks = largest(groups, arguments.group)
            name = ranks[0].group.replace("/", "_")
            paths = sorted(directory.glob(f"{escape(name)}-rank*.json"))
            merged = merge(paths)
            out.write_text(json.dumps(merged))
            print(f"{out}: {len(ranks)} ranks, {len(merged['traceEvents'])} events; open it at ui.perfetto.dev")
    except BrokenPipeError:
        raise  # of the output: no fault of the traces
    except (TraceError, OSError) as error:
        print(f"fairring {arguments.subcommand}: {error}", file=sys.stderr)
        return 1
    return 0
