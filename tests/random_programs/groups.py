"""Steps that make groups and end them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from random_programs.steps import GROUP_TIMEOUT, Drawing, Step

if TYPE_CHECKING:
    from random_programs.rank import Player

_MOST_GROUPS = 6


@dataclass(frozen=True)
class NewGroup(Step):
    """local: its members alone make it. Every other rank makes one of its own then: torch names groups by number."""

    made: int
    ranks: tuple[int, ...]
    local: bool

    @staticmethod
    def draw(drawing: Drawing) -> NewGroup | None:
        if len(drawing.groups) >= _MOST_GROUPS:
            return None
        draw, size = drawing.draw, drawing.world.size
        ranks = drawing.named_before() if draw.random() < 0.5 else []
        others = [rank for rank in range(size) if rank not in ranks]
        added = draw.sample(others, draw.randint(min(1, len(others)), len(others)))
        ranks = ranks + (sorted(added) if draw.random() < 0.7 else added)
        return NewGroup(drawing.number, 0, drawing.new_group(ranks), tuple(ranks), draw.random() < 0.3)

    def makes(self) -> set[int]:
        return {self.made}

    def play(self, here: Player) -> None:
        ranks = list(self.ranks)
        if self.local:
            alone = here.rank not in ranks
            members = [here.rank] if alone else ranks
            group = dist.new_group(members, GROUP_TIMEOUT, use_local_synchronization=True, sort_ranks=False)
        else:
            group = dist.new_group(ranks, GROUP_TIMEOUT, sort_ranks=False)
        here.add(self.made, group, ranks)


@dataclass(frozen=True)
class SplitGroup(Step):
    """parts: of each new group, by places in the one that is split; some may be in none."""

    made: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    @staticmethod
    def draw(drawing: Drawing) -> SplitGroup | None:
        if len(drawing.groups) >= _MOST_GROUPS:
            return None
        draw, group = drawing.draw, drawing.group()
        ranks = drawing.groups[group]
        places = draw.sample(range(len(ranks)), len(ranks))
        cuts = sorted(draw.sample(range(1, len(ranks)), draw.randint(0, min(2, len(ranks) - 1))))
        parts = [places[low:high] for low, high in zip([0, *cuts], [*cuts, len(ranks)], strict=True)]
        parts = [sorted(part) for part in parts] if draw.random() < 0.7 else parts
        if len(parts) > 1 and draw.random() < 0.3:
            parts.pop()
        made = [drawing.new_group([ranks[place] for place in part]) for part in parts]
        return SplitGroup(drawing.number, group, tuple(made), tuple(map(tuple, parts)))

    def makes(self) -> set[int]:
        return set(self.made)

    def play(self, here: Player) -> None:
        if member := here.member(self.group):
            group = dist.split_group(member.group, [list(part) for part in self.parts], GROUP_TIMEOUT)
        else:  # as in NewGroup
            group = dist.new_group([here.rank], GROUP_TIMEOUT, use_local_synchronization=True)
        ranks = here.ranks(self.group)
        for made, part in zip(self.made, self.parts, strict=True):
            here.add(made, group, [ranks[place] for place in part])


@dataclass(frozen=True)
class Destroy(Step):
    @staticmethod
    def draw(drawing: Drawing) -> Destroy | None:
        others = [group for group in drawing.groups if group]
        if not others:
            return None
        group = drawing.draw.choice(others)
        del drawing.groups[group]
        return Destroy(drawing.number, group)

    def ends(self) -> set[int]:
        return {self.group}

    def play(self, here: Player) -> None:
        here.settle(group=self.group)
        group = here.remove(self.group)
        if group is not None:
            dist.destroy_process_group(group)


@dataclass(frozen=True)
class Again(Step):
    """All groups end, and the default one is made again; then names of groups come again, with other members.

    same_keys: on the same part of the store.
    """

    same_keys: bool
    ended: tuple[int, ...]

    @staticmethod
    def draw(drawing: Drawing) -> Again:
        ended = [group for group in drawing.groups if group]
        drawing.groups = {0: drawing.groups[0]}
        drawing.lives.append([])
        return Again(drawing.number, 0, drawing.draw.random() < 0.7, tuple(ended))

    def ends(self) -> set[int]:
        return set(self.ended)

    def play(self, here: Player) -> None:
        here.settle()
        dist.destroy_process_group()
        here.init_again(self.same_keys)
