"""Steps that send messages and objects, and barriers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from random_programs.memory import blank
from random_programs.steps import Call, Drawing, Member, Result, Step, Tensors


@dataclass(frozen=True)
class Messages(Step):
    """form: blocking, any (of the source), asynchronous, batch. pairs: who sends to whom, by their places."""

    form: str
    pairs: tuple[tuple[int, int], ...]
    tensors: tuple[Tensors, ...]

    @staticmethod
    def draw(drawing: Drawing) -> Messages | None:
        draw, group = drawing.draw, drawing.group()
        size = drawing.size(group)
        if size < 2:
            return None
        form = draw.choice(("blocking", "any", "asynchronous", "asynchronous", "batch"))
        count = draw.randint(1, 6) if form != "any" else 1
        pairs = [(sender, receiver) for sender, receiver in (draw.sample(range(size), 2) for _ in range(count))]
        contiguous = [dataclasses.replace(drawing.moved(slot), layout=None) for slot in range(count)]
        return Messages(drawing.number, group, form, tuple(pairs), tuple(contiguous))

    def calls(self, member: Member) -> list[Call]:
        mine = [slot for slot, pair in enumerate(self.pairs) if member.place in pair]
        messages = [self._message(member, slot) for slot in mine]
        if self.form != "batch" or not mine:
            return [Call(name, self.group, start, results, False) for name, start, results, _ in messages]

        def start() -> Any:
            return _All(dist.batch_isend_irecv([operation for *_, operation in messages]))

        def results() -> list[Result]:
            return [each for _, _, results_of_one, _ in messages for each in results_of_one()]

        return [Call(f"step {self.number} batch of messages", self.group, start, results)]

    def _message(
        self, member: Member, slot: int
    ) -> tuple[str, Callable[[], Any], Callable[[], list[Result]], dist.P2POp]:
        tensors, (sender, receiver) = self.tensors[slot], self.pairs[slot]
        source, target = member.ranks[sender], member.ranks[receiver]
        name = f"step {self.number}.{slot} {self.form} message {tensors} from {source} to {target}"
        data, sends = member.data(tensors, sender), member.place == sender
        here = data.clone() if sends else blank(tensors.dtype, tensors.shape)
        group, tag = member.group, 10 * self.number + slot

        def start() -> Any:
            if self.form == "asynchronous":
                return dist.isend(here, target, group, tag) if sends else dist.irecv(here, source, group, tag)
            if sends:
                dist.send(here, target, group, tag)
            else:
                came_from = dist.recv(here, None if self.form == "any" else source, group, tag)
                assert came_from == source, f"{name}: it came from {came_from}"
            return None

        operation = dist.P2POp(dist.isend if sends else dist.irecv, here, target if sends else source, group, tag)
        return name, start, lambda: [Result(name, here, data)], operation


class _All:
    """Works as one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


@dataclass(frozen=True)
class Objects(Step):
    """form: all_gather, broadcast, gather, or scatter. length: of the objects, which grow with the rank."""

    form: str
    root: int
    length: int

    @staticmethod
    def draw(drawing: Drawing) -> Objects:
        draw, group = drawing.draw, drawing.group()
        form = draw.choice(("all_gather", "broadcast", "gather", "scatter"))
        root = draw.randrange(drawing.size(group))
        return Objects(drawing.number, group, form, root, draw.choice((0, 1, 10, 3000)))

    def calls(self, member: Member) -> list[Call]:
        name = f"step {self.number} {self.form} of objects, length {self.length}"
        things = [{"of": place, "text": "äx" * self.length * place, "list": [self.number]} for place in member.everyone]
        root, is_root, group = member.ranks[self.root], member.place == self.root, member.group
        nothing: list[Any] = [None] * len(things)
        got = nothing.copy()

        def start() -> None:
            if self.form == "all_gather":
                dist.all_gather_object(got, things[member.place], group)
            elif self.form == "broadcast":
                got[:] = things if is_root else nothing
                dist.broadcast_object_list(got, root, group)
            elif self.form == "gather":
                dist.gather_object(things[member.place], got if is_root else None, root, group)
            else:
                dist.scatter_object_list(got, things if is_root else None, root, group)

        def results() -> list[Result]:
            wanted = nothing if self.form == "gather" and not is_root else things
            right = got[0] == things[member.place] if self.form == "scatter" else got == wanted
            return [Result(name, torch.tensor(right), torch.tensor(True))]

        return [Call(name, self.group, start, results)]


@dataclass(frozen=True)
class Barrier(Step):
    """When ranks came and left is compared afterwards (play.py)."""

    @staticmethod
    def draw(drawing: Drawing) -> Barrier:
        return Barrier(drawing.number, drawing.group())

    def calls(self, member: Member) -> list[Call]:
        def start() -> Any:
            return dist.barrier(member.group, async_op=member.later)

        return [Call(f"step {self.number} barrier", self.group, start, list)]
