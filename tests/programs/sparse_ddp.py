"""A rank: trains embeddings by DDP with dense gradients, sparse ones, and sparse ones fused, on the backend named.

Prints whether all three end alike, the sparse ones with the same bits where the world is a power of two, how many
all-reduces of Fairring's a step of the sparse and of the fused one took, and a hash of the fused one's parameters.
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import fairring.sparse

STEPS, WIDTH, BATCH, WORDS = 5, 8, 6, 4
TABLES, BAGS = {"word": 50, "pair": 30, "tag": 7}, 20  # rows of each


class Recommender(nn.Module):
    """Tables of one width and a narrower one, and a dense layer behind them."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(rows, WIDTH, sparse=sparse) for name, rows in TABLES.items()})
        self.bag = nn.EmbeddingBag(BAGS, WIDTH, sparse=sparse, mode="sum")
        self.narrow = nn.Embedding(BAGS, 3, sparse=sparse)
        self.head = nn.Linear(WIDTH + 3, 1)

    def forward(self, words: Tensor) -> Tensor:
        wide = self.bag(words % BAGS)
        for name, rows in TABLES.items():
            wide = wide + self.tables[name](words % rows).sum(1)
        loss: Tensor = self.head(torch.cat([wide, self.narrow(words % BAGS).sum(1)], dim=1)).sigmoid().mean()
        return loss


def train(kind: str) -> tuple[list[Tensor], int]:
    """The parameters afterwards, and the all-reduces of the last step, of whatever layout."""
    torch.manual_seed(1)
    replica = DistributedDataParallel(Recommender(sparse=kind != "dense"))
    if kind == "fused":
        fairring.sparse.fuse(replica)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(dist.get_rank())
    calls = 0
    for _ in range(STEPS):
        batches = torch.randint(1000, (2, BATCH, WORDS), generator=draw)
        optimizer.zero_grad()
        with replica.no_sync():
            replica(batches[0]).backward()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            replica(batches[1]).backward()
        optimizer.step()
        calls = sum(
            event.name in ("fairring:all_reduce", "fairring:sparse_all_reduce") for event in profiler.events() or []
        )
    return [parameter.detach() for parameter in replica.parameters()], calls


def alike(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-5, atol=1e-7)


def main() -> None:
    dist.init_process_group(sys.argv[1])
    (dense, _), (sparse, apart), (fused, together) = train("dense"), train("sparse"), train("fused")
    close = all(map(alike, dense, sparse))
    world = dist.get_world_size()
    same = torch.equal if world.bit_count() == 1 else alike  # fuse() says why
    close &= all(map(same, sparse, fused))
    digest = hashlib.sha256(b"".join(bytes(p.untyped_storage()) for p in fused)).hexdigest()
    print("alike" if close else "different", apart, together, digest)
    dist.destroy_process_group()


main()
