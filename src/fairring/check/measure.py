"""Latency and bandwidth of each level, as Fairring's own all-reduce has them: in groups that have only that level.

All groups of a level are measured at once, as they work at once in a real all-reduce, so a rank's bandwidth is its
share. The slowest rank's median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fairring import _core, cost_rows, interfaces, register
from fairring.check import findings, installation, report, saved_rows, variables
from fairring.check.saved_rows import LARGE_BYTES, SMALL_BYTES, Measured
from fairring.config import Config

ROUNDS_SMALL, ROUNDS_LARGE, WARM_UP = 50, 7, 3


def join(environment: Mapping[str, str], save: Path | None, seconds: float) -> dict[str, Any] | None:
    """To be called on all ranks at once. The report on rank 0, None on the others. save: where the cost rows go.

    seconds: how long ranks wait for each other.
    """
    config = Config.from_environment(environment)
    register()
    dist.init_process_group("fairring", timeout=timedelta(seconds=seconds))
    try:
        return _look(config, environment, save)
    finally:
        dist.destroy_process_group()


def _look(config: Config, environment: Mapping[str, str], save: Path | None) -> dict[str, Any] | None:
    seen = _core.inspect(dist.group.WORLD._get_backend(torch.device("cpu")))  # type: ignore[union-attr]
    if seen is None:
        raise RuntimeError("the default group is none of the backend fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    machines, sites = ([one[key] for one in seen["ranks"]] for key in ("machine", "site"))
    choice = interfaces.choose(config, config.master_address or "", config.master_port)
    used = tuple(dict.fromkeys([*seen["ranks"][rank]["addresses"], *seen["ranks"][rank]["site_addresses"]]))
    choice = replace(choice, addresses=used, by=seen["ranks"][rank]["interfaces_by"])
    own = report.here(environment, installation.imported_here(world - 1), choice)
    said = variables.without_secrets([own, [vars(one) for one in findings.of(own, config, environment)]], environment)
    of_ranks: list[Any] = [None] * world
    dist.all_gather_object(of_ranks, said)
    measured = measure(machines, sites)
    call_seconds = _slowest(_median(dist.group.WORLD, report.CALL_BYTES, ROUNDS_LARGE))
    if rank != 0:
        return None
    rail, site = seen["transports"]
    if save:
        where = f"on {len(set(machines))} machines, {world} ranks, between machines by {rail}, between sites by {site}"
        cost_rows.write(save, saved_rows.rows(measured, _core.built_in_rows(rail, site)), where)
    links = report.Seen(machines, sites, rail, site, seen["rdma_refused"], measured, call_seconds)
    found = [[findings.Finding(**one) for one in of_rank] for _, of_rank in of_ranks]
    return report.together(config, [here for here, _ in of_ranks], found, links)


def groups_of(machines: Sequence[str], sites: Sequence[str] = ()) -> dict[str, list[list[int]]]:
    """Ranks by level: those of each machine, those with the same place on every machine of a site that has one, and
    those with the same place in every site that has one.

    machines, sites: of each rank; no sites: all stand in one. Groups of one rank are left out, and levels without any.
    """
    everybody = range(len(machines))
    of_sites = _alike(everybody, sites) if sites else [list(everybody)]
    rails = [rail for site in of_sites for rail in _across(_alike(site, machines))]
    found = {"machine": _alike(everybody, machines), "rail": rails, "site": _across(of_sites)}
    several = {level: [ranks for ranks in groups if len(ranks) > 1] for level, groups in found.items()}
    return {level: groups for level, groups in several.items() if groups}


def _alike(ranks: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    """The ranks of each name, in the order of the lowest of them."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        found.setdefault(names[rank], []).append(rank)
    return list(found.values())


def _across(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The first of each, then the second of each that has one, and so on."""
    return [[ranks[place] for ranks in groups if place < len(ranks)] for place in range(max(map(len, groups)))]


def measure(machines: Sequence[str], sites: Sequence[str]) -> list[Measured]:
    """To be called on all ranks at once; the same result on all."""
    return [_measure_level(level, groups) for level, groups in groups_of(machines, sites).items()]


def _measure_level(level: str, groups: list[list[int]]) -> Measured:
    rank = dist.get_rank()
    made = [dist.new_group(ranks, backend="fairring") for ranks in groups]
    mine = next((group for group, ranks in zip(made, groups, strict=True) if rank in ranks), None)
    before = _slowest(_median(mine, SMALL_BYTES, ROUNDS_SMALL))
    large = _slowest(_median(mine, LARGE_BYTES, ROUNDS_LARGE))
    after = _slowest(_median(mine, SMALL_BYTES, ROUNDS_SMALL))
    small = min(before, after)  # other work on a machine can slow all small calls of one go for a moment
    for group in made:
        if group is mine:
            dist.destroy_process_group(group)
    largest = max(map(len, groups))
    moved = 2 * LARGE_BYTES * (largest - 1) / largest
    return Measured(level, largest, small, large, moved / max(large - small, 1e-9))


def _median(group: Any, size: int, rounds: int) -> float:
    """Seconds of one call; 0 if this rank is in no group of the level."""
    dist.barrier()
    if group is None:
        return 0.0
    tensor = torch.ones(size // 4)
    times = []
    for _ in range(WARM_UP + rounds):
        start = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM_UP:])


def _slowest(seconds: float) -> float:
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor.item())
