"""Random programs of c10d's calls: fresh seeds in every run, and a seed that all runs play.

More of them: make random-programs. A program that fails says how to play it again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the reference is numpy's")
from random_programs.play import ProgramError, Stage
from random_programs.program import Program, draw_program, table
from random_programs.rank import Fault
from random_programs.report import again
from random_programs.world import MIB, SMALL_SLICES, Settings, World

from fairring.config import Config
from fairring.cost_rows import FIELDS, LEVELS
from fairring.forecast import forecast

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


def _forcing(level: str, latency: float, per_message: float, bytes_per_second: float) -> Settings:
    free, row = (1e-6, 0.0, 1e10, 1e10), (latency, per_message, bytes_per_second, 1e10)
    rows = {"machine": free, "rail": free, level: row}
    named = {level: dict(zip(FIELDS, numbers, strict=True)) for level, numbers in rows.items()}
    return Settings(SMALL_SLICES.variables, named)


def _small(setting: str, tls: bool = False) -> Settings:
    name, _, value = setting.partition("=")
    return Settings({**SMALL_SLICES.variables, f"FAIRRING_{name}": value}, tls=tls)


DEFAULT_AND_SMALL = (Settings(), SMALL_SLICES)
EIGHT, SITES = (tuple(range(8)), (0,) * 8), ((0, 0, 1, 2), (0, 0, 0, 1))
FORCED = {
    "RS0 RS1 AG1 AG0": World(*EIGHT, (_forcing("rail", 1e-6, 0.0, 1e6), Settings())),
    "RS0 AR1 AG0": World(*EIGHT, (_forcing("rail", 1.0, 0.0, 1e12), Settings())),
    "RS0 RS1 AR2 AG1 AG0": World(*EIGHT, (_forcing("rail", 1e-6, 1e-1, 1e9), Settings())),
    "RS0 RS1 RS2 AG2 AG1 AG0": World(*SITES, (_forcing("site", 0.0, 0.0, 1e6), Settings())),
}
TABLES = {
    "one rank": World((0,), (0,), DEFAULT_AND_SMALL),
    "two machines": World((0, 1, 0), (0, 0, 0), DEFAULT_AND_SMALL),
    "two sites": World((0, 0, 1, 2, 2, 3), (0, 0, 0, 1, 1, 1), DEFAULT_AND_SMALL),
    "two groups of machines": World(*EIGHT, DEFAULT_AND_SMALL),
    "TensorPipe, and lanes": World(*SITES, (_small("TRANSPORT=rail=tensorpipe:uv,site=tcp"), _small("LANES=site=4"))),
    "TensorPipe's shared memory, and TLS": World(
        (0, 0, 1, 1), (0, 0, 0, 0), (_small("TRANSPORT=tensorpipe:shm"), _small("LANES=3", tls=True))
    ),
    **FORCED,
}


@pytest.mark.parametrize("plan", FORCED)
def test_rows_by_which_a_plan_is_chosen(plan: str) -> None:
    world = FORCED[plan]
    named = world.settings[0].rows or {}
    rows: Any = [tuple(named.get(level, named["rail"]).values()) for level in LEVELS]
    machines, sites = map(str, world.machines), map(str, world.sites)
    config = Config(total_memory=MIB, slice_size=4096)
    assert forecast(config, [*machines], rows, 4096, [*sites])[0]["steps"] == plan


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in FORCED else []) for name in TABLES]
)
def test_every_call_with_every_operation_and_dtype(stage: Stage, name: str) -> None:
    """The bits of sums are those of the promised order."""
    _play(stage, table(TABLES[name], exchanges=name in ("one rank", "two machines")))


@pytest.mark.parametrize(
    ("kind", "told"), [("value", "elements are wrong"), ("rank", "different bits"), ("run", "in the second run")]
)
def test_one_wrong_bit_is_found(stage: Stage, kind: str, told: str) -> None:
    """In a result; in what one rank says; in what all ranks of one run say."""
    program = draw_program(1, steps=12)
    with pytest.raises(ProgramError, match=told):
        stage.play(program, Fault(kind))
