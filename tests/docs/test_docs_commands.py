"""Commands that the documents show and no test plays: each is understood by the program that it names.

An `sh` block is run by bash, in the repository, where every program is a stand-in that writes down its arguments. So
loops, variables and scripts are expanded as a reader's shell does it. What was written down then goes to the program's
own parser. Commands in running text are read likewise, but for the shell. test_docs_examples.py plays `bash` blocks.
An `sql` block is read by SQLite, with the tables of a merged trace.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from test_docs import DOCUMENTS, REPOSITORY, code
from test_docs_examples import BLOCK
from torch.distributed.run import get_args_parser
from trace_tables import tables

from fairring import cli

README_OF_BENCHMARKS = REPOSITORY / "benchmarks" / "README.md"
SHOWN = [*DOCUMENTS, README_OF_BENCHMARKS]
# bash is played, and text compared with what it printed; sh and sql are understood here, and so is python without a
# title.
LANGUAGES = {"python", "bash", "text", "sh", "sql"}
STAND_IN = """#!{python} -IS
import json, sys
from pathlib import Path
with open({record!r}, "a") as record:
    record.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
"""
ELLIPSES = re.compile(r"…|\.\.\.")
TRAINING = "examples/launchers/train.py"

# The one list of what is shown and not run by any test here, with the reason.
NOT_RUN = {
    "docker": "there is neither a daemon nor an RDMA device",
    "kubectl": "there is no cluster; tests/libraries/test_launchers.py checks the manifests against their schemas",
}
# Their own options are not parsed here: tests/libraries/test_launchers.py starts jobs with them.
LAUNCHERS = ("sbatch", "mpirun", "accelerate")
IMPORTS = {"ray_train.py": "ray"}  # of a program; tests/libraries/test_launchers.py starts it
OURS = ("ip",)  # what our scripts call

each_document = pytest.mark.parametrize("document", SHOWN, ids=lambda path: str(path.relative_to(REPOSITORY)))


def understand(words: Sequence[str]) -> None:
    """Fails unless the program takes these arguments and every file of this repository among them is there."""
    program, *arguments = words
    UNDERSTANDING[program](arguments)


def fairring(arguments: list[str]) -> None:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parsed = cli._parser().parse_args(arguments[:cut])
    assert parsed.module
    if cut < len(arguments):
        understand(arguments[cut + 1 :])


def torchrun(arguments: list[str]) -> None:
    parsed = get_args_parser().parse_args(arguments)
    python([*(["-m"] if parsed.module else []), parsed.training_script, *parsed.training_script_args])


def python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        MODULES[arguments[1]](arguments[2:])
    elif "/" in arguments[0]:
        script(REPOSITORY / arguments[0], arguments[1:])


def script(file: Path, arguments: list[str]) -> None:
    """Runs the program up to the end of its parsing."""
    if "argparse" not in file.read_text():
        return
    if file.name in IMPORTS:
        pytest.importorskip(IMPORTS[file.name])
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise EndOfParsing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(file), *arguments])
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
        patch.syspath_prepend(str(file.parent))
        with pytest.raises(EndOfParsing):
            runpy.run_path(str(file), run_name="__main__")


class EndOfParsing(BaseException):  # not an Exception: no program catches it
    pass


def pip(arguments: list[str]) -> None:
    from pip._internal.commands import create_command

    command, *rest = arguments
    options, packages = create_command(command).parse_args(rest)
    assert all((REPOSITORY / file).exists() for file in options.requirements)
    for extra in re.findall(r"^torch-fairring\[(.*)\]", "\n".join(packages), re.MULTILINE):
        assert re.search(rf"^{extra} = \[", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE), extra


def make(arguments: list[str]) -> None:
    phony = re.search(r"^\.PHONY:(.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert {word for word in arguments if "=" not in word} <= set(phony[1].split())


def launcher(arguments: list[str]) -> None:
    """All of examples/launchers hand on their arguments to the same program."""
    place = next(place for place, word in enumerate(arguments) if word.startswith("examples/"))
    assert (REPOSITORY / arguments[place]).exists()
    script(REPOSITORY / TRAINING, arguments[place + 1 :])


def files_exist(arguments: list[str]) -> None:
    assert all((REPOSITORY / word).exists() for word in arguments if word.startswith("examples/"))


MODULES: dict[str, Callable[[list[str]], None]] = {"fairring": fairring, "pip": pip, "torch.distributed.run": torchrun}
UNDERSTANDING = {
    "fairring": fairring,
    "torchrun": torchrun,
    "python": python,
    "pip": pip,
    "make": make,
    **dict.fromkeys(LAUNCHERS, launcher),
    **dict.fromkeys((*NOT_RUN, *OURS), files_exist),
}


def commands(text: str, folder: Path) -> list[list[str]]:
    """The programs that bash would start, each with its arguments."""
    record = folder / "record"
    record.touch()
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name in UNDERSTANDING:
        (stand_ins / name).write_text(STAND_IN.format(python=sys.executable, record=str(record)))
        (stand_ins / name).chmod(0o755)
    shell = ["bash", "-euo", "pipefail", "-c", text]
    environment = {**os.environ, "PATH": f"{stand_ins}:{os.environ['PATH']}"}
    done = subprocess.run(shell, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in record.read_text().splitlines()]


BLOCKS = [
    pytest.param(text, id=f"{document.stem}-{number}")
    for document in SHOWN
    for number, (language, _, text) in enumerate(BLOCK.findall(document.read_text()))
    if language == "sh"
]


@pytest.mark.parametrize("text", BLOCKS)
def test_programs_understand_the_blocks_that_are_not_played(text: str, tmp_path: Path) -> None:
    started = commands(text, tmp_path)
    assert started
    for words in started:
        understand(words)


@each_document
def test_programs_understand_the_commands_in_the_text(document: Path) -> None:
    outside = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for text in code(outside):
        words = text.split()
        mentioned = len(words) < (4 if words[0] == "fairring" else 2) or words[-1].startswith("--")
        if words[0] in UNDERSTANDING and not mentioned and not ELLIPSES.search(text):
            understand(shlex.split(text))


@each_document
def test_every_block_is_played_or_understood(document: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", document.read_text(), re.MULTILINE)[::2]
    blocks = BLOCK.findall(document.read_text())
    assert len(fences) == len(blocks), "a block without a language, or with something else behind it"
    for language, title, text in blocks:
        assert language in LANGUAGES, f"```{language}"
        if language == "python":
            compile(text, title or str(document), "exec")
        if language == "sql":
            tables({"traceEvents": []}).execute(text)
