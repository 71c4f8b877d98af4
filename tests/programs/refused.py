"""A rank: calls with a tensor that one rank can't take part with.

One of a hundred all-reduces, alone and coalesced; a reduce; reduce-scatters in all their forms.
"""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

import fairring  # noqa: F401  registers the backend on torch before 2.15

CALLS, BAD = 100, 37
REASON = "single memory location"


def tensors_of(rank: int, refusing: int) -> list[torch.Tensor]:
    made = [torch.full((1 + 13 * place,), float(rank + place)) for place in range(CALLS)]
    if rank == refusing:
        made[BAD] = torch.ones(1).expand(made[BAD].numel())  # one element, many times
    return made


def failures(works: list[dist.Work]) -> dict[int, str]:
    found = {}
    for place, work in enumerate(works):
        try:
            work.wait()
        except dist.DistBackendError as error:
            found[place] = str(error)
    return found


def told(text: str, rank: int, refusing: int, call: str = "all_reduce") -> bool:
    return (REASON if rank == refusing else f"rank {refusing} refused its part of {call}") in text


def right(tensors: list[torch.Tensor], world: int) -> bool:
    base = world * (world - 1) // 2
    return all(bool((tensor == base + world * place).all()) for place, tensor in enumerate(tensors) if place != BAD)


def others(rank: int, world: int, refusing: int) -> dict[str, dist.Work]:
    def result() -> torch.Tensor:
        return torch.ones(1).expand(3) if rank == refusing else torch.zeros(3)

    parts = [torch.ones(3) for _ in range(world)]
    with _coalescing_manager(async_ops=True) as manager:
        dist.reduce_scatter_tensor(result(), torch.cat(parts))
    works = {
        "reduce": dist.reduce(result(), dst=refusing, async_op=True),
        "reduce_scatter": dist.reduce_scatter(result(), parts, async_op=True),
        "reduce_scatter_tensor": dist.reduce_scatter_tensor(result(), torch.cat(parts), async_op=True),
        "reduce_scatter_tensor_coalesced": manager.works[0],
    }
    return {call: work for call, work in works.items() if work is not None}


def main() -> None:
    dist.init_process_group("fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    refusing = world - 1
    tensors = tensors_of(rank, refusing)
    found = failures([dist.all_reduce(tensor, async_op=True) for tensor in tensors])
    assert list(found) == [BAD], found
    assert told(found[BAD], rank, refusing), found
    assert right(tensors, world)

    tensors = tensors_of(rank, refusing)
    with _coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    found = failures(manager.works)
    assert list(found) == [0], found
    assert told(found[0], rank, refusing), found
    assert right(tensors, world)

    calls = others(rank, world, refusing)
    found = failures(list(calls.values()))
    # The reduce's result is the refusing rank's alone.
    assert list(found) == ([0, 1, 2, 3] if rank == refusing else [1, 2, 3]), found
    assert all(told(found[place], rank, refusing, call) for place, call in enumerate(calls) if place in found), found

    after = torch.ones(5)
    dist.all_reduce(after)
    assert after.tolist() == [world] * 5
    print("99 of 100")
    dist.destroy_process_group()


main()
