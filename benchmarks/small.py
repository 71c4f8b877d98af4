"""Small all-reduces below torch: the engine called from C++ beside bare sockets and TensorPipe (cpp/engine.cc).

    python benchmarks/small.py --engine build/.../fairring_engine_bench

The program runs in the lab, several times. A figure is the median of the runs' figures; beside the median of the calls
stands that of the quickest run, for other programs on the machine only make it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

COLUMNS = ("machines", "bytes", "contender", "calls", "p50_us", "best_us", "p99_us", "of_sockets", "wrong")
LINE = "{:>10} {:>6} {:<26} {:>6} {:>9} {:>9} {:>9} {:>10} {:>6}"
FLOOR = "sockets, "


def run(arguments: argparse.Namespace, layout: str) -> list[dict[str, Any]]:
    """The lines that the program prints on one layout."""
    machines, ranks = layout.split("x")
    lab = ["lab", "--machines", machines, "--ranks", ranks, "--rate", arguments.rate, "--only-rank", "0"]
    engine = [arguments.engine, "--calls", str(arguments.calls), "--sizes", arguments.sizes]
    command = [sys.executable, "-m", "fairring", *lab, "--", *engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"small: exit code {done.returncode} from {' '.join(command)}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def rows_of(layout: str, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size and contender, of all runs."""
    runs: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        runs[sample["bytes"], sample["contender"]].append(sample)
    medians = {which: statistics.median(one["p50_us"] for one in of) for which, of in runs.items()}
    rows = []
    for (size, contender), of in sorted(runs.items()):
        floors = [us for (other, name), us in medians.items() if other == size and name.startswith(FLOOR)]
        rows.append(
            {
                "machines": layout,
                "bytes": size,
                "contender": contender,
                "calls": sum(one["calls"] for one in of),
                "p50_us": round(medians[size, contender], 1),
                "best_us": round(min(one["p50_us"] for one in of), 1),
                "p99_us": round(statistics.median(one["p99_us"] for one in of), 1),
                "of_sockets": round(medians[size, contender] / min(floors), 2) if floors else "-",
                "wrong": sum(one["wrong"] for one in of),
            }
        )
    return rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Small all-reduces in the lab, the engine beside bare sockets.")
    add = parser.add_argument
    add("--engine", required=True, help="the program fairring_engine_bench")
    add("--layouts", default="2x1,2x2,4x1", help="machines x ranks of each (default %(default)s)")
    add("--sizes", default="4,64,512,4096", help="bytes of one call's tensor (default %(default)s)")
    add("--calls", type=int, default=1000, help="for each size, contender and run (default %(default)s)")
    add("--runs", type=int, default=3, help="of the program (default %(default)s)")
    add("--rate", default="1gbit", help="of each machine's link (default %(default)s)")
    add("--json", type=Path, help="file for the conditions and the rows")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    facts = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "rate": arguments.rate,
        "runs": arguments.runs,
        "load": os.getloadavg()[0],
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }
    print("# " + ", ".join(f"{name} {value}" for name, value in facts.items() if value), flush=True)
    print("#" + LINE.format(*COLUMNS)[1:], flush=True)
    rows = []
    for layout in arguments.layouts.split(","):
        of_layout = rows_of(layout, [line for _ in range(arguments.runs) for line in run(arguments, layout)])
        for row in of_layout:
            print(LINE.format(*row.values()), flush=True)
        rows += of_layout
    if arguments.json:
        arguments.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    return 1 if not rows or any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
