"""Random programs of c10d's calls: fresh seeds in every run, and a seed that all runs play.

More of them: make random-programs. A program that fails says how to play it again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("numpy", reason="the reference is numpy's")
from random_programs.play import ProgramError, Stage
from random_programs.program import Program, draw_program, table
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


def _play(stage: Stage, program: Program) -> float:
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
            spent += _play(stage, draw_program(seed))
            if spent > PROCESSOR_SECONDS:
                break


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_a_program_that_every_run_plays(stage: Stage, seed: int) -> None:
    _play(stage, draw_program(seed))


@pytest.mark.parametrize(
    ("machines", "sites", "exchanges"),
    [
        pytest.param((0,), (0,), True, id="one rank"),
        pytest.param((0, 1, 0), (0, 0, 0), True, id="two machines"),
        pytest.param((0, 0, 1, 2, 2, 3), (0, 0, 0, 1, 1, 1), False, id="two sites"),
        pytest.param(tuple(range(8)), (0,) * 8, False, id="two groups of machines"),
    ],
)
def test_every_call_with_every_operation_and_dtype(
    stage: Stage, machines: tuple[int, ...], sites: tuple[int, ...], exchanges: bool
) -> None:
    """The bits of sums are those of the promised order."""
    _play(stage, table(machines, sites, exchanges))


@pytest.mark.parametrize(
    ("kind", "told"), [("value", "elements are wrong"), ("rank", "different bits"), ("run", "in the second run")]
)
def test_one_wrong_bit_is_found(stage: Stage, kind: str, told: str) -> None:
    """In a result; in what one rank says; in what all ranks of one run say."""
    program = draw_program(1, steps=12)
    with pytest.raises(ProgramError, match=told):
        stage.play(program, Fault(kind))
