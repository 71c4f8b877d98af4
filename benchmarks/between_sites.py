"""Measures the wire formats between sites: the time and bytes of an all-reduce, and the loss of a training.

    export PYTHONPATH=examples
    SITES="--machines 4 --ranks 2 --sites 2 --site-rate 100mbit --site-delay 20ms --interfaces 2"
    export TP_SOCKET_IFNAME=eth0 FAIRRING_SITE_IFNAME=eth1
    fairring lab $SITES --only-rank 0 -- python benchmarks/between_sites.py crossing
    unset TP_SOCKET_IFNAME FAIRRING_SITE_IFNAME
    PAIR="--machines 2 --sites 2 --only-rank 0"
    fairring lab $PAIR -- python benchmarks/between_sites.py training
    fairring lab $PAIR -- python benchmarks/between_sites.py outer --steps 1500 --warmup 300
    fairring lab $PAIR --site-rate 10mbit --site-delay 10ms -- python benchmarks/between_sites.py speed --steps 30

crossing: bytes are those that the cards eth1 of all machines have sent, with headers and acknowledgements. training: of
the transformer in examples/train_transformer.py, with the same weights and batches in every format. The loss is the
mean over the last 50 steps. outer: likewise by outer steps, after a warm-up by synchronous steps that all runs have in
common, and with a rate of the inner optimizer that falls to 0 along a cosine; the loss is that of the parameters at the
end, over 50 batches of all ranks, and the bytes are those that all ranks have sent to other sites since the warm-up.
speed: tokens a second and bytes that the machines' cards have sent, of DDP on Gloo and of each way here, in turns.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from train_transformer import ByteTransformer, Shape, batches

import fairring
from fairring.between_sites import Residuals, all_reduce, compressed
from fairring.outer import DiLoCo
from fairring.traffic import counting

FORMATS = (None, "bf16", "int8", "int4")
SHAPE = Shape(width=64, heads=4, layers=2, batch=8)


def sent_by(cards: str) -> int:
    """By this machine's cards whose names begin so; one rank of each machine counts."""
    if os.environ["LOCAL_RANK"] != "0":
        return 0
    lines = [line.strip() for line in Path("/proc/net/dev").read_text().splitlines()]
    return sum(int(line.split(":")[1].split()[8]) for line in lines if line.startswith(cards))


def of_all(sent: int) -> int:
    total = torch.tensor(sent)
    dist.all_reduce(total)
    return int(total)


def longest(seconds: float) -> float:
    took = torch.tensor(seconds)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def crossing(mebibytes: int, calls: int) -> None:
    for form in FORMATS:
        tensor = torch.randn(mebibytes << 18)
        residual = torch.zeros_like(tensor)
        seconds = []
        before = 0
        for call in range(calls + 1):  # the first one is no part of it
            if call == 1:
                before = sent_by("eth1:")
            dist.barrier()
            began = time.monotonic()
            if form is None:
                dist.all_reduce(tensor)
            else:
                all_reduce(tensor, form, residual).wait()
            seconds.append(longest(time.monotonic() - began))
        sent = of_all(sent_by("eth1:") - before) / calls
        if dist.get_rank() == 0:
            print(f"{form or 'fp32'}: {statistics.median(seconds[1:]):.3f} s, {sent / 1e6:.3f} MB", flush=True)


def nothing() -> None:
    pass


def train(
    replica: torch.nn.Module, optimizer: Any, steps: range, after_step: Callable[[], object] = nothing, total: int = 0
) -> list[torch.Tensor]:
    """The losses of this rank. total: the rate falls to 0 in so many steps along a cosine; 0: it is constant."""
    peaks = [group.setdefault("peak", group["lr"]) for group in optimizer.param_groups]
    data = islice(batches(SHAPE, dist.get_rank(), dist.get_world_size(), seed=1), steps.start, None)
    losses = []
    for step in steps:
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * (1 + math.cos(math.pi * step / total)) / 2 if total else peak
        loss = loss_of(replica, next(data))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        after_step()
    return losses


def adam_of(model: torch.nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=rate)


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def mean(losses: list[torch.Tensor]) -> float:
    total = torch.stack(losses).mean()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return float(total)


def model_of_all() -> ByteTransformer:
    torch.manual_seed(0)
    return ByteTransformer(SHAPE)


def train_in(form: str | None, steps: int, *, kept: bool) -> float:
    replica = DistributedDataParallel(model_of_all(), bucket_cap_mb=0.5)
    residuals = Residuals(form)
    replica.register_comm_hook(residuals, compressed)
    losses = train(replica, adam_of(replica), range(steps), nothing if kept else residuals.forget)
    return mean(losses[-50:])


def training(steps: int) -> None:
    for form in FORMATS:
        for kept in (True, False) if form else (True,):
            loss = train_in(form, steps, kept=kept)
            if dist.get_rank() == 0:
                print(f"{form or 'fp32'}{'' if kept else ' without residuals'}: loss {loss:.5f}", flush=True)


@torch.no_grad()
def report(name: str, model: torch.nn.Module, training: Callable[[], object]) -> None:
    """Trains, and prints the loss of the parameters that all ranks have in the end."""
    dist.barrier()
    with counting() as moved:
        began = time.monotonic()
        with torch.enable_grad():
            training()
        seconds = time.monotonic() - began
    sent = torch.tensor(moved["site"].bytes)
    dist.all_reduce(sent)
    data = batches(SHAPE, dist.get_rank(), dist.get_world_size(), seed=2)
    loss = mean([loss_of(model, next(data)) for _ in range(50)])
    if dist.get_rank() == 0:
        print(f"{name}: loss {loss:.4f}, {seconds:.1f} s, {int(sent) / 1e6:.3f} MB", flush=True)


class Start:
    """The state after a warm-up by synchronous steps, from which all runs go on."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._steps = range(arguments.warmup, arguments.steps)
        self._total = arguments.steps
        model = model_of_all()
        optimizer = adam_of(model, arguments.rate)
        replica = DistributedDataParallel(model, bucket_cap_mb=0.5)
        train(replica, optimizer, range(arguments.warmup), total=self._total)
        self._state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

    def model(self) -> ByteTransformer:
        model = model_of_all()
        model.load_state_dict(self._state[0])
        return model

    def train(self, replica: torch.nn.Module, after_step: Callable[[], object] = nothing) -> None:
        optimizer = adam_of(replica)
        optimizer.load_state_dict(copy.deepcopy(self._state[1]))
        train(replica, optimizer, self._steps, after_step, self._total)


def outer_training(start: Start, form: str | None, every: int, arguments: argparse.Namespace, *, kept: bool) -> None:
    momentum, delay = arguments.outer_momentum, arguments.delay
    optimizer = partial(torch.optim.SGD, lr=arguments.outer_lr, momentum=momentum, nesterov=momentum > 0)
    model = start.model()
    diloco = DiLoCo(model, optimizer, every, delay=delay, format=form)
    replica = DistributedDataParallel(model, process_group=diloco.inner_group)

    def after_step() -> None:
        before = diloco.outer_steps
        diloco.step()
        if not kept and diloco.outer_steps > before:
            diloco.load_state_dict(diloco.state_dict() | {"place": None})

    def train_to_the_end() -> None:
        start.train(replica, after_step)
        diloco.finish()

    words = [f"every {every}", form or "fp32"] + [f"delay {delay}"] * bool(delay) + ["without residuals"] * (not kept)
    report(", ".join(words), model, train_to_the_end)


def outer(arguments: argparse.Namespace) -> None:
    start = Start(arguments)
    replica = DistributedDataParallel(start.model(), bucket_cap_mb=0.5)
    report("every step, fp32", replica, lambda: start.train(replica))
    for every in arguments.every:
        for form in arguments.formats:
            for kept in (True, False) if form in ("int8", "int4", "top-k") else (True,):
                outer_training(start, None if form == "fp32" else form, every, arguments, kept=kept)


Steps = Callable[[range], object]


def synchronous(group: Any, form: str | None) -> tuple[Steps, Callable[[], object]]:
    """A training that begins: a function that goes on with it, and one that ends it."""
    replica = DistributedDataParallel(model_of_all(), process_group=group, bucket_cap_mb=0.5)
    if form:
        replica.register_comm_hook(Residuals(form), compressed)
    return partial(train, replica, adam_of(replica)), nothing


def apart(form: str, every: int, delay: int) -> tuple[Steps, Callable[[], object]]:
    model = model_of_all()
    optimizer = partial(torch.optim.SGD, lr=1.0)
    diloco = DiLoCo(model, optimizer, every, delay=delay, format=None if form == "fp32" else form)
    replica = DistributedDataParallel(model, process_group=diloco.inner_group)
    return partial(train, replica, adam_of(replica), after_step=diloco.step), diloco.finish


def speed(arguments: argparse.Namespace) -> None:
    """Both ends of what is measured are just after a crossing began, so none is missing."""
    gloo = dist.new_group(backend="gloo")
    ways = [("DDP, gloo", 1, partial(synchronous, gloo, None))]
    ways += [(f"DDP, {form or 'fp32'}", 1, partial(synchronous, None, form)) for form in FORMATS]
    ways.append(("DDP, auto", 17, partial(synchronous, None, "auto")))  # when its trial is over
    for every in arguments.every:
        for form in arguments.formats:
            for delay in (0, *([arguments.delay] if 0 < arguments.delay < every else [])):
                ways.append((f"every {every}, {form}, delay {delay}", every, partial(apart, form, every, delay)))
    measured: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(arguments.calls):
        for name, every, begin in ways:
            go_on, end = begin()
            go_on(range(every))
            steps = range(every, every + (10 if name.startswith("DDP") else arguments.steps))
            began, before = time.monotonic(), sent_by("eth")
            go_on(steps)
            seconds, sent = time.monotonic() - began, sent_by("eth") - before
            end()
            measured[name].append((longest(seconds) / len(steps), of_all(sent) / len(steps)))
    tokens = dist.get_world_size() * SHAPE.batch * SHAPE.context
    for name, turns in measured.items():
        seconds, sent = (statistics.median(column) for column in zip(*turns, strict=True))
        if dist.get_rank() == 0:
            print(f"{name}: {tokens / seconds:.0f} tokens/s, {sent / 1e3:.1f} kB a step", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crossing", "training", "outer", "speed"))
    parser.add_argument("--mib", type=int, default=25)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=3e-3, help="of the inner optimizer, at first")
    parser.add_argument("--warmup", type=int, default=0, help="synchronous steps, the first ones")
    parser.add_argument("--every", type=int, nargs="+", default=[10, 30], help="inner steps between outer steps")
    parser.add_argument("--formats", nargs="+", default=["fp32", "int8", "int4", "top-k"], help="of outer steps")
    parser.add_argument("--outer-lr", type=float, default=0.8)
    parser.add_argument("--outer-momentum", type=float, default=0.7)
    parser.add_argument("--delay", type=int, default=0, help="inner steps while the outer differences cross")
    arguments = parser.parse_args()
    by_outer_steps = arguments.steps - (arguments.warmup if arguments.what == "outer" else 0)
    if arguments.what in ("outer", "speed") and any(by_outer_steps % every for every in arguments.every):
        parser.error(f"{by_outer_steps} steps by outer steps are no multiple of all of --every {arguments.every}")
    torch.set_num_threads(1)
    fairring.register()
    dist.init_process_group("fairring")
    if arguments.what == "crossing":
        crossing(arguments.mib, arguments.calls)
    elif arguments.what == "training":
        training(arguments.steps)
    elif arguments.what == "outer":
        outer(arguments)
    else:
        speed(arguments)
    dist.destroy_process_group()


main()
