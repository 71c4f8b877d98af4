"""A program: its world, and steps that are the same on all ranks, all of it drawn from one seed."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from random_programs.exchanges import Exchange
from random_programs.groups import Again, Destroy, NewGroup, SplitGroup
from random_programs.messages import Barrier, Messages, Objects
from random_programs.reductions import AllReduce, AtOnce, BetweenSites, Undefined
from random_programs.sparse import SparseAllReduce
from random_programs.steps import Drawing, Step
from random_programs.world import KIB, World, draw_world

STEPS = 40
_WEIGHTS: dict[Callable[[Drawing], Step | None], int] = {
    AllReduce.draw: 30,
    AtOnce.draw: 4,
    BetweenSites.draw: 4,
    Undefined.draw: 2,
    SparseAllReduce.draw: 10,
    Exchange.draw: 24,
    Barrier.draw: 2,
    Messages.draw: 5,
    Objects.draw: 3,
    NewGroup.draw: 6,
    SplitGroup.draw: 3,
    Destroy.draw: 4,
    Again.draw: 4,
}
_SHARE_OF_FIRST_GROUPS = 0.5  # of the steps while there is only the default group
_SHARE_THAT_LEAVES = 0.08


@dataclass(frozen=True)
class Program:
    """drawn: how many steps. leaves: ranks end without destroying their groups, in the second run."""

    seed: int
    drawn: int
    world: World
    steps: tuple[Step, ...]
    leaves: bool
    slow_rank: tuple[int, int]

    def with_steps(self, numbers: set[int]) -> Program:
        """Those steps alone, without the ones whose groups are then never made."""
        there, kept = {0}, []
        for step in self.steps:
            if step.number in numbers and step.needs() <= there:
                kept.append(step)
                there = (there | step.makes()) - step.ends()
        return dataclasses.replace(self, steps=tuple(kept))

    def numbers(self) -> list[int]:
        return [step.number for step in self.steps]

    def __str__(self) -> str:
        settings = " | ".join(map(str, self.world.settings))
        return f"seed {self.seed}: {self.world.size} ranks ({self.world}), {len(self.steps)} steps; {settings}"


def draw_program(seed: int, steps: int = STEPS) -> Program:
    draw = random.Random(seed)
    world = draw_world(draw)
    drawing, drawn = Drawing(draw, world), []
    while drawing.number < steps:
        kind = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if len(drawing.groups) == 1 and draw.random() < _SHARE_OF_FIRST_GROUPS:
            kind = NewGroup.draw
        if step := kind(drawing):
            drawn.append(step)
            drawing.number += 1
    slow = (draw.randrange(world.size), draw.randrange(world.size))
    return Program(seed, steps, world, tuple(drawn), draw.random() < _SHARE_THAT_LEAVES, slow)


def table(world: World, *, exchanges: bool) -> Program:
    """Each form of each call with each operation and dtype that it has; without exchanges, of all-reduces alone."""
    drawing = Drawing(random.Random(0), world, most_bytes=16 * KIB)
    kinds: list[Callable[[Drawing], Iterator[Step]]] = [AllReduce.draw_each, SparseAllReduce.draw_each]
    if exchanges:
        kinds.append(Exchange.draw_each)
    steps: list[Step] = []
    for step in itertools.chain(*(draw_each(drawing) for draw_each in kinds)):
        steps.append(step)
        drawing.number += 1
    return Program(0, len(steps), world, tuple(steps), leaves=False, slow_rank=(-1, -1))
