"""The packages of the extras, which the commands need and the process group does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from fairring._modules import DISTRIBUTION

PACKAGES = ("pyroute2", "rich")
# Of the commands whose ranks hand each other Python objects, by torch's collectives.
WITH_OBJECTS = ("numpy", *PACKAGES)


class MissingPackageError(ImportError):
    """A package of the extra is not installed; the text says what to run."""


def require(what: str, packages: Sequence[str] = PACKAGES, extra: str = "tools") -> None:
    """what: as the error names it, "fairring bench". extra: it has the packages.

    Raises MissingPackageError. Imports nothing.
    """
    missing = [name for name in packages if not find_spec(name)]
    if missing:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}, not installed here; run: {sys.executable} -m pip install"
            f" '{DISTRIBUTION}[{extra}]'"
        )
