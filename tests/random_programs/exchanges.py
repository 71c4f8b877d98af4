"""Steps in which each member of a group gets what others give it, or the sum of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from random_programs.steps import Call, Drawing, Functional, Member, Result, Shape, Step, Tensors, untouched
from random_programs.values import MOVED, OPERATIONS, REDUCED, Operation, defined, flat, raw
from random_programs.world import KIB


@dataclass(frozen=True)
class Start:
    """The input of a form of a call: its tensors; the rows that it takes and gives; its root or its operation."""

    member: Member
    outputs: list[Tensor]
    inputs: list[Tensor]
    rows: tuple[list[int], list[int]]
    root: int
    operation: Any
    word: str  # the operation's, for functional collectives

    def rooted(self, call: Callable[..., Any], *tensors: Any) -> Any:
        return call(*tensors, self.root, self.member.group, self.member.later)

    def plain(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments, group=self.member.group, async_op=self.member.later)

    def managed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        with dist._coalescing_manager(self.member.group, async_ops=self.member.later) as block:
            call(*arguments, group=self.member.group)
        return block if self.member.later else None

    def functional(self, call: Callable[..., Any], *arguments: Any) -> Functional:
        return Functional([call(self.inputs[0], *arguments, self.member.group)])


_FORMS: dict[str, Callable[[Start], Any]] = {
    "broadcast": lambda s: s.rooted(dist.broadcast, s.outputs[0]),
    "gather": lambda s: s.rooted(dist.gather, s.inputs[0], s.outputs or None),
    "scatter": lambda s: s.rooted(dist.scatter, s.outputs[0], s.inputs or None),
    "all_gather": lambda s: s.plain(dist.all_gather, s.outputs, s.inputs[0]),
    "all_gather concatenated": lambda s: s.plain(dist.all_gather_into_tensor, s.outputs[0], s.inputs[0]),
    "all_gather stacked": lambda s: s.plain(dist.all_gather_into_tensor, s.outputs[0], s.inputs[0]),
    "all_gather managed": lambda s: s.managed(dist.all_gather_into_tensor, s.outputs[0], s.inputs[0]),
    "all_gather functional": lambda s: s.functional(functional.all_gather_tensor, 0),
    "all_to_all": lambda s: s.plain(dist.all_to_all, s.outputs, s.inputs),
    "all_to_all concatenated": lambda s: s.plain(dist.all_to_all_single, s.outputs[0], s.inputs[0]),
    "all_to_all split": lambda s: s.plain(dist.all_to_all_single, s.outputs[0], s.inputs[0], *s.rows),
    "all_to_all functional": lambda s: s.functional(functional.all_to_all_single, *s.rows),
    "reduce_scatter": lambda s: s.plain(dist.reduce_scatter, s.outputs[0], s.inputs, s.operation),
    "reduce_scatter concatenated": lambda s: s.plain(
        dist.reduce_scatter_tensor, s.outputs[0], s.inputs[0], s.operation
    ),
    "reduce_scatter stacked": lambda s: s.plain(dist.reduce_scatter_tensor, s.outputs[0], s.inputs[0], s.operation),
    "reduce_scatter managed": lambda s: s.managed(dist.reduce_scatter_tensor, s.outputs[0], s.inputs[0], s.operation),
    "reduce_scatter functional": lambda s: s.functional(functional.reduce_scatter_tensor, s.word, 0),
}
_MORE_OFTEN = ["broadcast", "gather", "scatter", "reduce_scatter"]
_AS_LISTS = ("broadcast", "gather", "scatter", "all_gather", "all_to_all", "reduce_scatter")  # of any shapes


@dataclass(frozen=True)
class Exchange(Step):
    """shapes[giver][taker]: of what one gives to another. Who gives the same to all has a row of equal shapes."""

    form: str
    root: int
    operation: Operation
    tensors: Tensors
    shapes: tuple[tuple[Shape, ...], ...]

    @staticmethod
    def draw(drawing: Drawing) -> Exchange:
        draw, group = drawing.draw, drawing.group()
        form = draw.choice([*_FORMS, *_MORE_OFTEN])
        names = [name for name in OPERATIONS if name != "PREMUL_SUM" or "functional" not in form]
        operation = drawing.operation(group, of=names)
        tensors = drawing.reduced(operation, shape=()) if "reduce" in form else drawing.moved(shape=())
        return Exchange._drawn(drawing, group, form, operation, tensors)

    @staticmethod
    def draw_each(drawing: Drawing) -> Iterator[Exchange]:
        """Every form, with every dtype that it moves, or every operation and dtype that it reduces."""
        for form in _FORMS:
            if "reduce" not in form:
                for dtype in MOVED:
                    moved = drawing.moved(shape=(), dtype=dtype)
                    yield Exchange._drawn(drawing, 0, form, Operation("SUM"), moved)
                continue
            for name in [name for name in OPERATIONS if name != "PREMUL_SUM" or "functional" not in form]:
                for dtype in [dtype for dtype in REDUCED if defined(name, dtype)]:
                    operation = drawing.operation(0, of=[name])
                    yield Exchange._drawn(drawing, 0, form, operation, drawing.reduced(operation, 0, dtype, ()))

    @staticmethod
    def _drawn(drawing: Drawing, group: int, form: str, operation: Operation, tensors: Tensors) -> Exchange:
        draw, size = drawing.draw, drawing.size(group)
        if "functional" in form and tensors.dtype.startswith("float8"):
            form = form.replace("functional", "split" if "to_all" in form else "concatenated")
        if form in ("all_to_all split", "all_to_all functional"):
            tail = draw.choice(((), (3,), (2, 5)))
            shapes = [[(draw.choice((0, 1, 2, 33, 500)), *tail) for _ in range(size)] for _ in range(size)]
        elif form in _AS_LISTS[3:] and draw.random() < 0.5:
            shapes = [[drawing.shape(tensors.dtype, 8 * KIB) for _ in range(size)] for _ in range(size)]
            shapes = [[row[0]] * size for row in shapes] if form == "all_gather" else shapes
            shapes = [shapes[0]] * size if form == "reduce_scatter" else shapes
        else:
            shape = drawing.shape(tensors.dtype, 128 * KIB)
            shapes = [[shape if form in _AS_LISTS else shape or (1,)] * size] * size
        root = draw.randrange(size)
        return Exchange(drawing.number, group, form, root, operation, tensors, tuple(map(tuple, shapes)))

    def calls(self, member: Member) -> list[Call]:
        name = f"step {self.number} {self.form} {self.operation} root {self.root} {self.tensors} {self.shapes}"
        gives, takes = self._pairs(member)
        given = [self._part(member, *pair) for pair in gives]
        wanted = [self._part(member, *pair) for pair in takes]
        if self.form not in _AS_LISTS:
            given = [self._as_one(given)] if len(gives) > 1 or "all_gather" not in self.form else given
            wanted = [self._as_one(wanted)] if "reduce" not in self.form else wanted
        inputs = [(member.placed(self.tensors, part, number), part) for number, part in enumerate(given)]
        shapes = [tuple(part.shape) for part in wanted] if "reduce" not in self.form else [self.shapes[0][member.place]]
        outputs = [member.output(self.tensors, shape, number) for number, shape in enumerate(shapes)]
        if self.form == "broadcast" and member.place == self.root:
            outputs = [member.placed(self.tensors, wanted[0])]
        got = [each.tensor for each in outputs]

        def start() -> Any:
            taken, sent = ([sum(self.shapes[giver][taker][:1]) for giver, taker in pairs] for pairs in (takes, gives))
            moves = "reduce" not in self.form
            operation = None if moves else self.operation.reduce_op(member.place, self.tensors.dtype)
            sources, word = [placed.tensor for placed, _ in inputs], self.operation.name.lower()
            work = _FORMS[self.form](
                Start(member, got, sources, (taken, sent), member.ranks[self.root], operation, word)
            )
            if isinstance(work, Functional):
                got[:], work.tensors = work.tensors, got
            return work

        def results() -> list[Result]:
            found = untouched(name, outputs, inputs)
            if "reduce" in self.form:
                total = self.operation.expected([flat(part) for part in wanted], member.order)
                return [Result(name, flat(got[0]), total, "reduced"), *found]
            pairs = enumerate(zip(got, wanted, strict=True))
            shared = self.form.startswith(("broadcast", "all_gather"))
            return [Result(f"{name} {number}", *pair, shared=shared) for number, pair in pairs] + found

        return [Call(name, self.group, start, results)]

    def _pairs(self, member: Member) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Givers and takers: of what this member gives, and of what it takes."""
        me, everyone, is_root = member.place, member.everyone, member.place == self.root
        collective = self.form.split()[0]
        if collective == "broadcast":
            return [], [(self.root, 0)]
        if collective == "scatter":
            return [(me, taker) for taker in everyone] if is_root else [], [(self.root, me)]
        if collective in ("gather", "all_gather"):
            return [(me, 0)], [(giver, 0) for giver in everyone] if is_root or collective == "all_gather" else []
        return [(me, taker) for taker in everyone], [(giver, me) for giver in everyone]

    def _part(self, member: Member, giver: int, taker: int) -> Tensor:
        return member.data(self.tensors, giver, self.shapes[giver][taker], taker)

    def _as_one(self, parts: list[Tensor]) -> Tensor:
        whole = torch.cat([raw(part) for part in parts]).view(parts[0].dtype)
        if self.form.endswith("stacked"):
            return whole.view(len(parts), *parts[0].shape)
        return whole.view(sum(part.shape[0] for part in parts), *parts[0].shape[1:])
