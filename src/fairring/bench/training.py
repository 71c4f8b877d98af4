"""The training that `fairring bench ddp` measures: a transformer that predicts random bytes, a replica per backend.

Random bytes cost the same arithmetic and the same gradients as text. Every replica starts from the same weights and
sees the same batches, and the ranks of each must end with the same bits.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairring.bench.arithmetic import median_deviation, percentile
from fairring.bench.contestants import ALONE, STOCK, Contestant, make_group
from fairring.bench.job import Job
from fairring.bench.progress import reporting
from fairring.bench.report import Report, print_heading
from fairring.bench.rows import Times, times
from fairring.bench.table import BACKEND, figure, make_table, ratio
from fairring.table import show

BYTE_VALUES, CONTEXT, HEAD_WIDTH = 256, 64, 64
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Shape:
    """The sizes of the model, of one rank's batch (sequences of CONTEXT bytes) and of DDP's buckets."""

    width: int
    layers: int
    batch: int
    bucket_mib: float


class ByteModel(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTE_VALUES, shape.width)
        layer = nn.TransformerEncoderLayer(
            shape.width, shape.width // HEAD_WIDTH, 4 * shape.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.head = nn.Linear(shape.width, BYTE_VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.token(tokens)))
        return logits


@dataclass
class Training:
    """The training on one backend. seconds: of the slowest rank, one per round."""

    replica: Any
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)

    @property
    def gradient_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.replica.parameters())

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """One step. Returns the seconds on this rank."""
        dist.barrier()
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        logits = self.replica(inputs)
        nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        self.optimizer.step()
        return time.perf_counter() - begin


def train(
    contestants: list[Contestant], shape: Shape, warm_up: int, rounds: int, report: Callable[[], object]
) -> dict[str, Training]:
    """By backend, with ALONE for the steps that exchange nothing. Called by all ranks of the default group."""
    trainings = {ALONE: _prepare(dist.group.WORLD, shape)}
    trainings[ALONE].replica.register_comm_hook(None, lambda _, bucket: _done(bucket.buffer()))
    trainings |= {contestant.name: _prepare(make_group(contestant), shape) for contestant in contestants}
    generator = torch.Generator().manual_seed(dist.get_rank())
    for turn in range(warm_up + rounds):
        text = torch.randint(BYTE_VALUES, (shape.batch, CONTEXT + 1), generator=generator)
        inputs, targets = text[:, :-1], text[:, 1:]
        for training in trainings.values():
            seconds = training.step(inputs, targets)
            if turn >= warm_up:
                training.seconds.append(seconds)
        report()
    for training in trainings.values():
        slowest = torch.tensor(training.seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        training.seconds = slowest.tolist()
    return trainings


def _done(gradients: Tensor) -> torch.futures.Future[Tensor]:
    """The result of a DDP communication hook that leaves every rank its own gradients."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


def _prepare(group: Any, shape: Shape) -> Training:
    torch.manual_seed(1)
    model = ByteModel(shape)
    replica = DistributedDataParallel(model, process_group=group, bucket_cap_mb=shape.bucket_mib)
    # Plain SGD has no state: the optimizer's work on the gradients is no part of the exchange.
    return Training(replica, torch.optim.SGD(replica.parameters(), lr=LEARNING_RATE))


def different_ranks(replica: Any) -> bool:
    """Whether the parameters' bits have other sums on another rank. Called by all ranks; the same answer on all."""
    mine = [int(parameter.detach().view(torch.int32).long().sum()) for parameter in replica.parameters()]
    of_all: list[Any] = [mine] * dist.get_world_size()
    dist.all_gather_object(of_all, mine)
    return any(other != of_all[0] for other in of_all)


@dataclass(frozen=True)
class Row(Times):
    """communication: the median of the rounds' differences to the step that exchanges nothing."""

    communication: float | None
    communication_deviation: float | None
    vs_stock: float | None
    communication_vs_stock: float | None


def measure(arguments: Namespace, contestants: list[Contestant], job: Job) -> int:
    shape = Shape(arguments.width, arguments.layers, arguments.batch, arguments.bucket_mib)
    written = Report(arguments, job)
    with reporting(job.is_first, arguments.warmup + arguments.iterations) as report:
        report.now("steps")
        trainings = train(contestants, shape, arguments.warmup, arguments.iterations, report.advance)
    written.measure_links()
    differing = [one.name for one in contestants if different_ranks(trainings[one.name].replica)]
    rows = make_rows({name: training.seconds for name, training in trainings.items()})
    facts = {"shape": asdict(shape), "gradient_bytes": trainings[ALONE].gradient_bytes}
    written.end("ddp", facts, rows, _show)
    for name in differing if job.is_first else ():
        print(f"fairring bench: ranks end with different parameters on {name}", file=sys.stderr)
    return 1 if differing else 0


def make_rows(seconds: dict[str, list[float]]) -> list[Row]:
    """seconds: by backend, one per round, with ALONE among them."""
    parts = {
        name: [with_it - without for with_it, without in zip(taken, seconds[ALONE], strict=True)]
        for name, taken in seconds.items()
        if name != ALONE
    }
    medians = {name: percentile(taken, 50) for name, taken in seconds.items()}
    exchanges = {name: percentile(part, 50) for name, part in parts.items()}

    def beside(values: dict[str, float], name: str) -> float | None:
        return values[STOCK] / values[name] if STOCK in values and values.get(name, 0.0) > 0 else None

    return [
        Row(
            **times(name, taken),
            communication=exchanges.get(name),
            communication_deviation=median_deviation(parts[name]) if name in parts else None,
            vs_stock=beside(medians, name),
            communication_vs_stock=beside(exchanges, name),
        )
        for name, taken in seconds.items()
    ]


def _show(facts: dict[str, Any], rows: Sequence[Row]) -> None:
    print_heading(facts, f"{facts['gradient_bytes'] / 1e6:.1f} MB of gradients a step")
    columns = (
        ("steps", lambda row: str(len(row.seconds))),
        BACKEND,
        figure("median\nms", "median", ".1f", 1e3),
        figure("± MAD\nms", "deviation", ".1f", 1e3),
        figure("p99\nms", "p99", ".1f", 1e3),
        figure("exchange\nms", "communication", ".1f", 1e3),
        figure("± MAD\nms", "communication_deviation", ".1f", 1e3),
        ratio("vs gloo", "vs_stock"),
        ratio("exchange\nvs gloo", "communication_vs_stock"),
    )
    show(make_table(columns, rows), "A step on the slowest rank")
