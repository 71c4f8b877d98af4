"""The command line `fairring`: one table of sub-commands, each a module of its own.

Words after a `--` are a command for the sub-command to run and reach it unchanged as `arguments.command`;
`arguments.words` are the words before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fairring.extra import PACKAGES, WITH_OBJECTS, MissingPackageError, require
from fairring.subcommands import add_subcommands

COMMANDS = {
    "lab": "fairring.lab.command",
    "check": "fairring.check.command",
    "doctor": "fairring.doctor.command",
    "plan": "fairring.plan",
    "trace": "fairring.trace.command",
    "why": "fairring.trace.why",
    "top": "fairring.trace.top",
    "metrics": "fairring.trace.metrics",
    "bench": "fairring.bench.command",
}
# And lab, which says so itself, for programs that start labs too.
OF_THE_EXTRA = {"check": WITH_OBJECTS, "plan": PACKAGES, "bench": WITH_OBJECTS}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command and returns its exit code; argparse exits with 2 on bad arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    # Split here and not in argparse: its treatment of `--` before a sub-parser differs between Python versions.
    cut = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:cut])
    if words[0] in OF_THE_EXTRA:
        try:
            require(f"fairring {words[0]}", OF_THE_EXTRA[words[0]])
        except MissingPackageError as error:
            print(error, file=sys.stderr)
            return 1
    arguments.words, arguments.command = words[:cut], words[cut + 1 :]
    return int(arguments.module.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairring", description="Hierarchical collectives for PyTorch.")
    add_subcommands(parser, "COMMAND", COMMANDS)
    return parser
