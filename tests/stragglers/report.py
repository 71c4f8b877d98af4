"""Plants each trouble in the lab and prints a table of how often the traces named who it was, and why, as Markdown.
Times are medians.

Usage: python tests/stragglers/report.py [rounds]. What was named wrongly is printed in full, on stderr.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from stragglers.cases import clusters
from stragglers.play import play


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 1
    runs: Counter[str] = Counter()
    right: Counter[str] = Counter()
    seconds: dict[str, list[float]] = defaultdict(list)
    for cluster in clusters(rounds):
        for verdict in play(cluster):
            title = verdict.planted.title
            runs[title] += 1
            right[title] += verdict.right
            seconds[title].append(verdict.step_seconds)
            if not verdict.right:
                print(f"== {title}, {verdict.planted.who}\n{verdict.told}\n", file=sys.stderr)
    print("| planted | runs | named rightly | ms a step |\n|---|---|---|---|")
    for title, count in runs.items():
        print(f"| {title} | {count} | {right[title]} | {median(seconds[title]) * 1e3:.3g} |")


main()
