"""Groups whose members a test gives, and changes: handles instead of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from ranks import Ranks

c10d: Any = dist.distributed_c10d
Members = tuple[int, int]  # rank, size


def begin(rank: int, size: int, port: int) -> str:
    """A group without members; this rank's handle."""
    store, timeout = dist.TCPStore("127.0.0.1", port, is_master=False), timedelta(seconds=60)
    dist.init_process_group(
        "fairring", store=store, rank=rank, world_size=size, timeout=timeout, enable_reconfigure=True
    )
    return handle_of(rank)


def handle_of(_rank: int) -> str:
    handle: str = c10d._get_reconfigure_handle()
    return handle


def join(_rank: int, uuid: int, handles: Iterable[str], seconds: float = 60) -> Members:
    c10d._reconfigure(uuid, handles, timeout=timedelta(seconds=seconds)).wait()
    return dist.get_rank(), dist.get_world_size()


class Crew:
    """Ranks of which the test makes groups. The order of a list of them is that of their ranks in the group."""

    def __init__(self, ranks: Ranks, use: Callable[..., Any], *arguments: Any) -> None:
        """use: what each rank does with a group."""
        self.ranks = ranks
        self._use, self._uuid = (use, *arguments), 0
        self.begin()

    def begin(self, on: list[int] | None = None) -> None:
        self.ranks.run(begin, self.ranks.size, self.ranks.store.port, on=on)

    def uuid(self) -> int:
        self._uuid += 1
        return self._uuid

    def handles(self, members: list[int]) -> list[str]:
        handles = dict(zip(sorted(members), self.ranks.run(handle_of, on=sorted(members)), strict=True))
        return [handles[member] for member in members]

    def meet(self, members: list[int]) -> None:
        found = self.ranks.run(join, self.uuid(), self.handles(members), on=sorted(members))
        assert found == [(members.index(member), len(members)) for member in sorted(members)]

    def join(self, members: list[int]) -> list[Any]:
        """As `meet`; what the ranks then got from their use of the group."""
        self.meet(members)
        return self.ranks.run(*self._use, on=sorted(members))
