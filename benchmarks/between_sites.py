"""Measures the wire formats between sites: the time and bytes of an all-reduce, and the loss of a training.

    export PYTHONPATH=examples
    SITES="--machines 4 --ranks 2 --sites 2 --site-rate 100mbit --site-delay 20ms --interfaces 2"
    FAIRRING_SITE_IFNAME=eth1 fairring lab $SITES --only-rank 0 -- python benchmarks/between_sites.py crossing
    fairring lab --machines 2 --sites 2 --only-rank 0 -- python benchmarks/between_sites.py training

crossing: bytes are those that the cards eth1 of all machines have sent, with headers and acknowledgements. training: of
the transformer in examples/train_transformer.py, with the same weights and batches in every format. The loss is the
mean over the last 50 steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from train_transformer import ByteTransformer, Shape, batches

import fairring
from fairring.between_sites import Residuals, all_reduce, compressed

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


def train(form: str | None, steps: int, *, kept: bool) -> float:
    torch.manual_seed(0)
    replica = DistributedDataParallel(ByteTransformer(SHAPE), bucket_cap_mb=0.5)
    residuals = Residuals(form)
    replica.register_comm_hook(residuals, compressed)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-3)
    data = batches(SHAPE, dist.get_rank(), dist.get_world_size(), seed=1)
    losses = []
    for _ in range(steps):
        inputs, targets = next(data)
        loss = functional.cross_entropy(replica(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if not kept:
            residuals.forget()
    last = torch.stack(losses[-50:]).mean()
    dist.all_reduce(last, dist.ReduceOp.AVG)
    return float(last)


def training(steps: int) -> None:
    for form in FORMATS:
        for kept in (True, False) if form else (True,):
            loss = train(form, steps, kept=kept)
            if dist.get_rank() == 0:
                print(f"{form or 'fp32'}{'' if kept else ' without residuals'}: loss {loss:.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crossing", "training"))
    parser.add_argument("--mib", type=int, default=25)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fairring.register()
    dist.init_process_group("fairring")
    if arguments.what == "crossing":
        crossing(arguments.mib, arguments.calls)
    else:
        training(arguments.steps)
    dist.destroy_process_group()


main()
