"""A rank: exact all-reduces in a row, until something is written to the pipe of the first argument; then prints what
was wrong and what was sent.

With a second argument "break" it shuts its own lanes, one after the other, while the calls go on.
"""

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

import fairring  # noqa: F401

ELEMENTS = 2_000_000
NOTSENT_LOWAT = 25  # linux/tcp.h; only lanes have it set
OF_A_LANE = 256 << 10


def lanes() -> list[socket.socket]:
    """Copies of the lanes' sockets."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it has gone meanwhile, or is no socket
            if not str(entry.readlink()).startswith("socket:"):
                continue
            copy = socket.socket(fileno=os.dup(int(entry.name)))
            if is_lane(copy):
                found.append(copy)
            else:
                copy.close()
    return found


def is_lane(connection: socket.socket) -> bool:
    if connection.family != socket.AF_INET or connection.type != socket.SOCK_STREAM:
        return False
    return connection.getsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT) == OF_A_LANE


def break_lanes(over: threading.Event) -> None:
    """Every now and then one of them, which the program has to survive whenever it comes."""
    number = 0
    while not over.wait(0.05):
        number += 1
        there = lanes()
        if there:
            with suppress(OSError):
                there[number % len(there)].shutdown(socket.SHUT_RDWR)
        for lane in there:
            lane.close()
    print(f"breaks {number}", flush=True)


def await_word(pipe: Path, stop: threading.Event) -> None:
    pipe.read_text()
    stop.set()


def sent() -> dict[str, int]:
    """Bytes that have left through each interface of this machine."""
    rows = [line.replace(":", " ").split() for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return {row[0]: int(row[9]) for row in rows if row[0] != "lo"}


def main() -> None:
    stop, over = threading.Event(), threading.Event()
    dist.init_process_group("fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        threading.Thread(target=await_word, args=(Path(sys.argv[1]), stop), daemon=True).start()
    breaker = threading.Thread(target=break_lanes, args=(over,))
    before: dict[str, int] = {}
    wrong = 0
    rounds = 0
    while True:
        tensor = torch.arange(ELEMENTS, dtype=torch.int32) * (rank + rounds + 1)
        tensor[0] = int(rank == 0 and stop.is_set())
        dist.all_reduce(tensor)
        factor = sum(other + rounds + 1 for other in range(world))
        wrong += int((tensor[1:] != torch.arange(1, ELEMENTS, dtype=torch.int32) * factor).sum())
        rounds += 1
        if rounds == 1:
            before = sent()
            if sys.argv[2:] == ["break"]:
                breaker.start()
            print("ready", flush=True)
        if rounds == 10:
            print("ten", flush=True)
        if tensor[0] > 0:
            break
    over.set()
    if breaker.is_alive():
        breaker.join()
    carried = {name: bytes_ - before[name] for name, bytes_ in sent().items()}
    dist.destroy_process_group()
    print(json.dumps({"wrong": wrong, "rounds": rounds, "sent": carried}), flush=True)


main()
