"""Whether a play went as its case says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from failures.play import Case, Outcome

_KINDS = ("DistBackendError", "ConfigError")
_KILLED = -9


def faults(case: Case, outcomes: Mapping[int, Outcome]) -> list[str]:
    """What is wrong, in words; empty when all is as expected."""
    return [
        f"rank {rank}: {fault}\n{outcome}"
        for rank, outcome in outcomes.items()
        for fault in _faults_of(case.expected.get(rank, ()), outcome)
    ]


def _faults_of(words: tuple[str, ...] | None, outcome: Outcome) -> list[str]:
    if words is None:
        return []
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
    if outcome.left != {}:
        faults.append(f"it left behind {outcome.left}")
    return faults
