"""The commands without the packages that they need: `torch-fairring[tools]`."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from fairring._modules import DISTRIBUTION
from fairring.extra import OF_LABS, OF_OBJECTS

HIDDEN = f"import sys; sys.modules.update(dict.fromkeys({(OF_LABS, OF_OBJECTS)})); sys.argv[0] = 'fairring'\n"
COMMAND = HIDDEN + "from fairring.cli import main; sys.exit(main(sys.argv[1:]))"


def without_packages(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "packages", "code"),
    [
        (["bench", "all-reduce", "--machines", "2"], "numpy, pyroute2", 1),
        (["lab", "--machines", "2", "--", "true"], "pyroute2", 125),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_command_says_in_one_line_what_to_install(words: list[str], packages: str, code: int) -> None:
    ended = without_packages(*words)
    assert ended.returncode == code
    (line,) = (ended.stdout + ended.stderr).splitlines()
    told = f"fairring {words[0]} needs {packages}, not installed here; run: {sys.executable} -m pip install"
    assert line.endswith(f"{told} 'torch-fairring[tools]'")


def test_the_help_and_a_check_of_one_machine_need_no_package() -> None:
    assert without_packages("--help").returncode == 0
    assert without_packages("bench", "all-reduce", "--help").returncode == 0
    assert "--save needs several ranks" in without_packages("check", "--save", "rows.json").stderr


def test_the_errors_give_pip_the_name_of_this_package() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'name = "{DISTRIBUTION}"' in project
    assert importlib.metadata.version(DISTRIBUTION)
