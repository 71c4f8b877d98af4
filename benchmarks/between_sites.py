"""Measures the wire formats between sites: the time and bytes of an all-reduce, and the loss of a training.

    export PYTHONPATH=examples
    SITES="--machines 4 --ranks 2 --sites 2 --site-rate 100mbit --site-delay 20ms --interfaces 2"
    FAIRRING_SITE_IFNAME=eth1 fairring lab $SITES --only-rank 0 -- python benchmarks/between_sites.py crossing
    fairring lab --machines 2 --sites 2 --only-rank 0 -- python benchmarks/between_sites.py training
    fairring lab --machines 2 --sites 2 --site-rate 10mbit --only-rank 0 -- python benchmarks/between_sites.py outer

crossing: bytes are those that the cards eth1 of all machines have sent, with headers and acknowledgements. training: of
the transformer in examples/train_transformer.py, with the same weights and batches in every format. The loss is the
mean over the last 50 steps. outer: likewise by outer steps; the loss is that of the parameters after the last one, over
50 batches of all ranks, and the bytes are those that all ranks have sent to other sites.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

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
SHAPE = Shape(width=128, heads=4, layers=2, batch=8)


def sent_by_card() -> int:
    """By all machines; one rank of each counts."""
    sent = 0
    if os.environ["LOCAL_RANK"] == "0":
        card = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("eth1:"))
        sent = int(card.split(":")[1].split()[8])
    total = torch.tensor(sent)
    dist.all_reduce(total)
    return int(total)


def crossing(mebibytes: int, calls: int) -> None:
    for form in FORMATS:
        tensor = torch.randn(mebibytes << 18)
        residual = torch.zeros_like(tensor)
        seconds = []
        before = 0
        for call in range(calls + 1):  # the first one is no part of it
            if call == 1:
                before = sent_by_card()
            dist.barrier()
            began = time.monotonic()
            if form is None:
                dist.all_reduce(tensor)
            else:
                all_reduce(tensor, form, residual).wait()
            took = torch.tensor(time.monotonic() - began)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(float(took))
        sent = (sent_by_card() - before) / calls
        if dist.get_rank() == 0:
            print(f"{form or 'fp32'}: {statistics.median(seconds[1:]):.3f} s, {sent / 1e6:.3f} MB", flush=True)


def train(replica: DistributedDataParallel, steps: int, after_step: Callable[[], None]) -> float:
    """The mean loss of the last 50 steps, of all ranks."""
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-3)
    data = batches(SHAPE, dist.get_rank(), dist.get_world_size(), seed=1)
    losses = []
    for _ in range(steps):
        loss = loss_of(replica, next(data))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        after_step()
    return mean(losses[-50:])


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
    return train(replica, steps, (lambda: None) if kept else residuals.forget)


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


def outer_training(form: str | None, every: int, arguments: argparse.Namespace, *, kept: bool) -> None:
    momentum, delay = arguments.outer_momentum, arguments.delay
    optimizer = partial(torch.optim.SGD, lr=arguments.outer_lr, momentum=momentum, nesterov=momentum > 0)
    model = model_of_all()
    diloco = DiLoCo(model, optimizer, every, delay=delay, format=form)
    replica = DistributedDataParallel(model, process_group=diloco.inner_group)

    def after_step() -> None:
        before = diloco.outer_steps
        diloco.step()
        if not kept and diloco.outer_steps > before:
            diloco.load_state_dict(diloco.state_dict() | {"place": None})

    def train_to_the_end() -> None:
        train(replica, arguments.steps, after_step)
        diloco.finish()

    words = [f"every {every}", form or "fp32"] + [f"delay {delay}"] * bool(delay) + ["without residuals"] * (not kept)
    report(", ".join(words), model, train_to_the_end)


def outer(arguments: argparse.Namespace) -> None:
    replica = DistributedDataParallel(model_of_all(), bucket_cap_mb=0.5)
    report("every step, fp32", replica, lambda: train(replica, arguments.steps, lambda: None))
    for every in arguments.every:
        for form in arguments.formats:
            for kept in (True, False) if form in ("int8", "int4", "top-k") else (True,):
                outer_training(None if form == "fp32" else form, every, arguments, kept=kept)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crossing", "training", "outer"))
    parser.add_argument("--mib", type=int, default=25)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, nargs="+", default=[10, 30], help="inner steps between outer steps")
    parser.add_argument("--formats", nargs="+", default=["fp32", "int8", "int4", "top-k"], help="of outer steps")
    parser.add_argument("--outer-lr", type=float, default=0.7)
    parser.add_argument("--outer-momentum", type=float, default=0.9)
    parser.add_argument("--delay", type=int, default=0, help="inner steps while the outer differences cross")
    arguments = parser.parse_args()
    if arguments.what == "outer" and any(arguments.steps % every for every in arguments.every):
        parser.error(f"--steps {arguments.steps} is no multiple of all of --every {arguments.every}")
    torch.set_num_threads(1)
    fairring.register()
    dist.init_process_group("fairring")
    if arguments.what == "crossing":
        crossing(arguments.mib, arguments.calls)
    elif arguments.what == "training":
        training(arguments.steps)
    else:
        outer(arguments)
    dist.destroy_process_group()


main()
