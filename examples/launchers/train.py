"""Trains a small model with DDP, whatever has started the ranks, and goes on from a checkpoint where there is one.

    torchrun --nproc-per-node 2 examples/launchers/train.py --checkpoint model.pt

It reads what torchrun sets, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; the scripts beside it set the same from what
other launchers tell. Weights and batches follow from the step and the rank alone, so a run that went on from a
checkpoint ends with the same loss as one that was never interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairring.traffic import traffic

FEATURES, BATCH, SEED = 32, 16, 1
SAVE_EVERY = 2  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model; start it with a launcher.")
    parser.add_argument("--backend", default="fairring", help="process group (default %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=10, help="in all, those before a restart too (default %(default)s)"
    )
    parser.add_argument("--checkpoint", type=Path, help="file on a disk of rank 0's machine (default: none)")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    train(arguments.steps, arguments.checkpoint)
    dist.destroy_process_group()


def train(steps: int, checkpoint: Path | None) -> None:
    """In the default group; rank 0 prints the mean loss of every step."""
    torch.manual_seed(SEED)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    done = load(model, optimizer, checkpoint)
    say(f"{dist.get_backend()}: {dist.get_world_size()} ranks, from step {done} on")
    for step in range(done + 1, steps + 1):
        inputs, targets = batch(step)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        say(f"step {step} loss {mean.item() / dist.get_world_size():.6f}")
        if checkpoint and step % SAVE_EVERY == 0 and dist.get_rank() == 0:
            save(model, optimizer, step, checkpoint)
    if dist.get_backend() == "fairring":
        say("rank 0 moved " + "; ".join(f"{level}: {moved}" for level, moved in traffic().items()))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share of a step: (BATCH, FEATURES) and (BATCH, 1)."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(BATCH, FEATURES, generator=generator)
    return inputs, inputs.sin().sum(dim=1, keepdim=True)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, file: Path) -> None:
    """The file is there as a whole or not at all: a rank may be killed at any time."""
    partial = file.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    partial.replace(file)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, file: Path | None) -> int:
    """Rank 0 reads the file, if there is one, and hands it to all. Returns the steps that are done."""
    found: list[Any] = [None]
    if dist.get_rank() == 0 and file and file.exists():
        found = [torch.load(file, weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return int(found[0]["step"])


def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
