"""Two ranks whose first call fails on rank 1 at once, which then ends. Rank 0 makes its own only after that."""

import os
import socket

import torch
import torch.distributed as dist

import fairring  # noqa: F401


def await_end_of_other() -> None:
    store = dist.distributed_c10d._get_default_store()
    with socket.create_server(("", 0)) as server:
        store.set("door", str(server.getsockname()[1]))
        visitor, _ = server.accept()
        with visitor:
            visitor.recv(1)


def main() -> None:
    dist.init_process_group("fairring")
    if dist.get_rank() == 0:
        await_end_of_other()
    else:
        port = int(dist.distributed_c10d._get_default_store().get("door"))
        visit = socket.create_connection((os.environ["MASTER_ADDR"], port))  # its end is that of the process
    try:
        dist.all_reduce(torch.ones(10))
    except dist.DistBackendError as error:
        print(error, flush=True)
    if dist.get_rank() != 0:
        os._exit(visit.fileno() < 0)  # before anything can be told to the store


main()
