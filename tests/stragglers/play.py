"""Plays a cluster's runs in one lab, and tells what their traces name."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairring.lab import Lab
from fairring.trace.blame import blame
from fairring.trace.files import load
from fairring.trace.findings import Finding, findings
from fairring.trace.words import explain
from stragglers.cases import MACHINES, Cluster, Planted

_STEPS = 8  # that are looked at
_PROGRAM = Path(__file__).parent.parent / "programs" / "straggling.py"


@dataclass(frozen=True)
class Verdict:
    """The findings that were named in a run.

    step_seconds: of the steps that are looked at.
    """

    planted: Planted
    named: list[Finding]
    told: str
    step_seconds: float

    @property
    def right(self) -> bool:
        """Whether the first finding names the planted culprit and cause, or, if nothing is planted, there is none."""
        if not self.planted.kinds:
            return not self.named
        return bool(self.named) and self.named[0].kind in self.planted.kinds and self.named[0].who == self.planted.who


def play(cluster: Cluster, machines: tuple[int, ...] = MACHINES, timeout: float = 600.0) -> Iterator[Verdict]:
    """Yields the verdict on each run, in order."""
    runs = json.dumps([planted.run for planted in cluster.runs])
    with tempfile.TemporaryDirectory() as directory:
        env = {"FAIRRING_TRACE": directory, "OMP_NUM_THREADS": "1"} | {"TORCH_FR_BUFFER_SIZE": "0"}
        command = [sys.executable, str(_PROGRAM), runs]
        with Lab(command, machines, "1gbit", env=env, own_rates=cluster.own_rates) as lab:
            result = lab.wait(timeout)
        if result.exit_code:
            raise RuntimeError("\n".join(result.output))
        groups = load(Path(directory))
        for planted, line in zip(cluster.runs, result.stdout[0].splitlines(), strict=True):
            report = json.loads(line)
            ranks = groups[report["group"]]
            last = _STEPS * 4  # calls: each step has four buckets
            found = blame(ranks, last)
            yield Verdict(planted, findings(found), explain(ranks, last), found.span / _STEPS)
