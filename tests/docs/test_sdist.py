"""The source distribution: its content, and the messages of its build if something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SETUP = """
import importlib.metadata, os, runpy, setuptools, sys
sys.argv = ["setup.py", "--version"]
{change}
names = runpy.run_path("setup.py")
os.environ["PATH"] = ""
names["check_compiler"]()
"""
BUILD_PACKAGES = (
    "-m pip install 'torch>=2.11,<2.16' 'setuptools>=77,<82' 'cmake>=3.22' ninja, then install Fairring with"
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("def version(name): raise importlib.metadata.PackageNotFoundError\nimportlib.metadata.version = version",
         ["built against the torch of its Python", BUILD_PACKAGES, "hides the installed torch"]),
        ("importlib.metadata.version = lambda name: '2.9.1'", ["has torch 2.9.1", BUILD_PACKAGES]),
        ("setuptools.__version__ = '65.5.0'", ["setuptools 77 or later", "has 65.5.0", BUILD_PACKAGES]),
        ("", ["there is no c++ or g++ or clang++", "apt-get install g++ libssl-dev python3-dev"]),
    ],
    ids=["no torch", "a wrong torch", "an old setuptools", "no compiler"],
)  # fmt: skip
def test_the_build_says_in_one_line_what_is_missing(change: str, words: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "CMAKE_ARGS")}
    command = [sys.executable, "-c", SETUP.format(change=change)]
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert all(word in line for word in words), line


def test_it_holds_every_source_of_the_build(tmp_path: Path) -> None:
    # In a place of its own: what an earlier list of files names goes in too.
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run([*command, "sdist", "--dist-dir", str(tmp_path)], cwd=REPOSITORY, check=True, timeout=120)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        held = {name.partition("/")[2] for name in files.getnames()}
    files_of = [REPOSITORY.glob("src/**/*.py"), REPOSITORY.glob("csrc/**/*.*"), REPOSITORY.glob("third_party/*")]
    sources = {str(file.relative_to(REPOSITORY)) for found in files_of for file in found}
    assert not {"CMakeLists.txt", "pyproject.toml", "requirements/build.txt", *sources} - held
    assert not [name for name in held if name.startswith("tests")]
