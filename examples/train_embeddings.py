"""Trains word embeddings with DDP, by sparse gradients or dense ones, on any backend: a plain script for torchrun.

    fairring lab --machines 2 --ranks 2 --rate 1gbit -- python examples/train_embeddings.py --sparse
    fairring lab --machines 2 --ranks 2 --rate 1gbit -- python examples/train_embeddings.py --dense --backend gloo

The words are those of the source of Python's own standard library, which is on every machine. As in a recommender, the
tables hold nearly all parameters, and a step touches few of their rows: a word and the pair that it makes with the word
before predict the words around it, beside words drawn at random (skip-gram with negative sampling). The batches and the
losses are the same for sparse and dense gradients and for every backend. Each step's gradients are computed once more
without an exchange; what that takes less is the exchange's part.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from train_transformer import disagreement, in_group, parameter_hash, progress_reporter, read_corpus

WORD = re.compile(rb"[A-Za-z_]\w*")
PAIR_FACTOR = 1_000_003  # a prime that spreads pairs over their table
PAIR_WEIGHT = 0.5
REACH = 4  # words around the middle one that are predicted
NEGATIVES = 5  # drawn at random for each of them

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
Report = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """words: of the whole text, as numbers by frequency, the most frequent first."""

    words: Tensor
    vocabulary: int


def read_text() -> Text:
    found = WORD.findall(bytes(read_corpus().tolist()))
    counts: dict[bytes, int] = {}
    for word in found:
        counts[word] = counts.get(word, 0) + 1
    numbers = {word: number for number, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word)))}
    return Text(torch.tensor([numbers[word] for word in found]), len(numbers))


class WordModel(nn.Module):
    """Scores how likely a word stands near a middle one; a dense layer between the tables."""

    def __init__(self, vocabulary: int, pairs: int, width: int, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, sparse=sparse)
        self.pairs = nn.Embedding(pairs, width, sparse=sparse)
        self.around = nn.Embedding(vocabulary, width, sparse=sparse)
        self.mix = nn.Linear(width, width)
        for table in (self.words, self.pairs, self.around):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, batch: Batch) -> Tensor:
        """The loss. Middle words and pairs: (batch,); near ones and negatives: (batch, any)."""
        middle, pair, near, negatives = batch
        # Weighted, for the gradients of a plain sum's terms lie in one memory, and DDP divides each of them in place.
        features = self.mix(self.words(middle) + PAIR_WEIGHT * self.pairs(pair)).unsqueeze(2)
        likely, unlikely = self.around(near) @ features, self.around(negatives) @ features
        return -functional.logsigmoid(likely).mean() - functional.logsigmoid(-unlikely).mean()


def batches(text: Text, arguments: argparse.Namespace) -> Iterator[Batch]:
    """Endless, from this rank's own shard of the text; the same on every backend."""
    rank, world = dist.get_rank(), dist.get_world_size()
    words, length = text.words, len(text.words)
    begin, end = rank * length // world, (rank + 1) * length // world
    draw = torch.Generator().manual_seed(arguments.seed * world + rank)
    around = torch.tensor([step for step in range(-REACH, REACH + 1) if step])
    while True:
        places = torch.randint(begin + REACH, end - REACH, (arguments.batch,), generator=draw)
        middle, before = words[places], words[places - 1]
        negatives = words[torch.randint(length, (arguments.batch, NEGATIVES), generator=draw)]
        yield middle, (before * PAIR_FACTOR + middle) % arguments.pairs, words[places.unsqueeze(1) + around], negatives


@dataclass
class History:
    """One value per step: this rank's loss before it; wall seconds of it, and of what of it is the exchange."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    exchange: list[float] = field(default_factory=list)


def compute_gradients(replica: DistributedDataParallel, batch: Batch) -> tuple[float, float]:
    """The loss, and the seconds on this rank."""
    replica.zero_grad()
    dist.barrier()
    begin = time.perf_counter()
    loss = replica(batch)
    loss.backward()
    return loss.item(), time.perf_counter() - begin


def train(model: WordModel, text: Text, arguments: argparse.Namespace) -> History:
    replica = DistributedDataParallel(model)
    if arguments.sparse and arguments.fuse:
        from fairring.sparse import fuse

        fuse(replica)
    # Not one that scales by the gradients' size, which would make much of the rounding that sums of them differ by.
    optimizer = torch.optim.SGD(replica.parameters(), lr=arguments.learning_rate)
    data, history = batches(text, arguments), History()
    with progress_reporter(arguments.steps, dist.get_rank()) as report:
        for step in range(1, arguments.steps + 1):
            batch = next(data)
            with replica.no_sync():
                _, alone = compute_gradients(replica, batch)
            loss, together = compute_gradients(replica, batch)
            begin = time.perf_counter()
            optimizer.step()
            history.losses.append(loss)
            history.seconds.append(together + time.perf_counter() - begin)
            history.exchange.append(together - alone)
            report(step, loss, history.seconds[-1])
    return history


def slowest(ranks: list[Report], name: str) -> float:
    """The median over the steps but the first, which also opens connections, of the slowest rank's seconds."""
    columns = [max(column) for column in zip(*(rank[name] for rank in ranks), strict=True)]
    return float(median(columns[1:] or columns))


def summary(model: WordModel, ranks: list[Report], arguments: argparse.Namespace) -> Report:
    """What the JSON holds."""
    form = "dense" if not arguments.sparse else "sparse, fused" if arguments.fuse else "sparse"
    return {
        "backend": arguments.backend,
        "gradients": form,
        "torch": torch.__version__,
        "world": len(ranks),
        "table_rows": {"words": model.words.num_embeddings, "pairs": arguments.pairs},
        "width": arguments.width,
        "batch": arguments.batch,
        "seed": arguments.seed,
        "learning_rate": arguments.learning_rate,
        "step_seconds": slowest(ranks, "seconds"),
        "exchange_seconds": slowest(ranks, "exchange"),
        "losses": [sum(column) / len(ranks) for column in zip(*(rank["losses"] for rank in ranks), strict=True)],
        "parameter_hashes": [rank["hash"] for rank in ranks],
        "ranks": ranks,
    }


def run(arguments: argparse.Namespace) -> int:
    """Trains in the process group that is there; returns the exit code, the same on all ranks."""
    torch.manual_seed(arguments.seed)
    text = read_text()
    model = WordModel(text.vocabulary, arguments.pairs, arguments.width, arguments.sparse)
    history = train(model, text, arguments)
    mine = {**vars(history), "hash": parameter_hash(model)}
    ranks: list[Report] = [{}] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    different = disagreement([rank["hash"] for rank in ranks])
    if dist.get_rank() == 0:
        result = summary(model, ranks, arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")
        print(
            f"{result['backend']}, {result['gradients']} gradients: {result['step_seconds']:.3f} s per step,"
            f" {result['exchange_seconds']:.3f} s of it for the exchange, final loss {result['losses'][-1]:.6f}"
        )
        print(different or f"parameters are bit-identical on {len(ranks)} ranks: {mine['hash'][:12]}", flush=True)
    return 1 if different else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train word embeddings with DDP; start it with torchrun.")
    add = parser.add_argument
    add("--backend", default="fairring", help="process group: fairring, gloo, … (default %(default)s)")
    add("--sparse", action="store_true", default=True, help="sparse gradients of the tables (default)")
    add("--dense", dest="sparse", action="store_false", help="dense ones")
    text = "the tables' gradients in one exchange (default), or one for each"
    add("--fuse", action=argparse.BooleanOptionalAction, default=True, help=text)
    add("--pairs", type=int, default=200_000, help="rows of the pairs' table (default %(default)s)")
    add("--width", type=int, default=128, help="of a row (default %(default)s)")
    add("--batch", type=int, default=1024, help="middle words per rank and step (default %(default)s)")
    add("--steps", type=int, default=20, help="optimizer steps (default %(default)s)")
    add("--learning-rate", type=float, default=20.0, help="SGD's (default %(default)s)")
    add("--seed", type=int, default=1, help="of the weights and the batches (default %(default)s)")
    add("--json", type=Path, help="file for rank 0's result")
    arguments = parser.parse_args()
    for name in ("pairs", "width", "batch", "steps"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} {getattr(arguments, name)}: at least 1")
    return arguments


def main() -> int:
    arguments = parse()
    return in_group(arguments.backend, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
