"""Plays all cases and prints the table of what each rank reported, and after how many seconds, as Markdown.

Usage: python tests/failures/report.py [case ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from failures.cases import as_in_the_table
from failures.judge import faults
from failures.play import Case, Outcome, Play
from failures.stage import Stage

_KILLED = -9


def main() -> None:
    print("| case | machines x ranks | ranks | after s | reported |\n|---|---|---|---|---|")
    stage = Stage()
    wrong = []
    for case in as_in_the_table():
        if not sys.argv[1:] or case.name in sys.argv[1:]:
            outcomes = Play(stage, case).run()
            wrong += [f"{case.name}: {fault}" for fault in faults(case, outcomes)]
            for row in _rows(case, outcomes):
                print(row, flush=True)
    stage.close()
    for fault in wrong:
        print(fault, file=sys.stderr)
    sys.exit(bool(wrong))


def _rows(case: Case, outcomes: dict[int, Outcome]) -> list[str]:
    """One for all ranks that reported the same."""
    said: dict[str, list[int]] = {}
    for rank, outcome in outcomes.items():
        said.setdefault(_words(outcome), []).append(rank)
    rows = []
    for number, (words, ranks) in enumerate(said.items()):
        times = [seconds for rank in ranks if (seconds := outcomes[rank].seconds) is not None]
        after = "" if not times else f"{min(times):.2f}" if len(times) == 1 else f"{min(times):.2f} to {max(times):.2f}"
        title = (case.title, case.layout) if number == 0 else ("", "")
        rows.append(f"| {title[0]} | {title[1]} | {', '.join(map(str, ranks))} | {after} | {words} |")
    return rows


def _words(outcome: Outcome) -> str:
    if outcome.code == _KILLED:
        return "(killed)"
    if outcome.kind is None:
        return "right sums" if outcome.seconds is not None else "(ended)"
    return " ".join(f"{outcome.kind}: {outcome.text}".split()).replace("|", "\\|")


main()
