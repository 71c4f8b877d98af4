"""Training steps with other exchanges than DDP's, on Gloo and on Fairring, in turns, over the same links.

Run in each rank of a job, as in

    fairring lab --machines 2 --ranks 2 --rate 1gbit --only-rank 0 -- python benchmarks/training.py --rounds 3

| workload | what a step exchanges |
|---|---|
| fsdp | FSDP2 over all ranks: each layer's parameters are gathered twice, its gradients reduced and scattered |
| fsdp-machine | the same with a copy that each machine keeps between forward and backward (reshard_after_forward) |
| hsdp | shards inside each machine, replicas over machines |
| experts | a mixture of experts: each token goes to the rank of its expert and comes back, forward and backward |
| tensor | layers split inside each machine, FSDP2 over machines |

Prints milliseconds of the slowest rank: the median of all timed steps, the least and the most. The exchange is what a
step takes longer than the same step in a group of one rank, which has nothing to exchange but computes as much. A
workload is made anew in every round, by groups that are made anew. Wrong are steps whose loss differs between the
backends by more than 1e-4 of its value.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fairring  # noqa: F401  registers the backend on torch before 2.15

WIDTH, LAYERS, ROWS, TOKENS = 1024, 12, 2, 2048  # 50 MB of parameters; 8 MB of tokens on each rank
UNCOUNTED = 2
BACKENDS = ("gloo", "fairring")
ALONE = "alone"
TOLERANCE = 1e-4

Step = Callable[[], Tensor]  # makes one and returns the loss


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of a round, after two that are not timed")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="some of the workloads, with commas")
    parser.add_argument("--json", help="file to write the rows to as well")
    return parser.parse_args()


def ranks_of_machine() -> int:
    return int(os.environ["LOCAL_WORLD_SIZE"])


def alone() -> Any:
    """A group of this rank only. Called by all ranks."""
    return [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]


def layers() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def sharded(model: nn.Sequential, mesh: DeviceMesh, keep: bool | int = True) -> nn.Module:
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=keep)
    return fully_shard(model, mesh=mesh, reshard_after_forward=keep)


def descent(model: nn.Module) -> Step:
    """A step of SGD: the optimizer's work on the gradients is no part of the exchange."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))

    def step() -> Tensor:
        loss: Tensor = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def over_all(exchanges: bool) -> DeviceMesh:
    if exchanges:
        return init_device_mesh("cpu", (dist.get_world_size(),))
    return DeviceMesh.from_group(alone(), "cpu")


def by_machine(names: tuple[str, str]) -> DeviceMesh:
    shape = (dist.get_world_size() // ranks_of_machine(), ranks_of_machine())
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp(exchanges: bool) -> Step:
    return descent(sharded(layers(), over_all(exchanges)))


def fsdp_machine(exchanges: bool) -> Step:
    return descent(sharded(layers(), over_all(exchanges), ranks_of_machine() if exchanges else True))


def hsdp(exchanges: bool) -> Step:
    mesh = by_machine(("replicate", "shard")) if exchanges else over_all(exchanges)
    return descent(sharded(layers(), mesh))


def experts(exchanges: bool) -> Step:
    """As many tokens for each expert: the arithmetic is the same on all ranks, and alone."""
    group = dist.group.WORLD if exchanges else alone()
    size = dist.get_world_size(group)
    expert = nn.Linear(WIDTH, WIDTH)
    tokens = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1), requires_grad=True)

    def step() -> Tensor:
        splits = [TOKENS // size] * size
        sent = all_to_all_single_autograd(tokens, splits, splits, group)
        loss: Tensor = all_to_all_single_autograd(expert(sent), splits, splits, group).square().mean()
        loss.backward()
        tokens.grad = None
        return loss.detach()

    return step


def tensor(_exchanges: bool) -> Step:
    mesh = by_machine(("data", "tensor"))
    model = layers()
    halves = [ColwiseParallel(), RowwiseParallel()]
    parallelize_module(model, mesh["tensor"], {str(layer): halves[layer % 2] for layer in range(LAYERS)})
    return descent(sharded(model, mesh["data"]))


WORKLOADS = {"fsdp": fsdp, "fsdp-machine": fsdp_machine, "hsdp": hsdp, "experts": experts, "tensor": tensor}


def timed(make: Callable[[bool], Step], exchanges: bool, steps: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the slowest rank, and this rank's losses, of each step that counts."""
    torch.manual_seed(1)
    step = make(exchanges)
    times, losses = [], []
    for _ in range(UNCOUNTED + steps):
        dist.barrier()
        begun = time.perf_counter()
        losses.append(step().item())
        times.append(time.perf_counter() - begun)
    slowest = torch.tensor(times[UNCOUNTED:]) * 1e3
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist(), losses


class Groups:
    """Default groups in turn, each with keys of its own: Gloo takes those of an earlier one for its own."""

    def __init__(self) -> None:
        self._store, self._rank, self._size = next(dist.rendezvous("env://"))
        self._made = 0

    @contextmanager
    def group(self, backend: str) -> Iterator[None]:
        self._made += 1
        store = dist.PrefixStore(f"group {self._made}", self._store)
        dist.init_process_group(backend, store=store, rank=self._rank, world_size=self._size)
        yield
        dist.destroy_process_group()


def measure(name: str, rounds: int, steps: int, groups: Groups) -> dict[str, Any]:
    times: dict[str, list[float]] = {kind: [] for kind in (ALONE, *BACKENDS)}
    losses: dict[str, list[float]] = {kind: [] for kind in times}
    for _ in range(rounds):
        for kind in times:
            if kind == ALONE and name == "tensor":
                continue
            with groups.group("gloo" if kind == ALONE else kind):
                taken, lost = timed(WORKLOADS[name], kind != ALONE, steps)
            times[kind] += taken
            losses[kind] += lost
    stock, ours = (losses[backend] for backend in BACKENDS)
    wrong = sum(abs(a - b) > TOLERANCE * abs(a) for a, b in zip(stock, ours, strict=True))
    return {"workload": name, "ms": times, "wrong": wrong}


def described(row: dict[str, Any]) -> str:
    medians = {kind: statistics.median(taken) for kind, taken in row["ms"].items() if taken}
    shown = ", ".join(
        f"{kind} {medians[kind]:.0f} ms ({min(row['ms'][kind]):.0f} to {max(row['ms'][kind]):.0f})" for kind in medians
    )
    stock, ours = (medians[backend] for backend in BACKENDS)
    base = medians.get(ALONE, 0.0)
    exchange = f", exchange {stock - base:.0f} and {ours - base:.0f} ms, {(stock - base) / (ours - base):.2f}x"
    return f"{row['workload']}: {shown}, step {stock / ours:.2f}x gloo{exchange if base else ''}, wrong {row['wrong']}"


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    groups, rows = Groups(), []
    for name in chosen.only.split(","):
        rows.append(measure(name, chosen.rounds, chosen.steps, groups))
        if int(os.environ["RANK"]) == 0:
            print(described(rows[-1]), flush=True)
    if int(os.environ["RANK"]) == 0 and chosen.json:
        Path(chosen.json).write_text(json.dumps(rows, indent=1))


main()
