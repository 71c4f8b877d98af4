"""Trains a small transformer language model on bytes, on any backend: a plain script that torchrun starts.

    torchrun --nproc-per-node 2 examples/train_transformer.py --backend gloo
    fairring lab --machines 2 --ranks 2 --rate 1gbit -- python examples/train_transformer.py --backend fairring
    torchrun --nproc-per-node 2 examples/train_transformer.py --parallel fsdp

It trains with DDP, or with FSDP2: over all ranks (fsdp), with a copy of the parameters that each machine keeps between
forward and backward (fsdp-machine), or sharded inside each machine and replicated over machines (hsdp).

The text is the source of Python's own standard library, which is on every machine; each rank reads its own shard of it.
The same seed, world and text give the same batches on every backend, so two runs can be compared step by step. At the
end all ranks hash the whole parameters: they must be bit-identical, and the exit code is 1 if they aren't.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

BYTE_VALUES = 256
PARALLEL = ("ddp", "fsdp", "fsdp-machine", "hsdp")

Report = dict[str, Any]  # goes through JSON or pickle


@dataclass(frozen=True)
class Shape:
    """Size of the model and of one rank's batch: much gradient for little arithmetic, so that the network is felt."""

    width: int = 384
    heads: int = 6
    layers: int = 6
    context: int = 64  # bytes that the model sees
    batch: int = 2  # sequences per rank and step


class Block(nn.Module):
    """One decoder layer: causal self-attention, then a feed-forward net, each behind a LayerNorm and a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.feed_norm = nn.LayerNorm(shape.width)
        self.feed = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, context, width), and so is the result."""
        batch, length, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, length, width))
        fed: Tensor = self.feed(self.feed_norm(x))
        return x + fed


class ByteTransformer(nn.Module):
    """A decoder-only language model whose vocabulary is the 256 byte values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTE_VALUES, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, BYTE_VALUES)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, context) of int64; returns logits (batch, context, 256) for each next byte."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(self.norm(self.blocks(self.token(tokens) + self.position(places))))
        return logits


def read_corpus() -> Tensor:
    """The top-level modules of Python's standard library as one uint8 tensor, files in sorted order."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = bytearray().join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    if len(text) < 1 << 20:
        raise SystemExit(f"train_transformer: {folder} holds {len(text)} bytes of *.py, less text than 1 MiB")
    return torch.frombuffer(text, dtype=torch.uint8)


def batches(shape: Shape, rank: int, world: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (inputs, targets), each (batch, context) of int64, from this rank's own shard of the corpus."""
    corpus = read_corpus()
    shard = corpus[rank * len(corpus) // world : (rank + 1) * len(corpus) // world]
    generator = torch.Generator().manual_seed(seed * world + rank)
    window = torch.arange(shape.context + 1)
    while True:
        starts = torch.randint(len(shard) - shape.context, (shape.batch, 1), generator=generator)
        text = shard[starts + window].long()
        yield text[:, :-1], text[:, 1:]


def parameter_hash(model: nn.Module) -> str:
    """sha256 over the bytes of all parameters in their order: equal if and only if they are bit-identical."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        data = whole(parameter.detach()).cpu().contiguous()
        digest.update(ctypes.string_at(data.data_ptr(), data.nbytes))
    return digest.hexdigest()


def whole(tensor: Tensor) -> Tensor:
    """FSDP's tensors are shards, of which this gathers all; DDP's are whole."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def disagreement(hashes: list[str]) -> str | None:
    """None if all ranks' hashes are equal; else a text that names the ranks of each."""
    ranks_of: dict[str, list[int]] = {}
    for rank, value in enumerate(hashes):
        ranks_of.setdefault(value, []).append(rank)
    if len(ranks_of) == 1:
        return None
    sides = "; ".join(f"ranks {', '.join(map(str, ranks))} have {value[:12]}" for value, ranks in ranks_of.items())
    return f"parameters are not bit-identical after training: {sides}"


@contextmanager
def progress_reporter(steps: int, rank: int) -> Iterator[Callable[[int, float, float], object]]:
    """Yields report(step, loss, seconds): on rank 0 a bar on a terminal, else a line per step; nothing elsewhere."""
    if rank != 0:
        yield lambda *_: None
    elif not sys.stdout.isatty():
        yield lambda step, loss, took: print(f"step {step}/{steps} loss {loss:.4f} seconds {took:.3f}", flush=True)
    else:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        with Progress(*columns) as bar:
            task = bar.add_task("connecting", total=steps)
            yield lambda step, loss, seconds: bar.update(
                task, completed=step, description=f"loss {loss:.4f}, {seconds:.2f} s per step"
            )


@dataclass
class History:
    """One value per step: this rank's loss before it, the norm of the averaged gradient, wall seconds."""

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def parallel(model: ByteTransformer, form: str) -> nn.Module:
    """The model as the ranks train it together. form: one of PARALLEL."""
    if form == "ddp":
        return DistributedDataParallel(model)
    ranks_of_machine = int(os.environ["LOCAL_WORLD_SIZE"])  # torchrun sets it
    mesh = mesh_of(ranks_of_machine if form == "hsdp" else None)
    keep = ranks_of_machine if form == "fsdp-machine" else True
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=keep)
    fully_shard(model, mesh=mesh, reshard_after_forward=keep)
    return model


def mesh_of(ranks_of_shard: int | None) -> DeviceMesh:
    """All ranks in one line; or in lines of so many, which are replicas of each other."""
    world = dist.get_world_size()
    if ranks_of_shard is None:
        return init_device_mesh("cpu", (world,))
    return init_device_mesh("cpu", (world // ranks_of_shard, ranks_of_shard), mesh_dim_names=("replicate", "shard"))


def train(model: ByteTransformer, shape: Shape, arguments: argparse.Namespace) -> History:
    """Runs the steps. The norm stands in the result because AdamW alone would hide a wrong scale of the gradients."""
    rank, world = dist.get_rank(), dist.get_world_size()
    replica = parallel(model, arguments.parallel)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=arguments.learning_rate)
    history = History()
    data = batches(shape, rank, world, arguments.seed)
    with progress_reporter(arguments.steps, rank) as report:
        for step in range(1, arguments.steps + 1):
            begin = time.perf_counter()
            inputs, targets = next(data)
            loss = functional.cross_entropy(replica(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(replica.parameters(), max_norm=1.0)
            optimizer.step()
            history.losses.append(loss.item())
            history.gradient_norms.append(whole(norm).item())
            history.seconds.append(time.perf_counter() - begin)
            report(step, loss.item(), history.seconds[-1])
    return history


def summary(shape: Shape, model: nn.Module, ranks: list[Report], arguments: argparse.Namespace) -> Report:
    """What the JSON holds. A step lasts as long as on its slowest rank; its loss is the mean over the ranks."""
    world = len(ranks)
    seconds = [max(column) for column in zip(*(rank["seconds"] for rank in ranks), strict=True)]
    tokens = world * shape.batch * shape.context
    steady = seconds[1:] or seconds  # the first step also opens the connections
    return {
        "backend": arguments.backend,
        "parallel": arguments.parallel,
        "torch": torch.__version__,
        "world": world,
        "machines": len({rank["machine"] for rank in ranks}),
        "cores": os.cpu_count(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "gradient_bytes": sum(parameter.numel() * parameter.itemsize for parameter in model.parameters()),
        "shape": asdict(shape),
        "seed": arguments.seed,
        "learning_rate": arguments.learning_rate,
        "tokens_per_step": tokens,
        "tokens_per_second": tokens * len(steady) / sum(steady),
        "step_seconds": seconds,
        "losses": [sum(column) / world for column in zip(*(rank["losses"] for rank in ranks), strict=True)],
        "gradient_norms": ranks[0]["gradient_norms"],
        "parameter_hashes": [rank["hash"] for rank in ranks],
    }


def run(arguments: argparse.Namespace) -> int:
    """Trains in the process group that is there; returns the exit code, the same on all ranks."""
    torch.manual_seed(arguments.seed)
    shape = Shape()
    model = ByteTransformer(shape)
    mine = {
        **asdict(train(model, shape, arguments)),
        "hash": parameter_hash(model),
        "machine": os.environ.get("GROUP_RANK", "0"),  # torchrun's number of the machine
    }
    ranks: list[Report] = [{}] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    different = disagreement([rank["hash"] for rank in ranks])
    if dist.get_rank() == 0:
        result = summary(shape, model, ranks, arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{arguments.backend}: {result['tokens_per_second']:.0f} tokens/s, final loss {result['losses'][-1]:.4f}")
        print(different or f"parameters are bit-identical on {len(ranks)} ranks: {mine['hash'][:12]}", flush=True)
    return 1 if different else 0


def in_group(backend: str, run: Callable[[], int]) -> int:
    """Runs it with a default process group of this backend."""
    if backend == "fairring" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
        import fairring  # noqa: F401  registers the backend; newer PyTorch finds it by its entry point
    dist.init_process_group(backend)
    try:
        return run()
    finally:
        dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a byte-level transformer; start it with torchrun.")
    parser.add_argument("--backend", default="fairring", help="process group: fairring, gloo, … (default %(default)s)")
    parser.add_argument("--parallel", choices=PARALLEL, default="ddp", help="DDP, or a form of FSDP2")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="AdamW's (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and the batches (default %(default)s)")
    parser.add_argument("--json", type=Path, help="file for rank 0's result")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps {arguments.steps}: at least 1")
    return in_group(arguments.backend, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
