"""Real all-reduces of two local ranks through Fairring: on one machine, and as if each had a machine of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fairring.check import child

RANKS = 2
SHARED = "two ranks on one machine, over shared memory"
APART = "two ranks as if on two machines, over the network"


def run(environment: Mapping[str, str], seconds: float) -> list[dict[str, Any]]:
    """Under the variables in force. An empty "error": the sums were right. "late": a rank had not ended in time.

    seconds: how long a rank waits for the other one.
    """
    under_tls = " under TLS" if environment.get("FAIRRING_TLS", "").strip() == "on" else ""
    apart = [{"FAIRRING_MACHINE": f"check{rank}"} for rank in range(RANKS)]
    return [
        {"what": SHARED, **_trial(environment, [{}] * RANKS, seconds)},
        {"what": APART + under_tls, **_trial(environment, apart, seconds)},
    ]


def _trial(environment: Mapping[str, str], of_rank: list[dict[str, str]], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(RANKS) as pool:
        file = str(Path(folder) / "store")

        def play(rank: int) -> child.Ended:
            words = ["-m", "fairring.check.trial", str(rank), file, str(seconds)]
            # Longer than a rank waits, so that it reports itself what it waits for.
            limit = child.START_SECONDS + 2 * seconds
            return child.run(words, {"OMP_NUM_THREADS": "1", **environment, **of_rank[rank]}, limit)

        ended = list(pool.map(play, range(RANKS)))
    errors = [f"rank {rank} {one.error}" for rank, one in enumerate(ended) if one.error]
    if errors:
        return {"error": "; ".join(errors), "late": all(one.late for one in ended if one.error)}
    wrong = sum(one.found["wrong"] for one in ended)
    elements = sum(one.found["elements"] for one in ended)
    return {
        "error": f"{wrong} of {elements} elements were wrong" if wrong else "",
        "late": False,
        "elements": elements,
        "seconds": max(one.found["seconds"] for one in ended),
    }
