"""Random programs of c10d's calls: fresh seeds in every run, and a seed that all runs play.

More of them: make random-programs. A program that fails says how to play it again.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from ranks import RankError, Ranks

pytest.importorskip("numpy", reason="the reference is numpy's")
from random_programs.play import ProgramError, Stage, minimised
from random_programs.program import draw_program
from random_programs.rank import Fault
from random_programs.report import again

pytestmark = pytest.mark.timeout(1800)

PROCESSOR_SECONDS = 25  # of fresh programs, about
MOST_PROGRAMS = 30
FIXED_SEEDS = (5,)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def _play(stage: Stage, seed: int) -> float:
    program = draw_program(seed)
    try:
        return stage.play(program)
    except ProgramError as failure:
        pytest.fail(f"{program}\n{failure}\nagain: {again(program, stage.played)}", pytrace=False)


def test_fresh_programs_do_what_the_documents_say(capsys: pytest.CaptureFixture[str]) -> None:
    first, spent = random.SystemRandom().randrange(10**9), 0.0
    with capsys.disabled():
        print(f" seeds from {first} on", end="", flush=True)
    with Stage() as stage:
        for seed in range(first, first + MOST_PROGRAMS):
            spent += _play(stage, seed)
            if spent > PROCESSOR_SECONDS:
                break


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_a_program_that_every_run_plays(stage: Stage, seed: int) -> None:
    _play(stage, seed)


@pytest.mark.parametrize(
    ("kind", "told"), [("value", "elements are wrong"), ("rank", "different bits"), ("run", "in the second run")]
)
def test_one_wrong_bit_is_found(stage: Stage, kind: str, told: str) -> None:
    """In a result; in what one rank says; in what all ranks of one run say."""
    program = draw_program(1, steps=12)
    with pytest.raises(ProgramError, match=told):
        stage.play(program, Fault(kind))


def test_a_failing_program_loses_the_steps_that_do_not_matter() -> None:
    program = draw_program(3)
    matter = {program.numbers()[7], program.numbers()[20]}
    least = minimised(program, lambda fewer: matter <= set(fewer.numbers()))
    assert matter <= set(least.numbers())
    assert len(least.steps) <= 5, "the two, and what makes their groups"


def _stalls(rank: int, port: int) -> None:
    dist.TCPStore("127.0.0.1", port, is_master=False).set(f"rank {rank} stalls", "")
    threading.Event().wait()


def test_ranks_that_hang_are_reported_with_their_stacks() -> None:
    ranks = Ranks(2, patience_seconds=1)
    started = ranks.start(_stalls, ranks.store.port)
    ranks.store.wait(["rank 0 stalls", "rank 1 stalls"])
    with pytest.raises(RankError, match=r"(?s)rank 0 .*Its threads.* in _stalls.*rank 1 .*Its threads.* in _stalls"):
        ranks.finish(started)


def _ends(_rank: int) -> None:
    os._exit(7)


def test_a_rank_that_ends_is_reported_with_its_code() -> None:
    with pytest.raises(RankError, match="its process has ended, with code 7"):
        Ranks(1).run(_ends)
