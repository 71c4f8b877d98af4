"""PyTorch's own tests of groups that are reconfigured, on Gloo or on Fairring.

    python pytorch_suite.py gloo|fairring FILE

FILE: test/distributed/test_c10d_fault_tolerance.py of PyTorch's repository, at the tag of the installed torch. Runs a
copy of it in which the list of backends names this one alone, and nothing else is changed. Prints how many tests
passed, failed and were skipped.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from libraries import junit

BACKENDS = re.compile(r"(?<=^FAULT_TOLERANCE_BACKENDS = )\[.*?^\]", re.MULTILINE | re.DOTALL)


def run(backend: str, file: Path) -> junit.Result:
    """Raises ValueError if the file has no list of backends."""
    text, found = BACKENDS.subn(f'[("{backend}", "cpu")]', file.read_text())
    if found != 1:
        raise ValueError(f"{file} has {found} lists FAULT_TOLERANCE_BACKENDS; give PyTorch's test of fault tolerance")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, file.name)
        copy.write_text(text)
        return junit.run(copy)


def main() -> None:
    backend, file = sys.argv[1:]
    print(f"torch {torch.__version__} on {backend}: {run(backend, Path(file))}")


if __name__ == "__main__":
    main()
