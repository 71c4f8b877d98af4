"""The traffic of all-reduces over the slow link between two sites: by Fairring's counters, and by the interfaces'.

    fairring lab --machines 4 --ranks 2 --interfaces 2 --sites 2 --site-rate 100mbit --only-rank 0 -- \
        python benchmarks/uplink.py

Every machine's second interface carries only the traffic to the other site, so its counters show the traffic of the
link. For comparison, the same counters are read for plain streams that carry as many bytes of payload between the same
ranks. Rank 0 prints one line of JSON for each way: the gradients' own dtype, and bf16 between sites.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import interfaces
import torch
import torch.distributed as dist

from fairring import _core, register
from fairring.config import size
from fairring.facts import address_of

NEAR, FAR = "eth0", "eth1"
SITE_LEVEL, CHUNK, PATIENCE_SECONDS = 2, 1 << 18, 120.0


def arrived() -> int:
    """Bytes that came over this machine's interface towards the other site."""
    if os.environ["LOCAL_RANK"] != "0":
        return 0
    received, _ = interfaces.carried()[FAR]
    return received


def sent(group: Any) -> int:
    counted = _core.traffic(group._get_backend(torch.device("cpu"))) or {}
    return counted.get(SITE_LEVEL, {"bytes": 0})["bytes"]


def of_site(value: int) -> int:
    """The sum over the ranks of rank 0's site, on rank 0."""
    sites: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(sites, (os.environ["FAIRRING_SITE"], value))
    return sum(other for site, other in sites if site == sites[0][0])


def counting(work: Callable[[], None]) -> int:
    """The bytes that come over the link to rank 0's site during the work."""
    dist.barrier()
    before = arrived()
    work()
    dist.barrier()
    return of_site(arrived() - before)


def partner() -> socket.socket:
    """A stream to the rank of the other site with the same place there."""
    with socket.create_server((address_of(FAR), 0)) as listener:
        doors: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(doors, (os.environ["FAIRRING_SITE"], listener.getsockname()))
        site = doors[dist.get_rank()][0]
        here = [rank for rank, (name, _) in enumerate(doors) if name == site]
        there = [rank for rank, (name, _) in enumerate(doors) if name != site]
        if len(here) != len(there):
            raise ValueError(f"sites of {len(here)} and {len(there)} ranks: streams need as many in both")
        if here[0] == 0:
            listener.settimeout(PATIENCE_SECONDS)
            return listener.accept()[0]
        address = doors[there[here.index(dist.get_rank())]][1]
        return socket.create_connection(address, PATIENCE_SECONDS, (address_of(FAR), 0))


def exchange(stream: socket.socket, payload: int) -> None:
    """So many bytes each way."""

    def send() -> None:
        chunk, left = bytes(CHUNK), payload
        while left:
            left -= stream.send(chunk[: min(left, CHUNK)])

    sender = threading.Thread(target=send)
    sender.start()
    buffer, left = bytearray(CHUNK), payload
    while left:
        left -= stream.recv_into(buffer, min(left, CHUNK))
    sender.join()


def main() -> int:
    parser = argparse.ArgumentParser(description="Bytes over the slow link; start it with `fairring lab --sites 2`.")
    parser.add_argument("--size", default="25MiB", help="of one call's tensor (default %(default)s)")
    parser.add_argument("--calls", type=int, default=8, help="default %(default)s")
    arguments = parser.parse_args()
    total = size("--size", arguments.size)
    os.environ |= {"TP_SOCKET_IFNAME": NEAR, "FAIRRING_SITE_IFNAME": FAR, "GLOO_SOCKET_IFNAME": NEAR}
    register()
    dist.init_process_group("gloo")
    group = cast("dist.ProcessGroup", dist.new_group(backend="fairring"))
    backend: Any = cast("Any", group)._get_backend(torch.device("cpu"))
    tensor, residual = torch.ones(total // 4), torch.zeros(total // 4)

    def plain() -> None:
        dist.all_reduce(tensor.fill_(1), group=group)

    def rounded() -> None:
        how = dist.ReduceOp(dist.ReduceOp.SUM)
        _core.all_reduce_as_bf16_between_sites(backend, tensor.fill_(1), residual, how).wait()

    stream = partner()
    for name, call, bound in (("fp32", plain, total), ("bf16 between sites", rounded, total / 2)):
        call()
        if not (tensor == dist.get_world_size()).all():
            raise ValueError(f"{name}: a wrong sum")
        before = sent(group)
        ours = counting(lambda call=call: [call() for _ in range(arguments.calls)])  # type: ignore[misc]
        payload = sent(group) - before
        theirs = counting(lambda payload=payload: exchange(stream, payload))  # type: ignore[misc]
        all_payload = of_site(payload)
        if dist.get_rank() == 0:
            row = {
                "way": name,
                "calls": arguments.calls,
                "payload_bytes": all_payload,
                "of_bound": round(all_payload / arguments.calls / bound, 4),
                "interface_bytes": ours,
                "streams_interface_bytes": theirs,
                "of_streams": round(ours / theirs, 4),
            }
            print(json.dumps(row), flush=True)
    stream.close()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
