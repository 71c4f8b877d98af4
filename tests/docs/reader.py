"""Where a reader of README stands: in a clone, with a Python that has only what the section Install says.

`make test-first` makes such a place (.ci/first-steps). Else it is this checkout, with the Python that runs the tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab_programs import REPOSITORY

_MADE = os.environ.get("FIRST_STEPS")
CLONE = Path(_MADE) if _MADE else REPOSITORY
PYTHON = str(CLONE / ".venv" / "bin" / "python") if _MADE else sys.executable
ENVIRONMENT = {**os.environ, "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}"}
