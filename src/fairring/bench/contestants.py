"""The contestants of a benchmark: backends by name, and Fairring with other settings, each in a group of its own.

    gloo  fairring  fake  fairring[transport=tensorpipe]  fairring[lanes=2,slice_size=4MiB]

"fake" is PyTorch's backend that does nothing: its time is c10d's own part of every call, and its results are not sums.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fairring.config import PREFIX, Config

STOCK = {"cpu": "gloo", "cuda": "nccl"}  # torch's own, by the kind of device that has the tensors
FLOOR = "fake"
ALONE = "no exchange"  # a training step without one: a row beside those of contestants


@dataclass(frozen=True)
class Contestant:
    """settings: Fairring's variables for this contestant only, on top of the environment's."""

    name: str
    backend: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def sums(self) -> bool:
        """Whether its results are correct sums: only those can be checked."""
        return self.backend != FLOOR


def parse_contestants(text: str) -> list[Contestant]:
    """From a list with commas. Raises ValueError for an entry that can't be understood or comes twice."""
    parts = re.split(r",(?![^\[]*\])", text)
    found = [_parse(part.strip()) for part in parts]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ValueError(f"{twice} is named twice")
    return found


def _parse(text: str) -> Contestant:
    match = re.fullmatch(r"(\w+)(?:\[([^\[\]]+)\])?", text)
    if not match:
        raise ValueError(f"{text!r} is no backend; write for instance gloo or fairring[lanes=2]")
    pairs = [part.strip().partition("=") for part in match[2].split(",")] if match[2] else []
    if pairs and (match[1] != "fairring" or not all(name and value for name, _, value in pairs)):
        raise ValueError(f"{text!r}: settings are Fairring's variables without their prefix, as in fairring[lanes=2]")
    settings = {PREFIX + name.upper(): value for name, _, value in pairs}
    Config.from_environment({**os.environ, **settings})  # raises the error in them
    return Contestant(text, match[1], settings)


@contextmanager
def settings_of(contestant: Contestant) -> Iterator[None]:
    """The environment as this contestant's group sees it while it is made."""
    before = {name: os.environ.get(name) for name in contestant.settings}
    os.environ.update(contestant.settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_group(contestant: Contestant, ranks: Sequence[int] | None = None) -> Any:
    """A group of these ranks, or of all. Called by all ranks. Raises what making it raises, as unusable settings do."""
    import torch.distributed as dist

    if contestant.backend == "fairring":
        from fairring import register

        register()
    elif contestant.backend == FLOOR:  # which torch does not know by itself
        import torch.testing._internal.distributed.fake_pg  # noqa: F401
    with settings_of(contestant):
        return dist.new_group(ranks, backend=contestant.backend)
