"""Plays all features on both backends, prints them all, and writes the tables of docs/compatibility.md.

Fails where a feature that should work does not, or one that is known not to work does. Usage: python
tests/features/report.py [text that a feature's key contains ...]; with such a choice the document is left alone.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ranks import Outcome
from rich.console import Console
from rich.table import Table

from features import compatibility, shortcomings
from features.table import BACKENDS, Feature, features
from features.world import Worlds

_COLOURS = {"ok": "green", "wrong": "red", "error": "yellow", "hang": "red", "died": "red"}


def main() -> None:
    chosen = [each for each in features() if not sys.argv[1:] or any(text in each.key for text in sys.argv[1:])]
    console, worlds = Console(), Worlds()
    begun = time.monotonic()
    with console.status("") as status:
        outcomes = {}
        for feature in chosen:
            status.update(f"{feature.area.title}: {feature.name}")
            outcomes[feature] = {backend: feature.play(worlds, backend) for backend in BACKENDS}
    worlds.end()
    seconds = time.monotonic() - begun
    console.print(_table(outcomes))
    console.print(f"{len(chosen)} features on {' and '.join(BACKENDS)} in {seconds:.0f} s")
    surprises = [*_surprises(outcomes), *worlds.faults]
    for surprise in surprises:
        print(surprise, file=sys.stderr)
    if not sys.argv[1:]:
        words = {each: {name: outcome.word for name, outcome in ends.items()} for each, ends in outcomes.items()}
        compatibility.write(words)
    sys.exit(bool(surprises))


def _table(outcomes: dict[Feature, dict[str, Outcome]]) -> Table:
    table = Table("area", "feature", *BACKENDS, "why not")
    last = ""
    for feature, ends in outcomes.items():
        words = [f"[{_COLOURS[ends[backend].word]}]{ends[backend].word}" for backend in BACKENDS]
        area = feature.area.title if feature.area.title != last else ""
        last = feature.area.title
        table.add_row(area, feature.name, *words, shortcomings.reasons(feature.key), end_section=False)
    return table


def _surprises(outcomes: dict[Feature, dict[str, Outcome]]) -> list[str]:
    return [
        f"{feature.key} on {backend}: {outcome}"
        if outcome.word != "ok"
        else f"{feature.key} on {backend}: works, but stands in tests/features/shortcomings.py"
        for feature, ends in outcomes.items()
        for backend, outcome in ends.items()
        if (outcome.word == "ok") == (feature.key in shortcomings.OF[backend])
    ]


if __name__ == "__main__":  # the processes that ranks are forked from import this file too
    main()
