"""How long a process lives on after an error of its group: from the exception to the end, as who restarts it sees it.

    python benchmarks/ends.py --times 30 --busy 0,8 --json ends.json

Three ranks all-reduce, the last one is killed, and the others raise what they are told and end, as a program does that
catches nothing. A row has the seconds from the exception to the end of the process, of every rank but the killed one,
beside that many processes that only compute. The ranks are forked from one that has imported torch. They have torch's
own settings: its flight recorder is on, where it is by default.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

import fairring

RANKS = 3
PATIENCE_SECONDS = 120
ELEMENTS = 100_000
STEPS_BEFORE = 20
PARENT = os.getpid()  # a forked rank ends by an exception, which passes through all that its parent had begun


@dataclass(frozen=True)
class Row:
    backend: str
    busy: int
    ends: list[float]  # seconds, of each rank that was left
    codes: list[int]  # with which they ended


def run_rank(backend: str, rank: int, store: Path, said: int) -> None:
    """Says when it is in the midst of its calls, and when an error comes; raises that."""
    dist.init_process_group(
        backend, init_method=store.as_uri(), rank=rank, world_size=RANKS, timeout=timedelta(seconds=PATIENCE_SECONDS)
    )
    step = 0
    try:
        while True:
            dist.all_reduce(torch.ones(ELEMENTS))
            step += 1
            if step == STEPS_BEFORE:
                os.write(said, b"calls\n")
    except Exception:
        os.write(said, f"{time.monotonic()}\n".encode())
        raise


def fork_rank(backend: str, rank: int, store: Path, log: int) -> tuple[int, int]:
    """Its pid, and what it says. The child does not return: it ends as a program does."""
    says, said = os.pipe()
    pid = os.fork()
    if pid > 0:
        os.close(said)
        return pid, says
    gc.freeze()
    os.dup2(log, 1)
    os.dup2(log, 2)
    run_rank(backend, rank, store, said)
    raise AssertionError("the calls of a rank do not end")


def hear(says: int) -> str:
    if not select.select([says], [], [], PATIENCE_SECONDS)[0]:
        raise TimeoutError(f"a rank said nothing for {PATIENCE_SECONDS} s")
    return os.read(says, 100).decode()


def play(backend: str, number: int, folder: Path) -> tuple[list[float], list[int]]:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = folder / f"store-{backend}-{number}"
    ranks = [fork_rank(backend, rank, store, log) for rank in range(RANKS)]
    for _, says in ranks:
        if hear(says) != "calls\n":
            raise RuntimeError((folder / "log").read_text())
    os.kill(ranks[-1][0], signal.SIGKILL)
    ended: dict[int, tuple[float, int]] = {}
    while len(ended) < RANKS:
        pid, status = os.wait()
        ended[pid] = (time.monotonic(), os.waitstatus_to_exitcode(status))
    seconds = [ended[pid][0] - float(hear(says)) for pid, says in ranks[:-1]]
    for _, says in ranks:
        os.close(says)
    os.close(log)
    return seconds, [ended[pid][1] for pid, _ in ranks[:-1]]


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """So many processes that compute meanwhile."""
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for other in others if os.getpid() == PARENT else ():
            other.kill()
            other.wait()


def measure(backend: str, busy: int, times: int) -> Row:
    row = Row(backend, busy, [], [])
    folder = Path(tempfile.mkdtemp())
    try:
        for number in range(times):
            with beside(busy):  # they would be waited for with the ranks, if they ended
                seconds, codes = play(backend, number, folder)
            row.ends.extend(seconds)
            row.codes.extend(codes)
    finally:
        if os.getpid() == PARENT:
            shutil.rmtree(folder)
    return row


def show(rows: list[Row]) -> None:
    table = Table(title=f"seconds from the error to the end of the process, torch {torch.__version__}")
    for column in ("backend", "busy", "ends", "median", "worst", "exit codes"):
        table.add_column(column, justify="left" if column == "backend" else "right")
    for row in rows:
        codes = ", ".join(str(code) for code in sorted(set(row.codes)))
        median, worst = f"{statistics.median(row.ends):.2f}", f"{max(row.ends):.2f}"
        table.add_row(row.backend, str(row.busy), str(len(row.ends)), median, worst, codes)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=30, help="deaths in each row (default: 30)")
    parser.add_argument("--busy", default="0,8", help="processes that compute beside the ranks (default: 0,8)")
    parser.add_argument("--backends", default="fairring,gloo", help="default: fairring,gloo")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    options = parser.parse_args()
    fairring.register()
    torch.set_num_threads(1)
    rows = [
        measure(backend, int(busy), options.times)
        for busy in options.busy.split(",")
        for backend in options.backends.split(",")
    ]
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"torch": torch.__version__, "rows": [asdict(row) for row in rows]}))


main()
