"""Messages around the ring of ranks, small and large, in both directions at once, and a monitored barrier."""

import torch
import torch.distributed as dist

dist.init_process_group("fairring")
rank, size = dist.get_rank(), dist.get_world_size()
for elements in (5, 1 << 20):
    rooms = {other: torch.zeros(elements) for other in ((rank - 1) % size, (rank + 1) % size)}
    works = [dist.irecv(room, other) for other, room in rooms.items()]
    works += [dist.isend(torch.full((elements,), float(rank)), other) for other in rooms]
    for work in works:
        work.wait()  # type: ignore[union-attr]
    assert all((room == other).all() for other, room in rooms.items())
dist.monitored_barrier()
dist.destroy_process_group()
print("exact")
