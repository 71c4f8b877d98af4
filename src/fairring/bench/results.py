"""The JSON files that benchmarks write.

One object: format, benchmark, conditions, rows; what stands in a row is the benchmark's own. Units are in the names, or
seconds and bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1


def refuse_unwritable(file: Path | None) -> None:
    """Before anything is measured: raises ValueError where the results could not be kept. Makes the file."""
    if file is None:
        return
    try:
        file.open("a").close()
    except OSError as error:
        raise ValueError(
            f"--json {file} can't be written ({error.strerror}); give a file in a folder that is there"
        ) from error


def write(file: Path | None, benchmark: str, conditions: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if file is not None:
        whole = {"format": FORMAT, "benchmark": benchmark, "conditions": conditions, "rows": rows}
        file.write_text(json.dumps(whole, indent=1) + "\n")
