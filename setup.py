"""Builds Fairring's C++ modules with CMake: one for each minor version of torch that the package is to serve.

torch's C++ interface changes with each minor version, so a module serves one of them and bears its name: _core_2_15.
fairring/_core.py loads the one for the torch that it finds. A plain build makes one module, for the torch of the Python
that runs this. TORCH_DIRECTORIES="<directory> <directory>" names unpacked torches to build for instead, as `make wheel`
does. What the package is and needs stands in pyproject.toml, how its C++ is built in CMakeLists.txt; CMAKE_ARGS holds
further arguments for CMake.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

OLDEST_TORCH, FIRST_TOO_NEW_TORCH = (2, 11), (2, 16)
SUPPORTED = f"torch>={'.'.join(map(str, OLDEST_TORCH))},<{'.'.join(map(str, FIRST_TOO_NEW_TORCH))}"
ROOT = Path(__file__).parent.resolve()
NEEDED = [SUPPORTED, *re.findall(r"^[^#\n]+$", (ROOT / "requirements" / "build.txt").read_text(), re.MULTILINE)]
FIX = (
    f"run: {sys.executable} -m pip install {shlex.join(NEEDED)}, then install Fairring with --no-build-isolation:"
    " otherwise pip hides the installed torch from the build"
)
INTERPRETER = str(sys.implementation.cache_tag)  # cpython-311
OLDEST_SETUPTOOLS = 77
COMPILERS = ("c++", "g++", "clang++")
PACKAGES = "on Debian and Ubuntu run: apt-get install g++ libssl-dev python3-dev"
DIRECTORIES = os.environ.get("TORCH_DIRECTORIES", "").split()


class Torch(NamedTuple):
    """A torch to build for: its minor version, CMake's directory, and what CMake is told about it."""

    minor: str
    build: Path
    arguments: tuple[str, ...]

    @property
    def extension(self) -> str:
        return f"fairring._core_{self.minor.replace('.', '_')}"


def installed_torch() -> Torch:
    """The torch of the Python that runs this; SystemExit, with the command to run, without one that we support."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"Fairring is built against the torch of its Python, and finds none in {sys.executable}; {FIX}")
    minor = supported_minor(version, sys.executable)
    return Torch(minor, ROOT / "build" / f"torch-{minor}" / "cmake", ())


def unpacked_torch(directory: str) -> Torch:
    """directory: of the package torch, with at least its version.py, include and lib."""
    version = re.search(r"__version__ = '(.*)'", (Path(directory) / "version.py").read_text(encoding="utf-8"))
    minor = supported_minor(version[1] if version else "of unknown version", directory)
    build = ROOT / "build" / f"torch-{minor}" / INTERPRETER
    root = f"-DTorchLibs_ROOT={Path(directory).resolve()}"
    return Torch(minor, build, (root,))


def supported_minor(version: str, place: str) -> str:
    """The version as "2.15"; SystemExit with the command to run where Fairring does not support it."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match or not OLDEST_TORCH <= (int(match[1]), int(match[2])) < FIRST_TOO_NEW_TORCH:
        sys.exit(f"Fairring needs {SUPPORTED}, but {place} has torch {version}; {FIX}")
    return match[0]


def program(name: str) -> str:
    """A build program: the one installed beside this Python if any, so that its version is the project's choice."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        sys.exit(f"Fairring is built with {name}; run: {sys.executable} -m pip install {name}")
    return found


def check_compiler() -> None:
    """CMake's own words for it are twenty lines. SystemExit where there is none."""
    named = "CXX" in os.environ or "CMAKE_CXX_COMPILER" in os.environ.get("CMAKE_ARGS", "")
    if not named and not any(map(shutil.which, COMPILERS)):
        sys.exit(f"Fairring is built with a C++20 compiler, and there is no {' or '.join(COMPILERS)}; {PACKAGES}")


def check_setuptools() -> None:
    """An older one refuses pyproject.toml without a word of its own version. SystemExit where it is too old."""
    if int(setuptools.__version__.partition(".")[0]) < OLDEST_SETUPTOOLS:
        sys.exit(
            f"Fairring is built with setuptools {OLDEST_SETUPTOOLS} or later, and {sys.executable} has"
            f" {setuptools.__version__}; {FIX}"
        )


class CMakeBuild(build_ext):
    """Builds each module with CMake and Ninja, incrementally."""

    def build_extension(self, ext: Extension) -> None:
        check_compiler()
        torch = TORCHES[ext.name]
        cmake = program("cmake")
        configure = [cmake, "-S", str(ROOT), "-B", str(torch.build), "-G", "Ninja", *torch.arguments]
        configure += [f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", f"-DPython_EXECUTABLE={sys.executable}"]
        configure += ["-DCMAKE_BUILD_TYPE=Release", "--log-level=STATUS"]
        subprocess.run([*configure, *os.environ.get("CMAKE_ARGS", "").split()], check=True)
        subprocess.run([cmake, "--build", str(torch.build), "--target", "_core"], check=True)

        module = Path(self.get_ext_fullpath(ext.name))
        module.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(torch.build / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"), str(module))


check_setuptools()
TORCHES = {torch.extension: torch for torch in map(unpacked_torch, DIRECTORIES)}
if not TORCHES:
    installed = installed_torch()
    TORCHES[installed.extension] = installed
BASE = Path("build") / (f"wheel-{INTERPRETER}" if DIRECTORIES else f"torch-{installed.minor}")
(ROOT / BASE).mkdir(parents=True, exist_ok=True)  # egg_info wants its directory there
setup(
    ext_modules=[Extension(name, sources=[]) for name in TORCHES],
    cmdclass={"build_ext": CMakeBuild},
    options={"build": {"build_base": str(BASE)}, "egg_info": {"egg_base": str(BASE)}},
)
