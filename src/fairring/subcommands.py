"""Sub-commands from a table of modules, for `fairring` and for `fairring bench`.

A sub-command's module offers HELP (one line), add_arguments(parser) and, where it adds no sub-commands of its own,
run(arguments) -> exit code. All of them are imported to build the help text, so none may import torch or the C++ module
at its top: that belongs inside run().
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module


def add_subcommands(parser: argparse.ArgumentParser, metavar: str, modules: Mapping[str, str]) -> None:
    """modules: names by sub-command. The parsed arguments hold its name as `subcommand`, its `module`, its `parser`."""
    commands = parser.add_subparsers(metavar=metavar, required=True)
    for name, module_name in modules.items():
        module = import_module(module_name)
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(subcommand=name, parser=command, module=module)
        module.add_arguments(command)


MOST = 1_000_000  # of what a number in an option counts
LONGEST = 1_000_000.0  # seconds


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a number of things."""

    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= MOST:
            raise argparse.ArgumentTypeError(f"{value}: give {least} to {MOST}")
        return value

    return number


def seconds(least: float) -> Callable[[str], float]:
    """The type of an option that is a time."""

    def time(text: str) -> float:
        value = float(text)
        if not least <= value <= LONGEST:
            raise argparse.ArgumentTypeError(f"{text}: give {least:g} to {LONGEST:g} seconds")
        return value

    return time
