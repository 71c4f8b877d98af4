"""A drawn world: on which machine and in which site each rank stands, and the settings of a program's two runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
_SIZES = (1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6)
_LARGE_SHARE = 0.03  # of the worlds have eight or nine machines, which stand in groups
_GROUPS_OF_MACHINES = {8: 2, 9: 3}  # docs/algorithms.md#groups-of-machines
_DEFAULTS = {"FAIRRING_TOTAL_MEMORY": 50 * MIB, "FAIRRING_SLICE_SIZE": 25 * MIB}


@dataclass(frozen=True)
class Settings:
    """variables: the same on all ranks. rows: a file of cost rows, which changes the choice of plans."""

    variables: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, float]] | None = None
    tls: bool = False

    def slice_bytes(self) -> int:
        """About: a slice takes an eighth of the staging at most."""
        total, most = (int(self.variables.get(name, default)) for name, default in _DEFAULTS.items())
        return min(most, total // 8)

    def __str__(self) -> str:
        words = [f"{name.removeprefix('FAIRRING_')}={value}" for name, value in self.variables.items()]
        return " ".join([*words, *["rows"] * (self.rows is not None), *["tls"] * self.tls]) or "defaults"


SMALL_SLICES = Settings({"FAIRRING_TOTAL_MEMORY": str(MIB), "FAIRRING_SLICE_SIZE": "4096"})


@dataclass(frozen=True)
class World:
    machines: tuple[int, ...]  # of each rank
    sites: tuple[int, ...]  # of each rank; all of them 0: no site is named
    settings: tuple[Settings, Settings]  # of the two runs

    @property
    def size(self) -> int:
        return len(self.machines)

    def variables(self, rank: int) -> dict[str, str]:
        named = {"FAIRRING_MACHINE": f"machine{self.machines[rank]}"}
        return {**named, "FAIRRING_SITE": f"site{self.sites[rank]}"} if any(self.sites) else named

    def order_of_sums(self, ranks: list[int]) -> list[Any]:
        """The places in the group, as nested lists: each list is summed in its order and rounded once."""
        sites: dict[int, dict[int, list[int]]] = {}
        for place, rank in enumerate(ranks):
            sites.setdefault(self.sites[rank], {}).setdefault(self.machines[rank], []).append(place)
        levels = [list(machines.values()) for machines in sites.values()]
        if len(levels) > 1 or len(levels[0]) < 8:
            return levels
        count, groups = len(levels[0]), _GROUPS_OF_MACHINES[len(levels[0])]
        return [levels[0][group * count // groups : (group + 1) * count // groups] for group in range(groups)]

    def __str__(self) -> str:
        sites: dict[int, dict[int, list[str]]] = {}
        for rank, (site, machine) in enumerate(zip(self.sites, self.machines, strict=True)):
            sites.setdefault(site, {}).setdefault(machine, []).append(str(rank))
        return " / ".join(" + ".join(",".join(ranks) for ranks in machines.values()) for machines in sites.values())


def draw_world(draw: random.Random) -> World:
    if draw.random() < _LARGE_SHARE:
        machines = list(range(draw.choice((8, 9))))
    else:
        size = draw.choice(_SIZES)
        machines = _spread(draw, size, draw.randint(1, size))
    sites = [0] * len(machines)
    if len(set(machines)) > 1 and draw.random() < 0.35:
        of_machine = _spread(draw, max(machines) + 1, draw.randint(2, min(3, len(set(machines)))))
        sites = [of_machine[machine] for machine in machines]
    first, second = _draw_settings(draw, max(sites) > 0), _draw_settings(draw, max(sites) > 0)
    return World(tuple(machines), tuple(sites), (first, second))


def _spread(draw: random.Random, count: int, places: int) -> list[int]:
    """A place for each of `count`, none left empty: half of the time in order."""
    chosen = [*range(places), *(draw.randrange(places) for _ in range(count - places))]
    draw.shuffle(chosen)
    return sorted(chosen) if draw.random() < 0.5 else chosen


def _draw_settings(draw: random.Random, with_sites: bool) -> Settings:
    total = draw.choice((None, None, None, 16 * MIB, 4 * MIB, MIB, 256 * KIB, 64 * KIB))
    largest = draw.choice((None, None, None, 4 * MIB, 300_000, 65_536, 50_000, 4 * KIB, 1000, 256, 64))
    if total is not None and (largest or 25 * MIB) > total // 8:
        largest = total // 8  # a memory that holds no slice is an error
    transports = [None, None, "auto", "tcp", "tcp", "tensorpipe:uv"]
    lanes = [None, None, "2", "3"]
    if with_sites:
        transports += ["rail=tcp,site=tensorpipe:uv", "rail=tensorpipe:uv,site=tcp"]
        lanes += ["rail=1,site=3"]
    drawn = {
        "FAIRRING_TOTAL_MEMORY": total,
        "FAIRRING_SLICE_SIZE": largest,
        "FAIRRING_TRANSPORT": draw.choice(transports),
        "FAIRRING_LANES": draw.choice(lanes),
        "FAIRRING_HELPERS": draw.choice((None, None, "1", "2")),
    }
    variables = {name: str(value) for name, value in drawn.items() if value is not None}
    tls = draw.random() < 0.1 and "tensorpipe" not in variables.get("FAIRRING_TRANSPORT", "")
    return Settings(variables, _draw_rows(draw) if draw.random() < 0.4 else None, tls)


def _draw_rows(draw: random.Random) -> dict[str, dict[str, float]]:
    def row() -> dict[str, float]:
        return {
            "latency_seconds": 10 ** draw.uniform(-6, -1.5),
            "per_message_seconds": 10 ** draw.uniform(-7, -3),
            "bytes_per_second": 10 ** draw.uniform(7, 10.5),
            "summed_bytes_per_second": 10 ** draw.uniform(8.5, 10.5),
        }

    return {level: row() for level in ("machine", "rail", "site")}
