"""Plays programs, each twice with other settings and delays; compares ranks and runs; makes failing ones shorter."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from certificates import Authority
from ranks import RankError, Ranks

from random_programs.program import Program
from random_programs.rank import Fault, Report, Run, play_on_rank
from random_programs.world import Settings

PATIENCE_SECONDS = 400  # with each run; calls end by themselves after GROUP_TIMEOUT
_GRACE_SECONDS = 60  # for the other ranks, once one has failed
_HEARTBEAT_TIMEOUT = "200"  # seconds: none of the ranks is to be called dead for want of a processor
_USUAL_RANKS = 6  # that there are; worlds may have fewer
_MOST_DIFFERENCES = 5


class ProgramError(AssertionError):
    """A program has failed; the text says how, for all ranks."""


class Stage:
    """Ranks that play programs one after the other: to start a rank costs as much as to play a program.

    They end after a program that leaves without destroying its groups, and after one that fails.
    """

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.played = 0  # programs, by the ranks that there are
        self._patience_seconds = patience_seconds
        self._ranks: Ranks | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if not error:
            self._end()
        elif self._ranks:
            self._ranks.kill()

    def play(self, program: Program, fault: Fault | None = None) -> float:
        """Processor seconds of all ranks. Raises ProgramError."""
        ranks = self._ranks_for(program.world.size)
        try:
            spent = _play(ranks, program, fault)
            if program.leaves:
                self._end()
        except ProgramError:
            ranks.kill()
            self._ranks = None
            raise
        self.played += 1
        return spent

    def _ranks_for(self, size: int) -> Ranks:
        if self._ranks and self._ranks.size < size:
            self._end()
        if not self._ranks:
            size = max(size, _USUAL_RANKS)
            self._ranks = Ranks(size, patience_seconds=self._patience_seconds, grace_seconds=_GRACE_SECONDS)
            self.played = 0
        return self._ranks

    def _end(self) -> None:
        ranks, self._ranks = self._ranks, None
        if ranks and any(codes := ranks.close()):
            raise ProgramError(f"the ranks ended with {codes}")


def _play(ranks: Ranks, program: Program, fault: Fault | None) -> float:
    reports = [_run(ranks, program, run, fault) for run in (0, 1)]
    differences = []
    for rank, (first, second) in enumerate(zip(*reports, strict=True)):
        for name, digest in {**first.digests, **first.shared}.items():
            if digest != {**second.digests, **second.shared}.get(name):
                differences.append(f"rank {rank} has other bits in the second run: {name}")
    if differences:
        raise ProgramError("\n".join(differences[:_MOST_DIFFERENCES]))
    return sum(report.processor_seconds for reports_of_run in reports for report in reports_of_run)


def _run(ranks: Ranks, program: Program, run: int, fault: Fault | None) -> list[Report]:
    world, settings = program.world, program.world.settings[run]
    head = f"run {run} ({settings})"
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="random-program-") as folder:
        here = Run(run, store.port, _variables(settings, Path(folder)))
        try:
            reports: list[Report] = ranks.run(play_on_rank, program, here, fault, on=list(range(world.size)))
        except RankError as error:
            raise ProgramError(f"{head}:\n{error}") from None
    if differences := _between_ranks(reports):
        raise ProgramError("\n".join([head, *differences[:_MOST_DIFFERENCES]]))
    return reports


def _between_ranks(reports: list[Report]) -> list[str]:
    differences, first_of, barriers = [], dict[str, tuple[int, str]](), dict[str, list[tuple[float, float]]]()
    for rank, report in enumerate(reports):
        for name, digest in report.shared.items():
            other, bits = first_of.setdefault(name, (rank, digest))
            if bits != digest:
                differences.append(f"ranks {other} and {rank} have different bits: {name}")
        for name, times in report.barriers.items():
            barriers.setdefault(name, []).append(times)
    for name, pairs in barriers.items():
        if max(came for came, _ in pairs) > min(left for _, left in pairs):
            differences.append(f"a rank left before the last had come: {name}")
    return differences


def _variables(settings: Settings, folder: Path) -> dict[str, str]:
    variables = {"FAIRRING_HEARTBEAT_TIMEOUT": _HEARTBEAT_TIMEOUT, **settings.variables}
    if settings.rows is not None:
        rows = {"format": "fairring cost rows 1", "measured": "drawn", "levels": settings.rows}
        (folder / "rows.json").write_text(json.dumps(rows))
        variables["FAIRRING_COST_ROWS"] = str(folder / "rows.json")
    return {**variables, **(_certificate() if settings.tls else {})}


@functools.cache
def _certificate() -> dict[str, str]:
    folder = tempfile.TemporaryDirectory(prefix="random-programs-tls-")
    _kept.append(folder)
    return Authority(Path(folder.name)).issue("rank")


_kept: list[tempfile.TemporaryDirectory[str]] = []  # as long as this process lives


def minimised(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program of fewer steps that fails too: halves are left out, then ever smaller pieces."""
    length = max(1, len(program.steps) // 2)
    while length:
        start = 0
        while start < len(program.steps):
            numbers = program.numbers()
            fewer = program.with_steps({*numbers[:start], *numbers[start + length :]})
            if fewer.steps and fails(fewer):
                program = fewer
            else:
                start += length
        length //= 2
    return program
