"""The calls of `fairring bench` by collective: right results have no wrong element, results that never came have."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from fairring.bench.calls import KINDS, Call, Course, runners
from fairring.bench.collectives import BARRIER, COLLECTIVES
from fairring.bench.contestants import parse_contestants
from fairring.bench.race import Racer, race

BACKENDS = "gloo,fairring"


def course(name: str, size_bytes: int) -> Course:
    return Course(name, size_bytes, torch.float32, "sum", in_flight=2, rounds=1, warm_up=0, check=True, in_a_row=2)


def wrong_by_backend(_rank: int, size_bytes: int) -> dict[str, list[int | None]]:
    racers = [Racer(contestant) for contestant in parse_contestants(BACKENDS)]
    sizes = {name: 0 if name == BARRIER else size_bytes for name in KINDS}
    return {
        name: [score.wrong for score in race(runners(course(name, size), racers), 0, 1, lambda: None)]
        for name, size in sizes.items()
    }


def wrong_before_the_call(_rank: int) -> dict[str, int]:
    def wrong(call: Call) -> int:
        call.prepare(3)
        return call.wrong(3)

    found = {name: torch.tensor(wrong(Call(course(name, 6000)))) for name in KINDS}
    for wrong_elements in found.values():
        dist.all_reduce(wrong_elements)
    return {name: int(wrong_elements) for name, wrong_elements in found.items()}


def test_every_collective_can_be_called() -> None:
    assert list(KINDS) == list(COLLECTIVES)


@pytest.mark.parametrize("size_bytes", [12, 6000])
def test_no_element_of_a_right_result_is_wrong(three: Ranks, size_bytes: int) -> None:
    assert three.run(wrong_by_backend, size_bytes)[0] == {name: [0, 0] for name in KINDS}


def test_without_the_call_elements_are_wrong(three: Ranks) -> None:
    wrong = three.run(wrong_before_the_call)[0]
    assert [name for name, elements in wrong.items() if not elements] == [BARRIER]
