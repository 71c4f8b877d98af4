"""The all-reduces of `fairring bench all-reduce --mpi` as an MPI program: the same calls as in calls.py, by mpi4py.

    mpirun ... python mpi_program.py '{"size_bytes": 4096, "dtype": "float32", "op": "sum", ...}'

A program of its own, with no torch in it, so that it starts quickly. MPI's rank 0 prints a line of JSON: seconds of the
slowest rank and cpu_seconds of all ranks, one per round, and wrong, the elements that were not what they must be.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from typing import Any

from mpi4py import MPI

TYPES = {
    "float32": ("f", MPI.FLOAT),
    "float64": ("d", MPI.DOUBLE),
    "int32": ("i", MPI.INT32_T),
    "int64": ("q", MPI.INT64_T),
}
OPS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}
REDUCED: dict[str, Any] = {"sum": sum, "min": min, "max": max}
PERIOD = 13
LINE = "fairring-bench-mpi "


def values(code: str, rank: int, call: int) -> Any:
    return array(code, [(place + 3 * rank + call) % PERIOD for place in range(PERIOD)])


def repeated(period: Any, elements: int) -> Any:
    return (period * (elements // PERIOD + 1))[:elements]


def wrong(result: Any, code: str, op: str, call: int, world: int) -> int:
    of_all = [values(code, rank, call) for rank in range(world)]
    expected = repeated(array(code, [REDUCED[op](column) for column in zip(*of_all, strict=True)]), len(result))
    if result == expected:
        return 0
    return sum(one != other for one, other in zip(result, expected, strict=True))


def go(comm: Any, goes: list[list[Any]], datatype: Any, op: Any) -> tuple[float, float]:
    """Seconds and processor time of them all, as race.py takes them."""
    comm.Barrier()
    comm.Allreduce(MPI.IN_PLACE, [array("f", [0.0] * 8), MPI.FLOAT])
    cpu_begin, begin = time.process_time(), time.perf_counter()
    for tensors in goes:
        if len(tensors) == 1:
            comm.Allreduce(MPI.IN_PLACE, [tensors[0], datatype], op)
        else:
            MPI.Request.Waitall([comm.Iallreduce(MPI.IN_PLACE, [tensor, datatype], op) for tensor in tensors])
    seconds = time.perf_counter() - begin
    comm.Barrier()
    return seconds, time.process_time() - cpu_begin


def main() -> None:
    course = json.loads(sys.argv[1])
    comm: Any = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    code, datatype = TYPES[course["dtype"]]
    elements = course["size_bytes"] // array(code).itemsize
    times, cpu_times, wrongs = array("d"), array("d"), 0
    for turn in range(course["warm_up"] + course["rounds"]):
        at_once, in_a_row = course["in_flight"], course["in_a_row"]
        calls = range(turn, turn + at_once * in_a_row)
        tensors = [repeated(values(code, rank, call), elements) for call in calls]
        goes = [tensors[first : first + at_once] for first in range(0, len(tensors), at_once)]
        seconds, cpu_seconds = go(comm, goes, datatype, OPS[course["op"]])
        if course["check"]:
            wrongs += sum(wrong(one, code, course["op"], call, world) for one, call in zip(tensors, calls, strict=True))
        if turn >= course["warm_up"]:
            times.append(seconds / in_a_row)
            cpu_times.append(cpu_seconds / in_a_row)
    comm.Allreduce(MPI.IN_PLACE, [times, MPI.DOUBLE], MPI.MAX)
    comm.Allreduce(MPI.IN_PLACE, [cpu_times, MPI.DOUBLE], MPI.SUM)
    wrongs = comm.allreduce(wrongs)
    if rank == 0:
        found = {"seconds": list(times), "cpu_seconds": list(cpu_times), "wrong": wrongs if course["check"] else None}
        print(LINE + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
