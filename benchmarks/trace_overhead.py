"""The cost of FAIRRING_TRACE: time of calls and steps, memory of a rank, and the size of a job's traces.

    python benchmarks/trace_overhead.py --json overhead.json

In the lab. In each job two groups of the same ranks, one of them with FAIRRING_TRACE, take turns of some calls or steps
each, in changing order. Without FAIRRING_TRACE the last calls are recorded as well: that is not switched off.
A figure is the median over the turns; `more` is the median difference of the two turns of a pair, between the quartiles
of all pairs. A call's time is its slowest rank's. `wrong` counts elements, or turns after which ranks had other
parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

HERE = Path(__file__).parent
OFF, ON = "fairring", "fairring[trace={}]"
WARM_UP = 25
PERIOD = 13  # of the values: small integers, whose sums are exact
MIB = 1 << 20
COLUMNS = ("what", "layout", "pairs", "off_us", "on_us", "more_us", "quartiles_us", "more_percent", "wrong")
LINE = "{:>10} {:>6} {:>6} {:>11} {:>11} {:>9} {:>18} {:>12} {:>6}"
SMALL_CALLS = 140_000  # in which the memory of traces fills up
PARAMETERS = 1 << 18  # of each of the eight layers of the job whose traces are kept

# What is measured, the layouts, the calls or steps of a turn, and the pairs of turns.
CASES = (
    ("4", ("1x2", "2x2"), 200, 300),
    (str(25 * MIB), ("1x2", "2x2"), 2, 15),
    ("ddp", ("1x2", "2x2"), 3, 15),
)


# --- ranks, in the lab


def all_reduces(elements: int, check: bool = True) -> Callable[[Any, int], tuple[list[float], int]]:
    import torch
    import torch.distributed as dist

    ranks = [torch.arange(elements) % PERIOD + rank for rank in range(dist.get_world_size())]
    values, expected = ranks[dist.get_rank()].float(), torch.stack(ranks).sum(0).float()
    tensor = torch.empty(elements)

    def turn(group: Any, calls: int) -> tuple[list[float], int]:
        seconds, wrong = [], 0
        for _ in range(calls):
            tensor.copy_(values)
            begin = time.perf_counter()
            dist.all_reduce(tensor, group=group)
            seconds.append(time.perf_counter() - begin)
            wrong += 0 if not check or torch.equal(tensor, expected) else int((tensor != expected).sum())
        return seconds, wrong

    return turn


def ddp_steps(groups: list[Any]) -> Callable[[Any, int], tuple[list[float], int]]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from fairring.bench.training import BYTE_VALUES, CONTEXT, ByteModel, Shape, Training, different_ranks

    shape = Shape(width=256, layers=4, batch=2, bucket_mib=4.0)
    trainings = {}
    for group in groups:
        torch.manual_seed(1)
        replica = DistributedDataParallel(ByteModel(shape), process_group=group, bucket_cap_mb=shape.bucket_mib)
        trainings[group] = Training(replica, torch.optim.SGD(replica.parameters(), lr=1e-3))
    generator = torch.Generator().manual_seed(dist.get_rank())
    batch = torch.randint(BYTE_VALUES, (shape.batch, CONTEXT + 1), generator=generator)

    def turn(group: Any, steps: int) -> tuple[list[float], int]:
        seconds = [trainings[group].step(batch[:, :-1], batch[:, 1:]) for _ in range(steps)]
        return seconds, int(different_ranks(trainings[group].replica))

    return turn


def times(what: str, calls: int, pairs: int) -> dict[str, Any]:
    """Seconds of a call in each turn, of the slowest rank, by group; how many values were wrong on any rank."""
    import torch
    import torch.distributed as dist

    from fairring.bench.contestants import make_group, parse_contestants

    with tempfile.TemporaryDirectory() as folder:
        contestants = parse_contestants(f"{OFF},{ON.format(folder)}")
        groups = [make_group(contestant) for contestant in contestants]
        turn = ddp_steps(groups) if what == "ddp" else all_reduces(int(what) // 4)
        for group in groups:
            turn(group, min(WARM_UP, 2 * calls))
        taken: list[list[float]] = [[], []]
        wrong = 0
        for pair in range(pairs):
            for which in (0, 1) if pair % 2 == 0 else (1, 0):
                dist.barrier()
                seconds, count = turn(groups[which], calls)
                slowest = torch.tensor(seconds, dtype=torch.float64)
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                taken[which].append(statistics.median(slowest.tolist()))
                wrong += count
        total = torch.tensor(wrong)
        dist.all_reduce(total)
        dist.destroy_process_group()
    return {"off": taken[0], "on": taken[1], "wrong": int(total)}


def memory(setting: str) -> dict[str, Any]:
    """Bytes by which a rank's resident memory grows while its records fill up, and what the rank has in the end."""
    import torch
    import torch.distributed as dist

    from fairring.bench.contestants import make_group, parse_contestants

    with tempfile.TemporaryDirectory() as folder:
        group = make_group(parse_contestants(ON.format(folder) if setting == "on" else OFF)[0])
        turn = all_reduces(1, check=False)
        turn(group, WARM_UP)
        before = resident_bytes()
        turn(group, SMALL_CALLS)
        grown = torch.tensor([resident_bytes() - before, resident_bytes()])
        dist.all_reduce(grown, op=dist.ReduceOp.MAX)
        dist.destroy_process_group()
    return {"grown_bytes": int(grown[0]), "resident_bytes": int(grown[1])}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def job(folder: str, steps: int) -> dict[str, Any]:
    """A job whose traces stay in the folder: steps of eight layers under DDP, of a bucket each."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from fairring.bench.contestants import make_group, parse_contestants

    group = make_group(parse_contestants(ON.format(folder))[0])
    torch.manual_seed(1)
    width = round(PARAMETERS**0.5)
    layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(8)))
    replica = DistributedDataParallel(
        layers, process_group=group, bucket_cap_mb=PARAMETERS * 4 / MIB, gradient_as_bucket_view=True
    )
    sample = torch.ones(1, width) * (1 + dist.get_rank())
    begin = time.perf_counter()
    for _ in range(steps):
        replica(sample).sum().backward()
    seconds = time.perf_counter() - begin
    dist.barrier()
    begin = time.perf_counter()
    dist.destroy_process_group(cast("dist.ProcessGroup", group))
    return {"seconds": seconds, "end_seconds": time.perf_counter() - begin}


def rank(arguments: argparse.Namespace) -> int:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    words = json.loads(arguments.rank_of)
    programs: dict[str, Callable[..., dict[str, Any]]] = {"times": times, "memory": memory, "job": job}
    result = programs[words.pop(0)](*words)
    if os.environ["RANK"] == "0":
        print(json.dumps(result), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


# --- the table


def in_lab(layout: str, rate: str, *words: Any) -> dict[str, Any]:
    machines, _, ranks = layout.partition("x")
    lab = ["lab", "--machines", machines, "--ranks", ranks, "--rate", rate, "--only-rank", "0"]
    program = [sys.executable, __file__, "--rank-of", json.dumps(words)]
    command = [sys.executable, "-m", "fairring", *lab, "--", *program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))


def row_of(what: str, layout: str, taken: dict[str, Any]) -> dict[str, Any]:
    more = [on - off for on, off in zip(taken["on"], taken["off"], strict=True)]
    low, middle, high = statistics.quantiles(more, n=4)
    off = statistics.median(taken["off"])
    return {
        "what": {"ddp": "DDP step", "4": "4 B"}.get(what, f"{int(what) // MIB} MiB" if what.isdigit() else what),
        "layout": layout,
        "pairs": len(more),
        "off_us": round(off * 1e6, 2),
        "on_us": round(statistics.median(taken["on"]) * 1e6, 2),
        "more_us": round(middle * 1e6, 2),
        "quartiles_us": f"{low * 1e6:.2f} to {high * 1e6:.2f}",
        "more_percent": round(100 * middle / off, 2),
        "wrong": taken["wrong"],
    }


def sizes(layout: str, rate: str, steps: int) -> dict[str, Any]:
    """Bytes of the traces of a job, and of the merged one."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        result = in_lab(layout, rate, "job", folder, steps)
        files = [path.stat().st_size for path in Path(folder).glob("*-rank*.json")]
        merged = Path(other) / "job.json"
        merge = [sys.executable, "-m", "fairring", "trace", "merge", folder, "-o", str(merged)]
        begin = time.perf_counter()
        subprocess.run(merge, check=True, stdout=subprocess.DEVNULL)
        return {
            "layout": layout,
            "steps": steps,
            "files": len(files),
            "file_bytes": max(files),
            "all_bytes": sum(files),
            "merged_bytes": merged.stat().st_size,
            "merge_seconds": round(time.perf_counter() - begin, 1),
            "job_seconds": round(result["seconds"], 1),
            "end_seconds": round(result["end_seconds"], 2),
        }


def conditions(rate: str) -> dict[str, Any]:
    commit = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=7"]
    return {
        "commit": subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip() or "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "rate": rate,
        "load": os.getloadavg()[0],
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="times,memory,size", help="of the measurement (default %(default)s)")
    parser.add_argument("--rounds", type=float, default=1.0, help="times the usual number of turns")
    parser.add_argument("--only", default="", help="what is timed: 4, 26214400 or ddp (default: all)")
    parser.add_argument(
        "--steps", type=int, default=1000, help="of the job whose traces are kept (default %(default)s)"
    )
    parser.add_argument("--job", default="4x2", help="its machines x ranks of each (default %(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of each machine's link (default %(default)s)")
    parser.add_argument("--json", type=Path, help="file for the conditions, the rows and every turn")
    parser.add_argument("--rank-of", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    if arguments.rank_of:
        return rank(arguments)
    facts = conditions(arguments.rate)
    print("# " + ", ".join(f"{name} {value}" for name, value in facts.items() if value), flush=True)
    parts = arguments.parts.split(",")
    rows, turns = [], []
    if "times" in parts:
        print("#" + LINE.format(*COLUMNS)[1:], flush=True)
        for what, layouts, calls, pairs in CASES:
            for layout in layouts if arguments.only in ("", what) else ():
                taken = in_lab(layout, arguments.rate, "times", what, calls, max(2, round(pairs * arguments.rounds)))
                rows.append(row_of(what, layout, taken))
                turns.append({**rows[-1], **taken})
                print(LINE.format(*rows[-1].values()), flush=True)
    kept = {one: in_lab("1x2", arguments.rate, "memory", one) for one in ("off", "on")} if "memory" in parts else {}
    for one, figures in kept.items():
        print(
            f"memory of a rank, {one}: " + ", ".join(f"{name} {value}" for name, value in figures.items()), flush=True
        )
    size = sizes(arguments.job, arguments.rate, arguments.steps) if "size" in parts else {}
    if size:
        print("traces: " + ", ".join(f"{name} {value}" for name, value in size.items()), flush=True)
    if arguments.json:
        report = {**facts, "rows": rows, "memory": kept, "traces": size, "turns": turns}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
