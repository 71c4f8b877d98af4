"""Plays all cases and prints the table of what each rank reported, and after how many seconds, as Markdown.

Then what a rank held before, with, and after many groups. Usage: python tests/failures/report.py [case ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from failures.cases import as_in_the_table
from failures.churn import GROUPS, ROUNDS
from failures.judge import faults
from failures.play import Case, Outcome, Play
from failures.stage import Stage, StageError

_KILLED = -9
_LONGEST = 1000
_MIB = 1 << 20


def main() -> None:
    print("| case | machines x ranks | ranks | after s | reported |\n|---|---|---|---|---|")
    stage = Stage()
    wrong = []
    for case in as_in_the_table():
        if not sys.argv[1:] or case.name in sys.argv[1:]:
            try:
                outcomes = Play(stage, case).run()
            except StageError as error:
                wrong.append(f"{case.name}: {error}"[:_LONGEST])
                continue
            wrong += [f"{case.name}: {fault}" for fault in faults(case, outcomes)]
            print(*_rows(case, outcomes), sep="\n", flush=True)
    if not sys.argv[1:]:
        _print_holdings(stage)
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


def _words(outcome: Outcome) -> str:
    if outcome.code == _KILLED:
        return "(killed)"
    if outcome.kind is None:
        return "no error" if outcome.seconds is not None else "(ended)"
    why, _, _ = outcome.text.partition("; call ")  # which was under way, and what became of its tensors
    return " ".join(f"{outcome.kind}: {why}".split()).replace("|", "\\|")


main()
