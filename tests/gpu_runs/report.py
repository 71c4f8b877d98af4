"""Carries out runs on a GPU and leaves what came of them as JSON, of which docs/cuda.md has its rows.

    tests/gpu/run A         does it work at all: the probe, C++ tests, sums, blocks, streams, NCCL inside a machine
    tests/gpu/run B         does it hold: streams in full, failures, members, blocks, training, NCCL's calls, sparse
    tests/gpu/run C         how fast is it: kernels, calls and steps, on fairring alone; kernels under compute-sanitizer
    tests/gpu/run           A, B, C, then every test
    tests/gpu/run A --built FOLDER   with what CMake has built there, by this Python, without a build

All stages are carried out, whichever fails, each with its limit, and the end is 1 if one has not passed. Where there is
no GPU, or nothing to build with, A, B and C fail, with the reason; without a letter all is skipped then, unless
GPU_REQUIRED=1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from gpu_runs.runs import BUILD, RUNS, everything, stages
from gpu_runs.stage import Result, Stage, carry_out

FOLDER = Path("build/gpu")
_NOTHING_HERE = "exit code 3"  # of .ci/gpu-build
_FACTS = """
import json, torch
device = torch.cuda.get_device_properties(0)
print(json.dumps({
    "device": device.name, "devices": torch.cuda.device_count(), "capability": f"{device.major}.{device.minor}",
    "memory_bytes": device.total_memory, "torch": torch.__version__, "cuda": torch.version.cuda,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())),
}))
"""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("run", nargs="?", choices=RUNS)
    asked.add_argument("--built", type=Path, help="CMake's build folder; no build then, and this Python")
    options = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the stage's processes first
    name = options.run or "all"
    logs = FOLDER / f"logs-{name}"
    logs.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    path = FOLDER / f"results-{name}.json"
    if options.built is None:
        results.append(carry_out(BUILD, logs))
        if results[0].outcome != "passed":
            _write(path, name, {}, results)
            is_skipped = results[0].reasons == [_NOTHING_HERE] and not options.run
            return 0 if is_skipped and os.environ.get("GPU_REQUIRED") != "1" else 1
    built = options.built or FOLDER / "cmake"
    python = sys.executable if options.built else str(FOLDER / "venv/bin/python")
    facts = _facts(python)
    rows = logs / "rows.json"
    rows.unlink(missing_ok=True)
    for stage in _chosen(options.run, built, python, rows):
        results.append(carry_out(stage, logs))
        _write(path, name, {**facts, "rows": _read(rows)}, results)  # after each, for a run may be cut off
    print(_table(results), f"\nThese results are in {path}, the stages' output in {logs}.", sep="\n")
    return int(any(result.outcome != "passed" for result in results))


def _chosen(run: str | None, built: Path, python: str, rows: Path) -> Iterator[Stage]:
    for each in [run] if run else RUNS:
        yield from stages(each, built, python, rows)
    if not run:
        yield everything(python)


def _write(path: Path, run: str, facts: dict[str, Any], results: list[Result]) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    whole = {"run": run, "written": now, "commit": _said("git", "rev-parse", "HEAD"), **facts}
    whole["stages"] = [asdict(result) for result in results]
    path.write_text(json.dumps(whole, indent=1) + "\n")


def _facts(python: str) -> dict[str, Any]:
    """Of the device and what it is used by."""
    driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    text = _said(python, "-c", _FACTS)
    return {"driver": driver, **(json.loads(text) if text else {"device": "unknown: torch does not say"})}


def _said(*command: str) -> str:
    """Empty if the command has failed or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _read(rows: Path) -> Any:
    return json.loads(rows.read_text()) if rows.exists() else []


def _table(results: list[Result]) -> str:
    """As docs/cuda.md has it."""
    lines = ["| stage | result | s |", "|---|---|---|"]
    for one in results:
        counts = ", ".join(f"{number} {word}" for word, number in one.counts.items() if number)
        said = "; ".join(filter(None, [one.outcome if one.outcome != "passed" or not counts else "", counts]))
        lines.append(f"| {one.stage} | {said} | {one.seconds:.0f} of {one.limit_seconds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
