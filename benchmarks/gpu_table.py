"""One table of the files that `fairring bench --json` and its kin have written: python benchmarks/gpu_table.py FILE ...

Those of runs that were cut short have a star: they hold what was measured before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fairring import table
from fairring.bench.rows import Row
from fairring.bench.table import Column, figure, make_table, ratio

KEYS: list[Column] = [
    ("file", lambda row: row["file"]),
    ("of", lambda row: row["of"]),
    ("backend", lambda row: row["backend"]),
]
FIGURES: list[Column] = [
    ("rounds", lambda row: str(len(row["seconds"]))),
    figure("median\nms", "median", ".3f", 1e3),
    figure("± MAD\nms", "deviation", ".3f", 1e3),
    figure("host\nms", "host", ".3f", 1e3),
    ratio("vs nccl", "vs_stock"),
    figure("of_limit", "of_limit", ".3f"),
    figure("device memory\nMiB", "device_peak_bytes", ".1f", 1 / (1 << 20)),
    figure("#wrong", "wrong", ".0f"),
]


def rows_of(file: Path) -> list[Row]:
    """None of a file in which nothing has been measured."""
    text = file.read_text()
    if not text:
        return []
    content = json.loads(text)
    name = file.stem + "*" * (not content["is_whole"])
    return [{**row, "file": name, "of": row.get("size") or row.get("model")} for row in content["rows"]]


def main(files: Sequence[str]) -> int:
    rows = [row for file in files if Path(file).is_file() for row in rows_of(Path(file))]
    if not rows:
        print("nothing was measured")
        return 1
    table.show(make_table(KEYS, FIGURES, rows), "Time of the slowest rank")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
