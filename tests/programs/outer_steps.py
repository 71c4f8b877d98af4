"""A rank: trainings by outer steps in each format, beside a reference that plays all sites in one process.

Prints JSON: for each training a hash of the global parameters, how far they are from the reference, and the bytes that
this rank sent to other sites; and whether one that is resumed in the middle of a crossing ends with the same bits.
"""

import copy
import hashlib
import json
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairring import register
from fairring.outer import DiLoCo
from fairring.traffic import traffic

SITES = [[0, 1], [2]]  # their ranks
STEPS, PERIOD = 16, 4
OUTER = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
RUNS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "delayed": {"fragments": 2, "delay": 3},
    "int8": {"format": "int8"},
    "int4": {"format": "int4", "delay": 2},
    "top-k": {"format": "top-k", "fragments": 2},
}


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))


def loss_of(model: nn.Module, step: int, rank: int) -> Tensor:
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * step + rank))
    loss: Tensor = (model(inputs) - inputs.flip(1)).square().mean()
    return loss


class Training:
    inner_group: Any = None  # made by the first one

    def __init__(self, settings: dict[str, Any], state: dict[str, Any] | None = None) -> None:
        self.model = model_of(dist.get_rank())  # another one on each rank: the first one's counts
        if state is not None:
            self.model.load_state_dict(state)
        self.diloco = DiLoCo(self.model, OUTER, PERIOD, inner_group=Training.inner_group, **settings)
        Training.inner_group = self.diloco.inner_group
        self.replica = DistributedDataParallel(self.model, process_group=self.diloco.inner_group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        dist.barrier()  # what the start sends has been sent

    def run(self, first: int, end: int) -> None:
        for step in range(first, end):
            self.optimizer.zero_grad()
            loss_of(self.replica, step, dist.get_rank()).backward()
            self.optimizer.step()
            self.diloco.step()

    def whole(self) -> Tensor:
        return torch.cat(self.diloco.state_dict()["global"]["whole"])

    def own(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def reference(settings: dict[str, Any]) -> Tensor:
    """The global parameters by the definition, without an exchange: each site is a model here."""
    whole = model_of(0)
    sites = [copy.deepcopy(whole) for _ in SITES]
    layers = [list(whole[0].parameters()), list(whole[2].parameters())]  # type: ignore[index]
    fragments = layers if "fragments" in settings else [layers[0] + layers[1]]
    outer = [OUTER(fragment) for fragment in fragments]
    places = {parameter: place for place, parameter in enumerate(whole.parameters())}
    under_way: dict[tuple[int, int], list[list[Tensor]]] = {}  # when it is due, which fragment -> by site what was sent
    for step in range(STEPS):
        for model, ranks in zip(sites, SITES, strict=True):
            mean_loss = torch.stack([loss_of(model, step, rank) for rank in ranks]).mean()
            gradients = torch.autograd.grad(mean_loss, list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.data -= 0.5 * gradient
        for number, fragment in enumerate(fragments):
            of_sites = [[list(model.parameters())[places[one]] for one in fragment] for model in sites]
            if (step + 1) % PERIOD == (number + 1) * PERIOD // len(fragments) % PERIOD:
                sent = [[one.detach().clone() for one in parameters] for parameters in of_sites]
                under_way[step + settings.get("delay", 0), number] = sent
            if (step, number) in under_way:
                sent = under_way.pop((step, number))
                for place, one in enumerate(fragment):
                    one.grad = sum(
                        (one.detach() - site[place]) * len(ranks) / 3 for site, ranks in zip(sent, SITES, strict=True)
                    )
                outer[number].step()
                for parameters, site in zip(of_sites, sent, strict=True):
                    for one, own, before in zip(fragment, parameters, site, strict=True):
                        own.data += one.detach() - before
    return torch.cat([parameter.detach().flatten() for parameter in whole.parameters()])


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def trained(settings: dict[str, Any]) -> dict[str, Any]:
    training = Training(settings)
    before = traffic().get("site")
    training.run(0, STEPS)
    whole, exact = training.whole(), reference(settings)
    sent = traffic()["site"].bytes - (before.bytes if before else 0)
    training.diloco.finish()
    finished = digest(training.own()) == digest(training.whole())
    return {"bits": digest(whole), "apart": float((whole - exact).abs().max()), "sent": sent, "finished": finished}


def resumed(form: str) -> list[bool]:
    """Whether one has the same bits that begins with the saved model, and one that goes back to the state."""
    settings = {"fragments": 2, "delay": 3, "format": form}
    training = Training(settings)
    training.run(0, 7)  # with a fragment on its way
    model, state = copy.deepcopy(training.model.state_dict()), training.diloco.state_dict()
    training.run(7, STEPS)  # likewise
    exact = digest(training.whole())
    again = Training(settings, model)
    same = []
    for other in (again, training):
        other.diloco.load_state_dict(state)
        other.run(7, STEPS)
        same.append(digest(other.whole()) == exact)
    return same


def main() -> None:
    register()
    torch.set_num_threads(1)
    dist.init_process_group("fairring")
    dist.all_reduce(torch.ones(1))
    said = {name: trained(settings) for name, settings in RUNS.items()}
    site = dist.get_process_group_ranks(Training.inner_group)
    print(json.dumps({"runs": said, "resumed": [resumed(form) for form in ("int4", "top-k")], "site": site}))
    dist.destroy_process_group()


main()
