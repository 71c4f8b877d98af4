"""All-reduces while one machine's link changes its rate: python benchmarks/changing_link.py --machines 4 --changes 6,15

In the lab. Fairring with weighted and with equal shards and Gloo take turns, call by call, on the same tensors. Before
each of the calls that --changes names the link of machine 1 becomes slow, or whole again. Prints seconds of each call
by rank 0, which machines own what, and whether weighted and equal shards gave the same bits. With --mpi, MPI makes
some calls of the same size before the first one and after each change.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

CONTESTANTS = ("weighted", "equal", "gloo")
CHANGED = 1  # machine
TIMEOUT_SECONDS = 1800


def main() -> int:
    arguments = parsed()
    if arguments.rank_of:
        return rank(arguments)
    from fairring.lab import Lab

    changes = [int(call) for call in arguments.changes.split(",") if call]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *sys.argv[1:], "--rank-of", folder]
        machines = [arguments.ranks] * arguments.machines
        with Lab(command, machines, arguments.rate, sites=arguments.sites, site_delay=arguments.site_delay) as lab:
            for number, call in enumerate(changes):
                lab.wait_for_output(0, f"before call {call}\n", TIMEOUT_SECONDS)
                lab.set_rate(CHANGED, arguments.slow if number % 2 == 0 else arguments.rate)
                (Path(folder) / str(call)).touch()
            result = lab.wait(TIMEOUT_SECONDS)
    print(result.stdout[0])
    if any(result.exit_codes):
        print("".join(result.stderr), file=sys.stderr)
    return max(result.exit_codes)


def rank(arguments: argparse.Namespace) -> int:
    import torch
    import torch.distributed as dist

    from fairring.traffic import shares

    groups = {}
    dist.init_process_group("gloo")
    for name in CONTESTANTS:
        os.environ["FAIRRING_WEIGHTED_SHARDS"] = "on" if name == "weighted" else "off"
        groups[name] = dist.new_group(backend="gloo" if name == "gloo" else "fairring")
    changes = {int(call) for call in arguments.changes.split(",") if call}
    seed = torch.Generator().manual_seed(dist.get_rank())
    values = torch.rand(arguments.mebibytes * (1 << 18), generator=seed)
    is_first = dist.get_rank() == 0
    if is_first:
        print("call", *CONTESTANTS, "shares", sep="\t", flush=True)
    mpi_race = Mpi(arguments).race if arguments.mpi else lambda: None
    mpi_race()
    for call in range(arguments.calls):
        if call in changes:
            wait_for_change(Path(arguments.rank_of) / str(call))
            mpi_race()
        row, bits = [], []
        for name in CONTESTANTS:
            tensor = values.clone()
            dist.barrier()
            began = time.monotonic()
            dist.all_reduce(tensor, group=groups[name])
            dist.barrier()
            row.append(time.monotonic() - began)
            bits.append(tensor)
        same = torch.equal(bits[0].view(torch.int32), bits[1].view(torch.int32))
        owned = [round(share, 2) for share in shares(groups["weighted"])]
        if is_first:
            times = [f"{seconds:.3f}" for seconds in row]
            print(call, *times, owned, "" if same else "BITS DIFFER", sep="\t", flush=True)
        if not same:
            return 1
    dist.destroy_process_group()
    return 0


def wait_for_change(done: Path) -> None:
    import torch.distributed as dist

    dist.barrier()
    if dist.get_rank() == 0:
        print(f"before call {done.name}", flush=True)
    while not done.exists():
        time.sleep(0.01)


class Mpi:
    """MPI's turns, which all ranks take together."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch
        import torch.distributed as dist

        from fairring.bench import mpi
        from fairring.bench.calls import Course
        from fairring.bench.job import Job
        from fairring.bench.placement import Placement

        place = Placement.from_environment()
        places = [place] * place.world
        dist.all_gather_object(places, place)
        self._job = Job(place, places)
        bytes_ = arguments.mebibytes << 20
        self._course = Course("all-reduce", bytes_, torch.float32, "sum", 1, rounds=8, warm_up=1, check=True)
        found = mpi.prepare(arguments.mpi, self._course, self._job)
        if isinstance(found, str):
            raise SystemExit(found)
        self._mpi = found

    def race(self) -> None:
        from fairring.bench import mpi

        score = mpi.race(self._mpi, self._course, self._job)
        if isinstance(score, str):
            raise SystemExit(score)
        if self._job.is_first:
            times = [f"{seconds:.3f}" for seconds in score.seconds]
            print("MPI", *times, "" if score.wrong == 0 else f"{score.wrong} WRONG", sep="\t", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=1, help="of each machine")
    parser.add_argument("--mebibytes", type=int, default=25)
    parser.add_argument("--calls", type=int, default=24)
    parser.add_argument("--changes", default="6,15", help="calls before which the link changes, slow first")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--slow", default="500mbit")
    parser.add_argument("--sites", default="1", help="how many there are, as fairring lab has it")
    parser.add_argument("--site-delay", default="0ms", help="from one site to another, one way")
    parser.add_argument("--mpi", default="", help="the path of an mpirun")
    parser.add_argument("--rank-of", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
