"""Steps that move tensors between the members of a group and reduce nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from random_programs.steps import Call, Drawing, Functional, Member, Result, Shape, Step, Tensors, untouched
from random_programs.values import raw
from random_programs.world import KIB


def _gathered_by_manager(m: Member, _root: int, outputs: list[Tensor], inputs: list[Tensor], _: Any) -> Any:
    with dist._coalescing_manager(m.group, async_ops=m.later) as block:
        dist.all_gather_into_tensor(outputs[0], inputs[0], m.group)
    return block if m.later else None


def _split(m: Member, _root: int, outputs: list[Tensor], inputs: list[Tensor], rows: Any) -> Any:
    return dist.all_to_all_single(outputs[0], inputs[0], rows[0], rows[1], group=m.group, async_op=m.later)


# Each gets the member, the root, its outputs and inputs, and the rows that it receives and sends.
_CALLS: dict[str, Callable[[Member, int, list[Tensor], list[Tensor], tuple[list[int], list[int]]], Any]] = {
    "broadcast": lambda m, root, out, _in, _: dist.broadcast(out[0], root, m.group, m.later),
    "gather": lambda m, root, out, given, _: dist.gather(given[0], out or None, root, m.group, m.later),
    "scatter": lambda m, root, out, given, _: dist.scatter(out[0], given or None, root, m.group, m.later),
    "all_gather": lambda m, _root, out, given, _: dist.all_gather(out, given[0], m.group, m.later),
    "all_gather concatenated": lambda m, _root, out, given, _: dist.all_gather_into_tensor(
        out[0], given[0], m.group, m.later
    ),
    "all_gather stacked": lambda m, _root, out, given, _: dist.all_gather_into_tensor(
        out[0], given[0], m.group, m.later
    ),
    "all_gather manager": _gathered_by_manager,
    "all_gather functional": lambda m, _root, _out, given, _: Functional(
        [functional.all_gather_tensor(given[0], 0, m.group)]
    ),
    "all_to_all": lambda m, _root, out, given, _: dist.all_to_all(out, given, m.group, m.later),
    "all_to_all equal": lambda m, _root, out, given, _: dist.all_to_all_single(
        out[0], given[0], group=m.group, async_op=m.later
    ),
    "all_to_all single": _split,
    "all_to_all functional": lambda m, _root, _out, given, rows: Functional(
        [functional.all_to_all_single(given[0], rows[0], rows[1], m.group)]
    ),
}
_JOINED = ("concatenated", "stacked", "manager", "functional", "equal", "single")  # into one tensor


@dataclass(frozen=True)
class Exchange(Step):
    """shapes[giver][taker]: of what one member gives to another; the same for all takers unless it is an all_to_all."""

    form: str
    root: int
    tensors: Tensors
    shapes: tuple[tuple[Shape, ...], ...]

    @staticmethod
    def draw(drawing: Drawing) -> Exchange:
        draw, group = drawing.draw, drawing.group()
        size = drawing.size(group)
        form = draw.choice(["broadcast", "gather", "scatter", *_CALLS])
        tensors = drawing.moved(shape=())
        if "functional" in form and tensors.dtype.startswith("float8"):
            form = form.replace("functional", "single" if "to_all" in form else "concatenated")
        if form in ("all_to_all single", "all_to_all functional"):
            tail = draw.choice(((), (3,), (2, 5)))
            shapes = [[(draw.choice((0, 1, 2, 33, 500)), *tail) for _ in range(size)] for _ in range(size)]
        elif form in ("all_gather", "all_to_all") and draw.random() < 0.5:
            shapes = [[drawing.shape(tensors.dtype, 8 * KIB) for _ in range(size)] for _ in range(size)]
            shapes = shapes if form == "all_to_all" else [[row[0]] * size for row in shapes]
        else:
            shape = drawing.shape(tensors.dtype, 128 * KIB)
            shapes = [[shape or (1,) if form.endswith(_JOINED) else shape] * size] * size
        root = draw.randrange(size)
        return Exchange(drawing.number, group, form, root, tensors, tuple(map(tuple, shapes)))

    def calls(self, member: Member) -> list[Call]:
        root, me = member.ranks[self.root], member.place
        name = f"step {self.number} {self.form} {self.tensors} root {root} {self.shapes}"
        pairs_given, pairs_wanted = self._pairs(member)
        given = [self._part(member, *pair) for pair in pairs_given]
        wanted = [self._part(member, *pair) for pair in pairs_wanted]
        if self.form.endswith(_JOINED):
            given = [self._as_one(given)] if "to_all" in self.form else given
            wanted = [self._as_one(wanted)]
        inputs = [(member.placed(self.tensors, part, number), part) for number, part in enumerate(given)]
        outputs = [member.output(self.tensors, tuple(part.shape), number) for number, part in enumerate(wanted)]
        if self.form == "broadcast" and me == self.root:
            outputs = [member.placed(self.tensors, wanted[0])]
        received, sent = (
            [sum(self.shapes[giver][taker][:1]) for giver, taker in p] for p in (pairs_wanted, pairs_given)
        )
        got = [each.tensor for each in outputs]

        def start() -> Any:
            work = _CALLS[self.form](member, root, got, [placed.tensor for placed, _ in inputs], (received, sent))
            if isinstance(work, Functional):
                got[:] = work.tensors
            return work

        def results() -> list[Result]:
            shared = self.form.startswith(("broadcast", "all_gather"))
            pairs = enumerate(zip(got, wanted, strict=True))
            found = [Result(f"{name} {number}", *pair, shared=shared) for number, pair in pairs]
            return found + untouched(name, outputs, inputs)

        return [Call(name, self.group, start, results)]

    def _pairs(self, member: Member) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Who gives to whom, as far as this member gives, and as far as it takes."""
        me, everyone, is_root = member.place, member.everyone, member.place == self.root
        collective = self.form.split()[0]
        if collective == "broadcast":
            return [], [(self.root, 0)]
        if collective == "gather":
            return [(me, 0)], [(giver, 0) for giver in everyone] if is_root else []
        if collective == "scatter":
            return [(me, taker) for taker in everyone] if is_root else [], [(self.root, me)]
        if collective == "all_gather":
            return [(me, 0)], [(giver, 0) for giver in everyone]
        return [(me, taker) for taker in everyone], [(giver, me) for giver in everyone]

    def _part(self, member: Member, giver: int, taker: int) -> Tensor:
        return member.data(self.tensors, giver, self.shapes[giver][taker], taker)

    def _as_one(self, parts: list[Tensor]) -> Tensor:
        whole = torch.cat([raw(part) for part in parts]).view(parts[0].dtype)
        if self.form.endswith("stacked"):
            return whole.view(len(parts), *parts[0].shape)
        return whole.view(sum(part.shape[0] for part in parts), *parts[0].shape[1:])
