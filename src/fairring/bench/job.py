"""A benchmark's ranks, as torchrun and `fairring lab` place them, and the default group that only coordinates them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from fairring import register

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class PlacementError(RuntimeError):
    """The environment does not say which rank and machine this process is."""


@dataclass(frozen=True)
class Placement:
    """One rank's place. machine: torchrun's GROUP_RANK. master: the store's address. site: FAIRRING_SITE."""

    rank: int
    world: int
    machine: int
    master: tuple[str, int] = ("", 0)
    site: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Placement:
        """Raises PlacementError, which names the missing variables."""
        missing = [name for name in VARIABLES if name not in environment]
        if missing:
            raise PlacementError(
                f"{', '.join(missing)} not set: start `-m fairring bench` with torchrun on every machine, or give"
                " --machines and --ranks for an emulated cluster"
            )
        rank, world, machine = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "GROUP_RANK"))
        master = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
        return cls(rank, world, machine, master, environment.get("FAIRRING_SITE", ""))


@dataclass(frozen=True)
class Job:
    place: Placement
    places: list[Placement]  # of all ranks

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes."""
        return self.place.rank == 0

    def ranks_of(self, kind: str) -> list[int]:
        """The number of ranks of each "machine" or "site", the first rank's first."""
        return list(Counter(getattr(one, kind) for one in self.places).values())

    def from_machines(self, told: Any) -> list[Any]:
        """The value that the last rank of each machine tells. Called by all ranks at once."""
        of_all: list[Any] = [told] * self.place.world
        dist.all_gather_object(of_all, told)
        return list({place.machine: one for place, one in zip(self.places, of_all, strict=True)}.values())

    def describe(self) -> str:
        """ "2 machines x 4 ranks", or the ranks of each machine if they are unequal: "machines of 4, 3, 2 ranks"."""
        ranks, sites = self.ranks_of("machine"), len(self.ranks_of("site"))
        across = f", {sites} sites" if sites > 1 else ""
        if len(set(ranks)) == 1:
            return f"{len(ranks)} machine{'s' * (len(ranks) > 1)} x {ranks[0]} rank{'s' * (ranks[0] > 1)}{across}"
        return f"machines of {', '.join(map(str, ranks))} ranks{across}"


@contextmanager
def joined(device: str) -> Iterator[Job]:
    """device: the kind that has the tensors; from now on torch makes them there.

    Raises ValueError if this rank is the only one or has no such device, PlacementError if this process is no rank.
    """
    place = Placement.from_environment()
    if place.world < 2:
        raise ValueError("WORLD_SIZE=1: a collective of one rank moves nothing; start 2 or more")
    if device == "cuda":
        take_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world)
    try:
        places: list[Placement] = [place] * place.world
        dist.all_gather_object(places, place)
        yield Job(place, places)
    finally:
        dist.destroy_process_group()


def take_device(local_rank: int) -> None:
    """Ranks of a machine take its GPUs in turn."""
    if not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no CUDA device here")
    register()  # first: it asks CUDA for as many hardware queues as Fairring needs
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    torch.set_default_device("cuda")


def is_on_gpu() -> bool:
    """Whether calls return before their results are there."""
    return torch.get_default_device().type == "cuda"
