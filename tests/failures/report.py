"""Plays all cases and prints the table of what ranks reported, and after how many seconds, as Markdown.

Then what a rank held before, with, and after many groups. Usage: python tests/failures/report.py [case ...]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from failures.cases import as_in_the_table
from failures.churn import GROUPS, ROUNDS
from failures.judge import faults
from failures.play import Case, Outcome, Play
from failures.stage import Stage, StageError

_LONGEST = 1000
_NO_ERROR = "no error"
_MIB = 1 << 20


def main() -> None:
    print("| case | machines x ranks | after s | error |\n|---|---|---|---|")
    stage = Stage()
    wrong = []
    above = ""
    for case in as_in_the_table():
        if not sys.argv[1:] or case.name in sys.argv[1:]:
            try:
                outcomes = Play(stage, case).run()
            except StageError as error:
                wrong.append(f"{case.name}: {error}"[:_LONGEST])
                continue
            wrong += [f"{case.name}: {fault}" for fault in faults(case, outcomes)]
            words = _words(case, outcomes)
            is_repeated = words != _NO_ERROR and _without_numbers(words) == _without_numbers(above)
            shown = "as above" if is_repeated else words
            print(f"| {case.title} | {case.layout} | {_seconds(case, outcomes):.2f} | {shown} |", flush=True)
            above = words
    if not sys.argv[1:]:
        _print_holdings(stage)
    stage.close()
    for fault in wrong:
        print(fault, file=sys.stderr)
    sys.exit(bool(wrong))


def _words(case: Case, outcomes: Mapping[int, Outcome]) -> str:
    """The error of the rank that got one first, without the advice at its end. The others' differ in who tells it."""
    told = _told(case, outcomes)
    if not told:
        return _NO_ERROR
    first = min(told, key=lambda outcome: outcome.seconds or 0)
    why, _, _ = first.text.partition("; call ")  # which was under way, and what became of its tensors
    facts = why.rpartition("; ")[0] or why
    return " ".join(f"{first.kind}: {facts}".split()).replace("|", "\\|")


def _seconds(case: Case, outcomes: Mapping[int, Outcome]) -> float:
    """Until the last rank had its error, or had ended its calls where none gets one."""
    return max(outcome.seconds or 0 for outcome in _told(case, outcomes) or outcomes.values())


def _told(case: Case, outcomes: Mapping[int, Outcome]) -> list[Outcome]:
    """Of the ranks that have to get an error, those that got one."""
    return [outcome for rank, outcome in outcomes.items() if case.expected.get(rank) and outcome.kind is not None]


def _without_numbers(words: str) -> str:
    return re.sub(r"\d+", "", words)


def _print_holdings(stage: Stage) -> None:
    """Prints the holdings of rank 1, which does not hold the store."""
    print("\n| | threads | descriptors | shared maps | own memory |\n|---|---|---|---|---|")
    titles = {"warm": "after the first rounds", "full": "with all groups", "empty": "after the last round"}
    rows = {"many_groups": f"{GROUPS} groups, three rounds", "many_inits": f"{ROUNDS} times init and destroy"}
    for body, title in rows.items():
        play = Play(stage, Case(body, title, body, {}, module="failures.churn"))
        play.run()
        for word, when in titles.items():
            if not play.said(1, word):
                continue
            held = play.words(1, word)[1]
            counts = (held.threads.total(), held.descriptors.total(), held.maps.total())
            print(f"| {title}, {when} | {counts[0]} | {counts[1]} | {counts[2]} | {held.memory / _MIB:.1f} MiB |")


main()
