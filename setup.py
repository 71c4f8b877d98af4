"""Builds Fairring's C++ module with CMake, for the torch of the Python that runs this.

A build serves one minor version of torch, so the version carries it (0.1.0+torch2.15), the build directory too
(build/torch-2.15), and fairring/_build_info.py records it for the check at import. What the package is and needs stands
in pyproject.toml, how its C++ is built in CMakeLists.txt; CMAKE_ARGS holds further arguments for CMake.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

VERSION = "0.1.0"
OLDEST_TORCH, FIRST_TOO_NEW_TORCH = (2, 11), (2, 16)
ROOT = Path(__file__).parent.resolve()
BUILD_INFO = "_build_info.py"


def torch_minor() -> str:
    """The installed torch as "2.15"; SystemExit with the command to run where there is none, or not one we support."""
    supported = f"torch>={'.'.join(map(str, OLDEST_TORCH))},<{'.'.join(map(str, FIRST_TOO_NEW_TORCH))}"
    fix = f"run: {sys.executable} -m pip install '{supported}', then install Fairring with --no-build-isolation"
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"Fairring is built against the torch of its Python, and {sys.executable} has none; {fix}")
    match = re.match(r"(\d+)\.(\d+)", installed)
    if not match or not OLDEST_TORCH <= (int(match[1]), int(match[2])) < FIRST_TOO_NEW_TORCH:
        sys.exit(f"Fairring needs {supported}, but {sys.executable} has torch {installed}; {fix}")
    return match[0]


TORCH_MINOR = torch_minor()
BUILD_DIR = Path("build") / f"torch-{TORCH_MINOR}"


def program(name: str) -> str:
    """A build program: the one installed beside this Python if any, so that its version is the project's choice."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        sys.exit(f"Fairring is built with {name}; run: {sys.executable} -m pip install {name}")
    return found


class CMakeBuild(build_ext):
    """Builds the module with CMake and Ninja, incrementally, and puts the record of torch's version beside it."""

    def build_extension(self, ext: Extension) -> None:
        build = ROOT / BUILD_DIR / "cmake"
        cmake = program("cmake")
        configure = [cmake, "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
        configure += [f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", f"-DPython_EXECUTABLE={sys.executable}"]
        configure += ["-DCMAKE_BUILD_TYPE=Release", "--log-level=STATUS"]
        subprocess.run([*configure, *os.environ.get("CMAKE_ARGS", "").split()], check=True)
        subprocess.run([cmake, "--build", str(build), "--target", "_core"], check=True)

        module = Path(self.get_ext_fullpath(ext.name))
        module.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(build / module.name), str(module))
        info = module.parent / BUILD_INFO
        info.write_text(f'"""Written by setup.py."""\n\nBUILT_FOR_TORCH = "{TORCH_MINOR}"\n', encoding="utf-8")

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        self.copy_file(str(Path(self.build_lib) / "fairring" / BUILD_INFO), str(ROOT / "fairring" / BUILD_INFO))


(ROOT / BUILD_DIR).mkdir(parents=True, exist_ok=True)  # egg_info wants its directory there
setup(
    version=f"{VERSION}+torch{TORCH_MINOR}",
    ext_modules=[Extension("fairring._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    options={"build": {"build_base": str(BUILD_DIR)}, "egg_info": {"egg_base": str(BUILD_DIR)}},
)
