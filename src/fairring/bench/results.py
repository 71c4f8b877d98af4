"""The JSON files that benchmarks write and `fairring bench plot` reads.

One object: format, benchmark, conditions, rows; what stands in a row is the benchmark's own. Units are in the names, or
seconds and bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1


class ResultsError(ValueError):
    """A file of results that can't be written or understood; the text says why."""


def refuse_unwritable(file: Path | None) -> None:
    """Before anything is measured: raises ResultsError where the results could not be kept. Makes the file."""
    if file is None:
        return
    try:
        file.open("a").close()
    except OSError as error:
        raise ResultsError(
            f"--json {file} can't be written ({error.strerror}); give a file in a folder that is there"
        ) from error


def write(file: Path | None, benchmark: str, conditions: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if file is not None:
        whole = {"format": FORMAT, "benchmark": benchmark, "conditions": conditions, "rows": rows}
        file.write_text(json.dumps(whole, indent=1) + "\n")


def read(file: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{file} holds no results: {error}") from error
    kinds = {"benchmark": str, "conditions": dict, "rows": list}
    whole: dict[str, Any] = found if isinstance(found, dict) else {}
    is_whole = all(isinstance(whole.get(name), kind) for name, kind in kinds.items())
    if not is_whole or whole.get("format") != FORMAT:
        raise ResultsError(f"{file} holds no results of this version's `fairring bench` (format {FORMAT})")
    return whole
