"""The command line `fairring`: one table of sub-commands, each a module of its own.

Words after a `--` are a command for the sub-command to run and reach it unchanged as `arguments.command`;
`arguments.words` are the words before it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from fairring._modules import DISTRIBUTION
from fairring.bench.launch import is_rank
from fairring.extra import MissingPackageError
from fairring.subcommands import add_subcommands

COMMANDS = {
    "lab": "fairring.lab.command",
    "check": "fairring.check.command",
    "plan": "fairring.plan",
    "trace": "fairring.trace.command",
    "why": "fairring.trace.why",
    "bench": "fairring.bench.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command and returns its exit code; argparse exits with 2 on bad arguments.

    An interruption, a reader of the output that has gone, and what the system refuses end in one line at most. The exit
    code of the first two is that of a shell's command that the signal has ended.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if is_rank():  # it ends at once, though it may wait for other ranks; the launcher tells
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        try:
            return _run(words)
        finally:
            if sys.stdout:
                sys.stdout.flush()  # here and not when Python ends, where an error is no exception any more
    except KeyboardInterrupt:
        _tell(words, "interrupted")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _drop_output()
        return 128 + signal.SIGPIPE
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        _drop_output()
        _tell(words, str(error))
        return 1


def _tell(words: Sequence[str], text: str) -> None:
    print(" ".join(["fairring", *words[:1]]) + f": {text}", file=sys.stderr)


def _drop_output() -> None:
    """The rest of standard output, which can't be written, must not fail again when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    # Split here and not in argparse: its treatment of `--` before a sub-parser differs between Python versions.
    cut = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:cut])
    arguments.words, arguments.command = words[:cut], words[cut + 1 :]
    return int(arguments.module.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairring", description="Hierarchical collectives for PyTorch.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions of fairring, torch and Python")
    add_subcommands(parser, "COMMAND", COMMANDS)
    return parser


class _Version(argparse.Action):
    """Prints without importing torch, whose version may be the one that a bug report is about."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"fairring {_version(DISTRIBUTION)}, torch {_version('torch')}, Python {platform.python_version()}")
        parser.exit()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
