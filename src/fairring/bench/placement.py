"""The ranks of each machine, as torchrun and `fairring lab` give them in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class PlacementError(RuntimeError):
    """The environment does not say which rank and machine this process is."""


@dataclass(frozen=True)
class Placement:
    """One rank's place. machine: torchrun's GROUP_RANK. master: the store's address. site: FAIRRING_SITE."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    machine: int
    master: tuple[str, int]
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
        rank, world, local_rank, local_world, machine = (int(environment[name]) for name in VARIABLES[:5])
        master = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
        return cls(rank, world, local_rank, local_world, machine, master, environment.get("FAIRRING_SITE", ""))


def describe(places: list[Placement]) -> str:
    """ "2 machines x 4 ranks", or the ranks of each machine if they are unequal: "machines of 4, 3, 2 ranks"."""
    sites = len({place.site for place in places})
    across = f", {sites} sites" if sites > 1 else ""
    ranks = [sum(place.machine == machine for place in places) for machine in sorted({p.machine for p in places})]
    if len(set(ranks)) == 1:
        return f"{len(ranks)} machine{'s' * (len(ranks) > 1)} x {ranks[0]} rank{'s' * (ranks[0] > 1)}{across}"
    return f"machines of {', '.join(map(str, ranks))} ranks{across}"
