"""Whether a play went as its case says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from failures.play import Case, Outcome

_KINDS = ("ConfigError", "GroupError", "MismatchError", "RankDiedError", "RankLateError", "RankLeftError")
_KILLED = -9


def faults(case: Case, outcomes: Mapping[int, Outcome]) -> list[str]:
    """The faults, in words; empty when all is as expected."""
    return [
        f"rank {rank}: {fault}\n{outcome}"
        for rank, outcome in outcomes.items()
        if case.expected.get(rank, ()) is not None
        for fault in [*_faults_of(case.expected.get(rank, ()) or (), outcome), *_left_by(outcome)]
    ]


def _faults_of(words: tuple[str, ...], outcome: Outcome) -> list[str]:
    raised = f"{outcome.kind}: {outcome.text}" if outcome.kind else ""
    faults = [f"{word!r} is not in what it raised" for word in words if not re.search(word, raised)]
    if bool(words) != (outcome.kind is not None):
        faults.append("it raised nothing" if words else "it raised an error")
    if outcome.kind not in (None, *_KINDS) and not any(word.startswith(f"^{outcome.kind}: ") for word in words):
        faults.append(f"{outcome.kind} is no error of ours")
    if outcome.code == _KILLED:
        faults.append("it did not end by itself")
    elif outcome.code != 0:
        faults.append(f"it ended with code {outcome.code}")
    return faults


def _left_by(outcome: Outcome) -> list[str]:
    if outcome.left is None:
        return ["it did not get so far as to say what it left behind"]
    return [f"it left behind {outcome.left}"] if outcome.left else []
