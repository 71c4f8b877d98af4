"""Measures steps of training: what a step takes with gloo and with fairring, and what without an exchange.

    python benchmarks/training_steps.py ddp --machines 2 --ranks 2 --rate 1gbit --json ddp.json
    torchrun --nnodes 2 ... benchmarks/training_steps.py fsdp

ddp: a transformer on random bytes in DistributedDataParallel. fsdp: layers in FSDP2 over all ranks. hsdp: with shards
in each machine and replicas over machines. experts: a mixture of experts, whose tokens go to the rank of their expert
and back. tensor: layers are split in each machine, with FSDP2 over machines. Each round trains one step on every
backend and one that exchanges nothing; the exchange is what a step takes longer than that. Exit code 1 if something
failed, or if ranks or backends train differently.

Every replica starts from the same weights and sees the same batches. Random bytes cost the same arithmetic and the same
gradients as text. Plain SGD has no state: the optimizer's work on the gradients is no part of the exchange.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from fairring.bench import launch
from fairring.bench.contestants import ALONE, Contestant
from fairring.bench.job import Job
from fairring.bench.measure import Work
from fairring.bench.race import Go, Heat, Racer, Runner

DDP, TENSOR = "ddp", "tensor"
BYTE_VALUES, CONTEXT, HEAD_WIDTH = 256, 64, 64
TOKENS = 1024  # of experts, for each of the batch
TOLERANCE = 1e-4  # of a loss, between backends

Step = Callable[[int], Tensor]  # makes one, of that turn, and returns the loss


@dataclass(frozen=True)
class Trained:
    """replica: its parameters must have the same bits on all ranks; None: each rank has others."""

    step: Step
    replica: nn.Module | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("subcommand", choices=MODELS, metavar="MODEL", help=", ".join(MODELS))
    add("--width", type=int, metavar="N", help="of the model; it needs width² memory (default: 384 in ddp, else 1024)")
    add("--layers", type=int, metavar="N", help="of the model (default: 6 in ddp, else 12)")
    text = "of one rank and step: sequences of 64 bytes in ddp, thousands of tokens in experts (default: %(default)s)"
    add("--batch", type=int, default=2, metavar="N", help=text)
    add("--bucket-mib", type=float, default=25, metavar="N", help="bucket_cap_mb of ddp (default: %(default)s)")
    launch.add_options(parser, "stock,fairring", rounds=(20, 3))


def read(arguments: argparse.Namespace) -> None:
    """Adds the shape's defaults, and the contestant that exchanges nothing."""
    launch.refuse_less(arguments, layers=1, batch=1, width=64)
    launch.refuse_floor(arguments)
    if not arguments.bucket_mib > 0:
        raise ValueError(f"--bucket-mib {arguments.bucket_mib:g}: more than nothing")
    width, layers = (384, 6) if arguments.subcommand == DDP else (1024, 12)
    arguments.width, arguments.layers = arguments.width or width, arguments.layers or layers
    if arguments.width % 64:
        raise ValueError(f"--width {arguments.width}: a multiple of 64, the width of an attention head")
    if arguments.subcommand != TENSOR:  # which no rank can compute alone
        arguments.contestants.insert(0, Contestant(ALONE, arguments.stock))


def work(arguments: Namespace, job: Job) -> Work:
    name, shape = arguments.subcommand, {one: getattr(arguments, one) for one in ("width", "layers", "batch")}

    def runners(racers: Sequence[Racer]) -> list[Runner]:
        losses: dict[int, float] = {}  # by turn, of the first backend that is checked
        return [Runner(racer, _prepared(_trained(arguments, job, racer), is_alone(racer), losses)) for racer in racers]

    def heats(racers: Sequence[Racer]) -> list[Heat]:
        return [Heat(name, partial(runners, racers), arguments.warmup, arguments.iterations)]

    title = f"a step of {name}: " + ", ".join(f"{one} {count}" for one, count in shape.items())
    return Work(title, heats, key="model", facts={"shape": {**shape, "bucket_mib": arguments.bucket_mib}})


def _trained(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    torch.manual_seed(1)
    return MODELS[arguments.subcommand](arguments, job, racer)


def _prepared(trained: Trained, alone: bool, losses: dict[int, float]) -> Callable[[int], Go]:
    def prepare(turn: int) -> Go:
        found: list[Tensor] = []

        def wrong() -> int:
            differ = trained.replica is not None and different_ranks(trained.replica)
            loss = losses.setdefault(turn, found[0].item())
            return int(differ or abs(found[0].item() - loss) > TOLERANCE * abs(loss))

        return Go(lambda: found.append(trained.step(turn)), None if alone else wrong)

    return prepare


class ByteModel(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTE_VALUES, width)
        layer = nn.TransformerEncoderLayer(
            width, width // HEAD_WIDTH, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, BYTE_VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.token(tokens)))
        return logits


def ddp(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    model = ByteModel(arguments.width, arguments.layers)
    replica = DistributedDataParallel(model, process_group=racer.group, bucket_cap_mb=arguments.bucket_mib)
    if is_alone(racer):
        replica.register_comm_hook(None, lambda _, bucket: _done(bucket.buffer()))
    optimizer = torch.optim.SGD(replica.parameters(), lr=1e-3)

    def step(turn: int) -> Tensor:
        generator = torch.Generator(arguments.device).manual_seed(turn * job.place.world + job.place.rank)
        text = torch.randint(BYTE_VALUES, (arguments.batch, CONTEXT + 1), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(replica(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Trained(step, replica)


def _done(gradients: Tensor) -> torch.futures.Future[Tensor]:
    """The result of a DDP communication hook that leaves every rank its own gradients."""
    done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[gradients.device] * gradients.is_cuda)
    done.set_result(gradients)
    return done


def different_ranks(replica: nn.Module) -> bool:
    """Whether the parameters' bits have other sums on another rank. Called by all ranks; the same answer on all."""
    mine = [int(parameter.detach().view(torch.int32).long().sum()) for parameter in replica.parameters()]
    of_all: list[Any] = [mine] * dist.get_world_size()
    dist.all_gather_object(of_all, mine)
    return any(other != of_all[0] for other in of_all)


def fsdp(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    mesh = DeviceMesh.from_group(_alone(job, racer) if is_alone(racer) else racer.group, arguments.device)
    return _descent(arguments, _sharded(_layers(arguments), mesh))


def hsdp(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    if is_alone(racer):
        return fsdp(arguments, job, racer)
    return _descent(arguments, _sharded(_layers(arguments), _by_machine(arguments, job, racer, ("replicate", "shard"))))


def tensor(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    mesh, model = _by_machine(arguments, job, racer, ("data", "tensor")), _layers(arguments)
    halves = [ColwiseParallel(), RowwiseParallel()]
    parallelize_module(model, mesh["tensor"], {str(layer): halves[layer % 2] for layer in range(arguments.layers)})
    return _descent(arguments, _sharded(model, mesh["data"]))


def experts(arguments: Namespace, job: Job, racer: Racer) -> Trained:
    """As many tokens for each expert: the arithmetic is the same on all ranks, and alone."""
    group = _alone(job, racer) if is_alone(racer) else racer.group
    size, expert = dist.get_world_size(group), nn.Linear(arguments.width, arguments.width)
    count, fixed = TOKENS * arguments.batch // size, torch.Generator(arguments.device).manual_seed(1)
    tokens = torch.randn(count * size, arguments.width, generator=fixed, requires_grad=True)

    def step(_: int) -> Tensor:
        sent = all_to_all_single_autograd(tokens, [count] * size, [count] * size, group)
        loss: Tensor = all_to_all_single_autograd(expert(sent), [count] * size, [count] * size, group).square().mean()
        loss.backward()
        tokens.grad = None
        return loss.detach()

    return Trained(step)


MODELS = {DDP: ddp, "experts": experts, "fsdp": fsdp, "hsdp": hsdp, TENSOR: tensor}


def is_alone(racer: Racer) -> bool:
    return racer.contestant.name == ALONE


def _alone(job: Job, racer: Racer) -> Any:
    return racer.of_some(job.place.rank, [[rank] for rank in range(job.place.world)])


def _by_machine(arguments: Namespace, job: Job, racer: Racer, names: tuple[str, str]) -> DeviceMesh:
    """Machines by the ranks of each. Raises ValueError if these are not as many on all."""
    if len(set(job.ranks_of("machine"))) > 1:
        raise ValueError(f"{job.describe()}: this model needs as many on each")
    machines = {place.machine: [p.rank for p in job.places if p.machine == place.machine] for place in job.places}
    rows = list(machines.values())
    groups = [racer.of_some(job.place.rank, ranks) for ranks in (list(zip(*rows, strict=True)), rows)]
    return DeviceMesh.from_group(groups, arguments.device, mesh=torch.tensor(rows), mesh_dim_names=names)


def _layers(arguments: Namespace) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(arguments.width, arguments.width) for _ in range(arguments.layers)))


def _sharded(model: nn.Sequential, mesh: DeviceMesh) -> nn.Module:
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _descent(arguments: Namespace, model: nn.Module) -> Trained:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batch = torch.randn(arguments.batch, arguments.width, generator=torch.Generator(arguments.device).manual_seed(1))

    def step(_: int) -> Tensor:
        loss: Tensor = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Trained(step)


if __name__ == "__main__":
    sys.exit(launch.main(sys.modules[__name__]))
