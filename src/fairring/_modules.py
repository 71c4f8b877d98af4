"""The package's C++ modules, one for each minor version of torch that it was built for: the choice among them.

PyTorch's C++ interface changes with each minor version: a module built for another one fails to load with an undefined
symbol, or worse, loads. So the file is chosen by its name before any is loaded.
"""

import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent
# The package's name to pip: PyPI has another project under the name fairring.
DISTRIBUTION = "torch-fairring"


def file_for(torch_version: str) -> Path:
    """The file of the C++ module for this torch. Raises ImportError, with the command to run, if there is none.

    torch_version: torch.__version__, such as "2.15.0+cu132".
    """
    files = _files()
    if not files:
        raise ImportError(
            f"Fairring's C++ module is not built here for Python {sys.version_info.major}.{sys.version_info.minor}; "
            f"run: make build (in a checkout), or {sys.executable} -m pip install --no-build-isolation "
            "<Fairring's directory>"
        )
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    minor = (int(match[1]), int(match[2])) if match else (0, 0)
    if minor not in files:
        minors = minors_here()
        raise ImportError(
            f"this Fairring was built for torch {', '.join(minors)}, but torch {torch_version} is installed; "
            f"run: {sys.executable} -m pip install 'torch=={minors[-1]}.*', or {_BUILD}"
        )
    return files[minor]


def minors_here() -> list[str]:
    """The minor versions of torch, such as "2.15", that there is a C++ module for, ascending."""
    return [f"{major}.{minor}" for major, minor in sorted(_files())]


def load_for(torch_version: str) -> ModuleType:
    """The C++ module for this torch, loaded as fairring._core; torch's libraries have to be in the process.

    Raises ImportError as `file_for` does, and if the libraries of this torch are not those of its version on PyPI.
    """
    file = file_for(torch_version)
    loader = ExtensionFileLoader("fairring._core", str(file))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise ImportError(
            f"Fairring's C++ module does not fit this build of torch {torch_version}, which differs from PyPI's, or a "
            f"library is missing; {_BUILD} ({error})"
        ) from error
    return module


_BUILD = (
    f"build Fairring for the torch you have: {sys.executable} -m pip install --no-build-isolation --force-reinstall "
    "--no-deps <Fairring's directory>"
)


def _files() -> dict[tuple[int, int], Path]:
    """The C++ modules for this Python, by torch's minor version."""
    name = re.compile(rf"_core_(\d+)_(\d+){re.escape(EXTENSION_SUFFIXES[0])}")
    matches = ((name.fullmatch(file.name), file) for file in PACKAGE.iterdir())
    return {(int(match[1]), int(match[2])): file for match, file in matches if match}
