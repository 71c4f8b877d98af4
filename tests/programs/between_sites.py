"""A rank: trainings whose gradients cross between sites in each format, and as they are, by DDP.

Prints JSON: for each the bytes that this rank sent to other sites, a hash of its parameters, and how far they are from
those of the training without rounding; and whether one that is resumed from a checkpoint ends with the same bits.
"""

import copy
import hashlib
import json
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairring import _core, register
from fairring.between_sites import Residuals, all_reduce, compressed

STEPS = 20
SITE_LEVEL = 2


def sent_to_sites() -> int:
    group: Any = dist.group.WORLD
    traffic = _core.traffic(group._get_backend(torch.device("cpu"))) or {}
    return traffic[SITE_LEVEL]["bytes"] if SITE_LEVEL in traffic else 0


class Training:
    def __init__(self, residuals: Residuals | None) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64))
        self.replica = DistributedDataParallel(model, bucket_cap_mb=0.05)
        if residuals is not None:
            self.replica.register_comm_hook(residuals, compressed)
        self.optimizer = torch.optim.SGD(self.replica.parameters(), lr=0.5)
        dist.barrier()  # DDP's broadcast of the parameters has been sent, not only begun

    def steps(self, first: int, end: int) -> None:
        for step in range(first, end):
            self.optimizer.zero_grad()
            inputs = torch.Generator().manual_seed(100 * step + dist.get_rank())
            sample = torch.randn(16, 64, generator=inputs)
            (self.replica(sample) - sample.flip(1)).square().mean().backward()
            self.optimizer.step()

    def parameters(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.replica.parameters()])


def digest(parameters: torch.Tensor) -> str:
    return hashlib.sha256(parameters.numpy().tobytes()).hexdigest()


def compared(residuals: Residuals | None, exact: torch.Tensor | None) -> tuple[dict[str, Any], torch.Tensor]:
    training = Training(residuals)
    before = sent_to_sites()
    training.steps(0, STEPS)
    ours = training.parameters()
    apart = 0.0 if exact is None else float((ours - exact).abs().max())
    return {"sent": sent_to_sites() - before, "bits": digest(ours), "apart": apart}, ours


def resumed() -> list[bool]:
    """Whether a training goes on with the same bits from a checkpoint: with its residuals, and without."""
    residuals = Residuals("int4")
    training = Training(residuals)
    training.steps(0, 6)
    saved = copy.deepcopy((training.replica.state_dict(), residuals.state_dict()))
    training.steps(6, 10)
    ended = digest(training.parameters())
    same = []
    for state in (saved[1], Residuals().state_dict()):
        training.replica.load_state_dict(saved[0])
        residuals.load_state_dict(state)
        training.steps(6, 10)
        same.append(digest(training.parameters()) == ended)
    return same


def one_tensor() -> list[float]:
    """The first elements of two sums of one tensor; what the first has lost is in the second."""
    residual = torch.zeros(200)
    sums = []
    for _ in range(2):
        tensor = torch.linspace(0, 1, 200)
        all_reduce(tensor, "int4", residual).wait()
        sums.append(tensor)
    return [float((sums[0] - sums[1]).abs().max()), float((sums[0] + sums[1]).max()) / dist.get_world_size()]


def main() -> None:
    register()
    dist.init_process_group("fairring")
    dist.all_reduce(torch.ones(1))
    whole, exact = compared(None, None)
    said = {"whole": whole}
    for name in ("bf16", "int8", "int4"):
        said[name], _ = compared(Residuals(name), exact)
    said["by bucket"], _ = compared(Residuals(lambda bucket: "int4" if bucket.index() else None), exact)
    print(json.dumps({"formats": said, "resumed": resumed(), "one": one_tensor()}))
    dist.destroy_process_group()


main()
