"""The calls of `fairring bench` by collective: right results have no wrong element, results that never came have."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from fairring.bench.calls import KINDS, Call, heat
from fairring.bench.collectives import BARRIER, COLLECTIVES
from fairring.bench.contestants import parse_contestants
from fairring.bench.job import Job, Placement
from fairring.bench.race import Racer, race

BACKENDS = "gloo,fairring"


def wrong_by_backend(rank: int, size_bytes: int) -> dict[str, list[int | None]]:
    places = [Placement(other, dist.get_world_size(), machine=0) for other in range(dist.get_world_size())]
    job = Job(places[rank], places)
    racers = [Racer(contestant) for contestant in parse_contestants(BACKENDS)]
    options = {"dtype": "float32", "op": "sum", "in_flight": 2, "in_a_row": 2, "check": True, "coalesced": False}
    rounds = {"iterations": 1, "warmup": 0}
    found = {}
    for name in KINDS:
        arguments = Namespace(subcommand=name, **options, **rounds)
        heat_of_name = heat(arguments, job, racers, 0 if name == BARRIER else size_bytes)
        found[name] = [sample.wrong for sample in race(heat_of_name, job)]
    return found


def wrong_before_the_call(_rank: int) -> dict[str, int]:
    def wrong(call: Call) -> int:
        call.prepare(3)
        return call.wrong(3)

    found = {name: torch.tensor(wrong(Call(name, 6000, torch.float32, "sum"))) for name in KINDS}
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
