"""A rank: a training whose gradients cross between sites as bf16, or as they are, by DDP.

Prints JSON: the bytes that this rank sent to other sites, a hash of its parameters, and how far they are from those of
a training without rounding.
"""

import hashlib
import json
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairring import _core, register
from fairring.between_sites import Residuals, as_bf16

STEPS = 20
SITE_LEVEL = 2


def sent_to_sites() -> int:
    group: Any = dist.group.WORLD
    traffic = _core.traffic(group._get_backend(torch.device("cpu"))) or {}
    return traffic[SITE_LEVEL]["bytes"] if SITE_LEVEL in traffic else 0


def train(rounded: bool) -> tuple[list[torch.Tensor], int]:
    """Parameters, and bytes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64))
    replica = DistributedDataParallel(model, bucket_cap_mb=0.05)
    if rounded:
        replica.register_comm_hook(Residuals(), as_bf16)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.5)
    inputs = torch.Generator().manual_seed(dist.get_rank())
    dist.barrier()  # DDP's broadcast of the parameters has been sent, not only begun
    before = sent_to_sites()
    for _ in range(STEPS):
        optimizer.zero_grad()
        sample = torch.randn(16, 64, generator=inputs)
        (replica(sample) - sample.flip(1)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()], sent_to_sites() - before


def main() -> None:
    register()
    dist.init_process_group("fairring")
    dist.all_reduce(torch.ones(1))
    exact, whole_bytes = train(False)
    ours, bytes_sent = train(True)
    digest = hashlib.sha256(b"".join(parameter.numpy().tobytes() for parameter in ours)).hexdigest()
    apart = max(float((a - b).abs().max()) for a, b in zip(exact, ours, strict=True))
    differs = any(not torch.equal(a, b) for a, b in zip(exact, ours, strict=True))
    print(json.dumps({"whole": whole_bytes, "sent": bytes_sent, "bits": digest, "apart": apart, "differs": differs}))
    dist.destroy_process_group()


main()
