"""The table in docs/compatibility.md: written by report.py, read by tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from features import shortcomings
from features.table import Feature

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"
_BEGIN, _END = "<!-- written by make features -->\n", "<!-- to here -->\n"
_HEAD = "| feature | gloo | fairring | why not |\n|---|---|---|---|\n"


def write(words: Mapping[Feature, Mapping[str, str]]) -> None:
    """words: how each feature ended on each backend."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    parts = [
        f"\n### {area}\n{_HEAD}" + "".join(_row(feature, words[feature]) for feature in features)
        for area, features in groupby(words, key=lambda feature: feature.area.title)
    ]
    DOCUMENT.write_text(f"{before}{_BEGIN}{_counts(words)}{''.join(parts)}\n{_END}{after}")


def written_rows() -> Iterable[list[str]]:
    """The cells of all rows, in the document's order."""
    _, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    table, _, _ = rest.partition(_END)
    for line in table.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0] != "feature" and set(cells[0]) != {"-"}:
            yield cells


def _row(feature: Feature, words: Mapping[str, str]) -> str:
    return f"| {feature.name} | {words['gloo']} | {words['fairring']} | {shortcomings.reasons(feature.key)} |\n"


def _counts(words: Mapping[Feature, Mapping[str, str]]) -> str:
    working = {backend: sum(each[backend] == "ok" for each in words.values()) for backend in ("gloo", "fairring")}
    return f"\n{len(words)} features: {working['gloo']} work on gloo, {working['fairring']} on fairring.\n"
