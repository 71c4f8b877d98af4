"""Steps of a program: data that are equal on all ranks, and the calls that members of a group make from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed._functional_collectives as functional
from torch import Tensor

from random_programs.memory import Placed, blank
from random_programs.values import FLAVOURS, MOVED, OPERATIONS, REDUCED, Operation, defined, drawn
from random_programs.world import KIB, MIB, World

if TYPE_CHECKING:
    from random_programs.rank import Player

Shape = tuple[int, ...]
GROUP_TIMEOUT = timedelta(seconds=200)  # on a machine that has other things to do
LAYOUTS = (None, None, "same", "own")  # contiguous; strides and offset of all ranks; of each rank its own


@dataclass
class Result:
    """A rank's result, and the expected one. kind: moved (every bit), reduced, or sparse (zeros have no sign).

    shared: all ranks that have a result of this name have the same bits.
    """

    name: str
    got: Tensor
    wanted: Tensor
    kind: str = "moved"
    shared: bool = False


@dataclass
class Call:
    """start: returns what can be waited for, or None where the call is done. results: looked at once it is done.

    has_future: what start returns has one, where it is a Work.
    """

    name: str
    group: int
    start: Callable[[], Any]
    results: Callable[[], list[Result]]
    has_future: bool = True


class Functional:
    """The result of functional collectives, as a call's work. The tensors become ordinary ones once they are there."""

    def __init__(self, tensors: Any) -> None:
        self.tensors: list[Tensor] = list(tensors)

    def wait(self) -> None:
        self.tensors[:] = map(functional.wait_tensor, self.tensors)


@dataclass(frozen=True)
class Tensors:
    """The tensors of one call, of all members. number, slot: of the step, and of the call in it."""

    number: int
    slot: int
    dtype: str
    shape: Shape
    flavour: str
    layout: str | None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} {self.flavour}{f' {self.layout} strides' if self.layout else ''}"


@dataclass
class Member:
    """A rank in a group. place: its rank there. order: of sums. later: it waits for its calls some time later."""

    rank: int
    seed: int
    group: Any
    ranks: list[int]
    order: list[Any]
    later: bool
    several_sites: bool

    @property
    def place(self) -> int:
        return self.ranks.index(self.rank)

    @property
    def everyone(self) -> range:
        return range(len(self.ranks))

    def data(self, tensors: Tensors, place: int, shape: Shape | None = None, part: int = 0) -> Tensor:
        """The data that the member at that place gives. part: selects further data of the same member."""
        key = (self.seed, tensors.number, tensors.slot, place, part)
        return drawn(key, tensors.dtype, tensors.shape if shape is None else shape, tensors.flavour)

    def placed(self, tensors: Tensors, data: Tensor, part: int = 0) -> Placed:
        if tensors.layout is None:
            return Placed(data, None)
        whose = self.rank if tensors.layout == "own" else ""
        return Placed(data, random.Random(f"{self.seed} {tensors.number} {tensors.slot} {part} {whose}"))

    def output(self, tensors: Tensors, shape: Shape, part: int = 0) -> Placed:
        return self.placed(tensors, blank(tensors.dtype, shape), 1000 + part)


def untouched(name: str, outputs: Sequence[Placed], inputs: Sequence[tuple[Placed, Tensor]] = ()) -> list[Result]:
    """Nothing was written around the outputs, nor into the inputs."""
    around = [Result(f"{name}: around output {n}", out.around(), out.around_before()) for n, out in enumerate(outputs)]
    return around + [Result(f"{name}: input {n}", here.tensor, data) for n, (here, data) in enumerate(inputs)]


@dataclass(frozen=True)
class Step:
    number: int
    group: int

    def needs(self) -> set[int]:
        """Groups that have to be there."""
        return {self.group}

    def makes(self) -> set[int]:
        return set()

    def ends(self) -> set[int]:
        return set()

    def calls(self, member: Member) -> list[Call]:
        raise NotImplementedError

    def play(self, here: Player) -> None:
        if member := here.member(self.group):
            for call in self.calls(member):
                here.make(call)


class Drawing:
    """Draws steps one after the other. groups: those that there are by then, 0 the default one.

    most_bytes: of a tensor.
    """

    def __init__(self, draw: random.Random, world: World, most_bytes: int = 2 * MIB) -> None:
        self.draw, self.world = draw, world
        self._most_bytes = most_bytes
        self.groups: dict[int, list[int]] = {0: list(range(world.size))}
        self.number = 0
        self.made = 0  # groups, the default one not counted
        self.lives: list[list[list[int]]] = [[]]  # members of the groups that were made in each, in order
        self._slice_bytes = [settings.slice_bytes() for settings in world.settings]
        self._large_left = 3  # tensors of more than 256 KiB

    def group(self) -> int:
        return 0 if self.draw.random() < 0.5 else self.draw.choice(list(self.groups))

    def size(self, group: int) -> int:
        return len(self.groups[group])

    def new_group(self, ranks: list[int]) -> int:
        self.made += 1
        self.groups[self.made] = ranks
        self.lives[-1].append(ranks)
        return self.made

    def named_before(self) -> list[int]:
        """Members of the group that had the next one's name in the life before: torch counts them anew."""
        place = len(self.lives[-1])
        before = self.lives[-2] if len(self.lives) > 1 else []
        return before[place] if place < len(before) else []

    def operation(self, group: int, dtype: str | None = None, of: Sequence[str] = OPERATIONS) -> Operation:
        names = [name for name in of if dtype is None or defined(name, dtype)]
        name = self.draw.choice([*["SUM"] * (4 * ("SUM" in names)), *names])
        factors = tuple(self.draw.choice((0.25, 0.5, 1.0, 1.5, 0.1, -0.75, 0.0)) for _ in range(self.size(group)))
        return Operation(name, factors, self.draw.random() < 0.3) if name == "PREMUL_SUM" else Operation(name)

    def reduced(
        self, operation: Operation, slot: int = 0, dtype: str | None = None, shape: Shape | None = None
    ) -> Tensors:
        kinds = [kind for kind in REDUCED if defined(operation.name, kind)]
        kind = dtype or self.draw.choice([*["float32"] * (3 * (kinds[0] == "float64")), *kinds])
        shape = self.shape(kind) if shape is None else shape
        return Tensors(self.number, slot, kind, shape, self.draw.choice(FLAVOURS), self.draw.choice(LAYOUTS))

    def moved(
        self, slot: int = 0, shape: Shape | None = None, most_bytes: int = 256 * KIB, dtype: str | None = None
    ) -> Tensors:
        kind = dtype or self.draw.choice(MOVED)
        shape = self.shape(kind, most_bytes) if shape is None else shape
        flavour = "small" if kind == "bool" else "bytes"
        return Tensors(self.number, slot, kind, shape, flavour, self.draw.choice(LAYOUTS))

    def shape(self, dtype: str, most_bytes: int = 2 * MIB) -> Shape:
        return self._folded(self.elements(getattr(torch, dtype).itemsize, most_bytes))

    def elements(self, item_bytes: int, most_bytes: int) -> int:
        """Few or many, and often just at a border: of grains, of slices, of what goes at once, of express calls."""
        draw, size = self.draw, self.world.size
        most_bytes = min(most_bytes, self._most_bytes, *(500 * each for each in self._slice_bytes))
        if self._large_left <= 0:
            most_bytes = min(most_bytes, 256 * KIB)
        kind = draw.random()
        if kind < 0.3:
            count = draw.choice((0, 1, 1, 2, 3, 5, 7, size - 1, size, size + 1, 15, 16, 17, 63, 65, 100))
        elif kind < 0.6:
            border = draw.choice((64, 4096, 64 * KIB, 256 * KIB, *self._slice_bytes)) * draw.choice((1, 1, 2, 3, size))
            count = max(0, border // item_bytes + draw.choice((-1, 0, 0, 1, 64 // item_bytes)))
        else:
            count = int(2 ** draw.uniform(1, 18))
        count = min(count, most_bytes // item_bytes)
        self._large_left -= count * item_bytes > 256 * KIB
        return count

    def _folded(self, count: int) -> Shape:
        if count == 1:
            return self.draw.choice(((), (1,), (1, 1)))
        divisors = [d for d in range(2, 65) if count and count % d == 0]
        if not divisors or self.draw.random() < 0.5:
            return (count,) if self.draw.random() < 0.8 else self.draw.choice(((count, 1), (1, count)))
        rows = self.draw.choice(divisors)
        rest = [d for d in range(2, 33) if count // rows % d == 0]
        shape = [rows, count // rows]
        if rest and self.draw.random() < 0.5:
            inner = self.draw.choice(rest)
            shape = [rows, inner, count // rows // inner]
        self.draw.shuffle(shape)
        return tuple(shape)
