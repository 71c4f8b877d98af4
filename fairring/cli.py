"""The command line `fairring`: one table of sub-commands, each a module of its own.

A sub-command's module offers HELP (one line), add_arguments(parser) and run(arguments) -> exit code. All of them are
imported to build the help text, so none may import torch or the C++ module at its top: that belongs inside run().
What stands after a `--` is a command for the sub-command to run and reaches it untouched as `arguments.command`;
`arguments.words` are the words before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "lab": "fairring.lab.command",
    "check": "fairring.check.command",
    "plan": "fairring.plan",
    "bench": "fairring.bench.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command and returns its exit code; argparse exits with 2 on bad arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    # Split here and not in argparse: its treatment of `--` before a sub-parser differs between Python versions.
    cut = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:cut])
    arguments.words, arguments.command = words[:cut], words[cut + 1 :]
    run = import_module(COMMANDS[arguments.name]).run
    return int(run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairring", description="Hierarchical all-reduce for PyTorch.")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for name, module_name in COMMANDS.items():
        module = import_module(module_name)
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(parser=command)
        module.add_arguments(command)
    return parser
