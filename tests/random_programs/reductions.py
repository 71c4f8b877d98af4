"""Steps that all-reduce or reduce dense tensors, in all forms that c10d has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from fairring import _core
from random_programs.steps import (
    Call,
    Drawing,
    Functional,
    Member,
    Result,
    Step,
    Tensors,
    untouched,
)
from random_programs.values import OPERATIONS, REDUCED, Operation, defined, flat
from random_programs.world import KIB

if TYPE_CHECKING:
    from random_programs.rank import Player


@dataclass(frozen=True)
class AllReduce(Step):
    """form: one (calls of their own), reduce, coalesced, manager, functional, functional coalesced."""

    form: str
    root: int  # of a reduce
    operation: Operation
    tensors: tuple[Tensors, ...]

    @staticmethod
    def draw(drawing: Drawing) -> AllReduce:
        draw, group = drawing.draw, drawing.group()
        form = draw.choice([*["one"] * 4, "reduce", "coalesced", "manager", "functional", "functional coalesced"])
        names = [name for name in OPERATIONS if name != "PREMUL_SUM" or not form.startswith("functional")]
        operation = drawing.operation(group, of=names)
        first = drawing.reduced(operation)
        alike = first.dtype if "coalesced" in form or operation.on_tensor else None
        more = [drawing.reduced(operation, slot, alike) for slot in range(1, draw.choice((1, 1, 2, 5, 9)))]
        return AllReduce(drawing.number, group, form, draw.randrange(drawing.size(group)), operation, (first, *more))

    @staticmethod
    def draw_each(drawing: Drawing) -> Iterator[AllReduce]:
        """Every operation and dtype, as an all_reduce, as a reduce, and past torch's own view of complex numbers; and
        every operation on several tensors.
        """
        for form in ("one", "reduce", "functional"):
            for name in [name for name in OPERATIONS if name != "PREMUL_SUM" or form != "functional"]:
                for dtype in [dtype for dtype in REDUCED if defined(name, dtype)]:
                    yield AllReduce._drawn(drawing, form, name, [dtype])
        for name in OPERATIONS:
            dtypes = [dtype for dtype in REDUCED if defined(name, dtype)]
            yield AllReduce._drawn(drawing, "coalesced", name, dtypes[:1] * 9)
            yield AllReduce._drawn(drawing, "manager", name, dtypes if name != "PREMUL_SUM" else dtypes[:1] * 9)

    @staticmethod
    def _drawn(drawing: Drawing, form: str, name: str, dtypes: list[str]) -> AllReduce:
        operation = drawing.operation(0, of=[name])
        tensors = [drawing.reduced(operation, slot, dtype) for slot, dtype in enumerate(dtypes)]
        root = drawing.draw.randrange(drawing.size(0))
        return AllReduce(drawing.number, 0, form, root, operation, tuple(tensors))

    def calls(self, member: Member) -> list[Call]:
        if self.form in ("one", "reduce", "functional"):
            return [self._call(member, [tensors]) for tensors in self.tensors]
        return [self._call(member, list(self.tensors))]

    def _call(self, member: Member, tensors: list[Tensors]) -> Call:
        name = f"step {self.number}.{tensors[0].slot} all_reduce {self.form} {self.operation}"
        data = [member.data(each, member.place) for each in tensors]
        placed = [member.placed(*pair) for pair in zip(tensors, data, strict=True)]
        got = [each.tensor for each in placed]

        def start() -> Any:
            operation = self.operation.reduce_op(member.place, tensors[0].dtype)
            work = self._start(member, [each.tensor for each in placed], operation)
            if isinstance(work, Functional):
                got[:], work.tensors = work.tensors, got
            return work

        def results() -> list[Result]:
            found = untouched(name, placed)
            if self.form.startswith("functional"):
                found = untouched(name, placed, list(zip(placed, data, strict=True)))
            elif self.form == "reduce" and member.place != self.root:
                return found
            for each, output in zip(tensors, got, strict=True):
                parts = [flat(member.data(each, place)) for place in member.everyone]
                wanted = self.operation.expected(parts, member.order)
                found.append(Result(f"{name} {each}", flat(output), wanted, "reduced", shared=self.form != "reduce"))
            return found

        return Call(name, self.group, start, results)

    def _start(self, member: Member, here: list[Tensor], operation: Any) -> Any:
        group, word = member.group, self.operation.name.lower()
        if self.form == "one":
            return dist.all_reduce(here[0], operation, group, member.later)
        if self.form == "reduce":
            return dist.reduce(here[0], member.ranks[self.root], operation, group, member.later)
        if self.form == "coalesced":
            return dist.all_reduce_coalesced(here, operation, group, member.later)
        if self.form == "functional":
            return Functional([functional.all_reduce(here[0], word, group)])
        if self.form == "functional coalesced":
            return Functional(functional.all_reduce_coalesced(here, word, group))
        with dist._coalescing_manager(group, async_ops=member.later) as block:
            for each in here:
                dist.all_reduce(each, operation, group)
        return block if member.later else None


@dataclass(frozen=True)
class BetweenSites(Step):
    """fp32 that crosses between sites as bf16, with nothing kept from a call before."""

    operation: Operation
    tensors: Tensors

    @staticmethod
    def draw(drawing: Drawing) -> BetweenSites | None:
        if not any(drawing.world.sites):
            return None
        operation = Operation(drawing.draw.choice(("SUM", "AVG")))
        shape = (drawing.elements(4, 512 * KIB),)
        flavour = drawing.draw.choice(("small", "any"))
        tensors = Tensors(drawing.number, 0, "float32", shape, flavour, None)
        return BetweenSites(drawing.number, drawing.group(), operation, tensors)

    def calls(self, member: Member) -> list[Call]:
        name = f"step {self.number} between sites {self.operation} {self.tensors}"
        tensor = member.data(self.tensors, member.place)
        residual = torch.zeros_like(tensor)

        def start() -> Any:
            backend = member.group._get_backend(tensor.device)
            operation = dist.ReduceOp(self.operation.reduce_op(member.place, "float32"))
            return _core.all_reduce_between_sites(backend, "bf16", tensor, residual, operation)

        def results() -> list[Result]:
            return [Result(name, flat(tensor), self._expected(member), "reduced", shared=True)]

        return [Call(name, self.group, start, results)]

    def _expected(self, member: Member) -> Tensor:
        parts = [member.data(self.tensors, place) for place in member.everyone]
        if not member.several_sites:
            return self.operation.expected(parts, member.order)
        sites = [self.operation.expected(parts, [site]).bfloat16().float() for site in member.order]
        total = sites[0]
        for site in sites[1:]:
            total = total + site
        return total.bfloat16().float()


@dataclass(frozen=True)
class Undefined(Step):
    """An operation that its dtype does not have: an error on all ranks, and the group goes on."""

    operation: str
    dtype: str

    @staticmethod
    def draw(drawing: Drawing) -> Undefined:
        wrong = [(name, dtype) for name in OPERATIONS for dtype in REDUCED if not defined(name, dtype)]
        name, dtype = drawing.draw.choice(wrong)
        return Undefined(drawing.number, drawing.group(), name, dtype)

    def calls(self, member: Member) -> list[Call]:
        name = f"step {self.number} all_reduce {self.operation} of {self.dtype}, which is not defined"
        refused: list[bool] = []

        def start() -> None:
            tensor = torch.ones(5, dtype=getattr(torch, self.dtype))
            operation = Operation(self.operation, (1.0,) * len(member.ranks))
            try:
                dist.all_reduce(tensor, operation.reduce_op(member.place, self.dtype), member.group)
            except (RuntimeError, ValueError, TypeError):
                refused.append(True)

        def results() -> list[Result]:
            return [Result(name, torch.tensor(len(refused)), torch.tensor(1))]

        return [Call(name, self.group, start, results)]


@dataclass(frozen=True)
class AtOnce(Step):
    """All-reduces on several groups: from a thread for each, or begun in another order on every rank."""

    steps: tuple[AllReduce, ...]
    threads: bool

    @staticmethod
    def draw(drawing: Drawing) -> AtOnce | None:
        if len(drawing.groups) < 2:
            return None
        groups = drawing.draw.sample(list(drawing.groups), drawing.draw.randint(2, min(4, len(drawing.groups))))
        steps = []
        for slot, group in enumerate(groups):
            operation = drawing.operation(group, "float32")
            tensors = tuple(drawing.reduced(operation, 10 * slot + number, "float32") for number in range(3))
            steps.append(AllReduce(drawing.number, group, "one", 0, operation, tensors))
        return AtOnce(drawing.number, groups[0], tuple(steps), drawing.draw.random() < 0.5)

    def needs(self) -> set[int]:
        return {step.group for step in self.steps}

    def play(self, here: Player) -> None:
        members = [(step, member) for step in self.steps if (member := here.member(step.group))]
        calls = [step.calls(dataclasses.replace(member, later=True)) for step, member in members]
        if self.threads:
            here.make_at_once(calls)
            return
        while calls := [each for each in calls if each]:
            here.make(here.own.choice(calls).pop(0))
