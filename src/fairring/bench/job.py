"""A benchmark's ranks, and the default group, on gloo, that only coordinates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from fairring.bench.link import LinkSpeed, measure_link
from fairring.bench.placement import Placement


@dataclass(frozen=True)
class Job:
    place: Placement
    places: list[Placement]  # of all ranks

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes."""
        return self.place.rank == 0

    @property
    def machines(self) -> list[int]:
        """The numbers of the machines."""
        return sorted({place.machine for place in self.places})

    def ranks_of(self, place: str) -> list[int]:
        """The number of ranks of each "machine" or "site", the first rank's first."""
        return list(Counter(getattr(one, place) for one in self.places).values())

    @property
    def sites(self) -> int:
        return len({place.site for place in self.places})

    def said_by_machines(self, said: Any) -> list[Any]:
        """The value from one rank of each machine, in the machines' order. Called by all ranks at once."""
        of_all: list[Any] = [said] * self.place.world
        dist.all_gather_object(of_all, said)
        by_machine = {place.machine: one for place, one in zip(self.places, of_all, strict=True)}
        return [by_machine[machine] for machine in self.machines]

    def measure_link(self) -> LinkSpeed | None:
        """Between machines; None on one. Called by all ranks at once."""
        return measure_link(self.place, self.places) if len(self.machines) > 1 else None

    def measure_site_link(self) -> LinkSpeed | None:
        """Between sites; None in one. Called by all ranks at once."""
        return measure_link(self.place, self.places, "site") if self.sites > 1 else None


@contextmanager
def joined() -> Iterator[Job]:
    """Raises ValueError if this rank is the only one, PlacementError if this process is no rank."""
    place = Placement.from_environment()
    if place.world < 2:
        raise ValueError("WORLD_SIZE=1: a collective of one rank moves nothing; start 2 or more")
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world)
    try:
        places: list[Placement] = [place] * place.world
        dist.all_gather_object(places, place)
        yield Job(place, places)
    finally:
        dist.destroy_process_group()
