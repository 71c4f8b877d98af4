"""The effect of rounding between sites on a training: its loss with fp32, and with bf16 with and without residuals.

    fairring lab --machines 2 --ranks 2 --sites 2 --only-rank 0 -- python benchmarks/loss.py

A small transformer is trained on the source text of Python's standard library, by DistributedDataParallel and AdamW.
All trainings start from the same weights and see the same batches. Rank 0 prints a line of JSON for each: the mean loss
of all ranks in the last steps, and its mean distance, step by step, from the loss with fp32.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import sysconfig
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairring import register
from fairring.bench.training import CONTEXT, ByteModel, Shape
from fairring.between_sites import Residuals, as_bf16

LAST = 50
WAYS = ("fp32", "bf16", "bf16, what was lost thrown away")


def text() -> Tensor:
    library = Path(sysconfig.get_path("stdlib"))
    return torch.frombuffer(
        bytearray(b"".join(p.read_bytes() for p in sorted(library.glob("*.py")))), dtype=torch.uint8
    )


class Training:
    def __init__(self, way: str, shape: Shape) -> None:
        torch.manual_seed(1)
        self.replica = DistributedDataParallel(ByteModel(shape))
        self.residuals = Residuals()
        self.keeps = way == "bf16"
        if way != "fp32":
            self.replica.register_comm_hook(self.residuals, as_bf16)
        self.optimizer = torch.optim.AdamW(self.replica.parameters(), lr=1e-3)
        self.losses: list[float] = []

    def step(self, sample: Tensor) -> None:
        if not self.keeps:
            self.residuals.forget()
        self.optimizer.zero_grad()
        logits = self.replica(sample[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), sample[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        self.losses.append(mean.item())


def main() -> int:
    parser = argparse.ArgumentParser(description="Loss of trainings; start it with `fairring lab --sites 2`.")
    parser.add_argument("--steps", type=int, default=400, help="default %(default)s")
    arguments = parser.parse_args()
    register()
    dist.init_process_group("fairring")
    shape = Shape(width=128, layers=2, batch=8, bucket_mib=25)
    trainings = {way: Training(way, shape) for way in WAYS}
    corpus = text()
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(arguments.steps):
        begins = torch.randint(len(corpus) - CONTEXT - 1, (shape.batch,), generator=random)
        sample = torch.stack([corpus[begin : begin + CONTEXT + 1] for begin in begins.tolist()]).long()
        for training in trainings.values():
            training.step(sample)
    exact = trainings["fp32"].losses
    for way, training in trainings.items():
        apart = statistics.fmean(abs(a - b) for a, b in zip(training.losses, exact, strict=True))
        row = {"way": way, "steps": arguments.steps, "loss": round(statistics.fmean(training.losses[-LAST:]), 5)}
        if dist.get_rank() == 0:
            print(json.dumps({**row, "first": round(exact[0], 4), "apart": round(apart, 6)}), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
