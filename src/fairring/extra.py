"""The packages of the extras, which the commands need and the process group does not."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from fairring._modules import DISTRIBUTION

# Of commands whose ranks hand each other Python objects, by torch's collectives; of those that start machines.
OF_OBJECTS, OF_LABS = "numpy", "pyroute2"


class MissingPackageError(ImportError):
    """A package of the extra is not installed; the text says what to run."""


def require(what: str, *packages: str) -> None:
    """what: as the error names it, "fairring bench".

    Raises MissingPackageError. Imports nothing.
    """
    missing = [name for name in packages if not find_spec(name)]
    if missing:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}, not installed here; run: {sys.executable} -m pip install"
            f" '{DISTRIBUTION}[tools]'"
        )
