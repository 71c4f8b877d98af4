"""All features in the order of the table, and what is known not to work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from ranks import Outcome

from features import (
    checkpoints,
    coalesced,
    data_parallel,
    exchanges,
    functional,
    gradient_hooks,
    groups,
    lifecycles,
    messages,
    objects,
    observers,
    pipelines,
    reductions,
    sharding,
    tensor_parallel,
    works,
)
from features.rank import Rank
from features.world import Worlds

BACKENDS = ("gloo", "fairring")


@dataclass(frozen=True)
class Area:
    title: str
    module: ModuleType
    with_group: bool = True  # whether the world's default group is there before its features begin

    def features(self) -> list[Feature]:
        functions = [
            value
            for name, value in vars(self.module).items()
            if inspect.isfunction(value) and value.__module__ == self.module.__name__ and not name.startswith("_")
        ]
        return [Feature(self, function) for function in functions]


@dataclass(frozen=True)
class Feature:
    area: Area
    function: Callable[[Rank], None]

    @property
    def key(self) -> str:
        """As in reductions.all_reduce_of_floats."""
        return f"{self.area.module.__name__.rpartition('.')[2]}.{self.function.__name__}"

    @property
    def name(self) -> str:
        return (inspect.getdoc(self.function) or "").splitlines()[0].rstrip(".")

    def play(self, worlds: Worlds, backend: str) -> Outcome:
        return worlds.play(backend, self.area.title, self.function, self.area.with_group)


AREAS = [
    Area("Reductions", reductions),
    Area("Exchanges", exchanges),
    Area("Coalesced calls", coalesced),
    Area("Objects", objects),
    Area("Messages", messages),
    Area("Works", works),
    Area("Groups and meshes", groups),
    Area("Making and ending groups", lifecycles, with_group=False),
    Area("Observers", observers),
    Area("Functional and compiled", functional),
    Area("DistributedDataParallel", data_parallel),
    Area("Gradient hooks and model averages", gradient_hooks),
    Area("Sharded training", sharding),
    Area("Tensors in parts", tensor_parallel),
    Area("Pipelines", pipelines),
    Area("Checkpoints", checkpoints),
]


def features() -> list[Feature]:
    return [feature for area in AREAS for feature in area.features()]
