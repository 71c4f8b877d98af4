"""Draws docs/figures/gain.svg, the gain of an all-reduce over gloo, from a table of docs/figures.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent
ROW = re.compile(r"^\| (\d+) x (\d+) \| ([\d.]+) MB/s \| ([\d.]+) MB/s \| [\d.]+ \| ([\d.]+x) \|$", re.MULTILINE)
LEFT, PIXELS_PER_MBPS, TOP, ROW_HEIGHT, BAR_HEIGHT = 158, 1.55, 88, 54, 20
GLOO, FAIRRING = "#9aa1ab", "#2e86ab"
LETTERS = 'font-family="sans-serif" font-size="13" fill="#222"'
HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="560" viewBox="0 0 440 340" {LETTERS}>
  <title>Bandwidth of an all-reduce of 25 MiB on gloo and on fairring</title>
  <rect width="440" height="340" fill="#fff"/>
  <text x="8" y="22" font-weight="bold">All-reduce of 25 MiB over links of 1 Gbit/s,</text>
  <text x="8" y="40" font-weight="bold">in MB/s: longer is better</text>
  <rect x="{LEFT}" y="57" width="12" height="12" fill="{GLOO}"/><text x="{LEFT + 18}" y="68">gloo</text>
  <rect x="{LEFT + 70}" y="57" width="12" height="12" fill="{FAIRRING}"/><text x="{LEFT + 88}" y="68">fairring</text>
"""
CONDITIONS = "Emulated machines on 2 cores, fp32, in turns,", "medians of 9 to 25 rounds of the slowest rank."
FOOT = f"""\
  <text x="8" y="314" fill="#555">{CONDITIONS[0]}</text>
  <text x="8" y="331" fill="#555">{CONDITIONS[1]}</text>
</svg>
"""


def draw() -> str:
    """The picture; a layout whose figures are milliseconds (one machine) is left out."""
    section = (DOCS / "figures.md").read_text().partition("## All-reduces of 25 MiB\n")[2].partition("\n## ")[0]
    rows = [_row(*match.groups(), top=TOP + at * ROW_HEIGHT) for at, match in enumerate(ROW.finditer(section))]
    return HEAD + "".join(rows) + FOOT


def _row(machines: str, ranks: str, gloo: str, fairring: str, times: str, *, top: int) -> str:
    layout = f"{machines} machines of {ranks} rank{'s' if int(ranks) > 1 else ''}"
    label = f'  <text x="{LEFT - 8}" y="{top + BAR_HEIGHT + 5}" text-anchor="end">{layout}</text>\n'
    return label + _bar(gloo, top, GLOO, gloo) + _bar(fairring, top + BAR_HEIGHT, FAIRRING, f"{fairring} ({times})")


def _bar(value: str, top: int, colour: str, text: str) -> str:
    width = float(value) * PIXELS_PER_MBPS
    return (
        f'  <rect x="{LEFT}" y="{top}" width="{width:.0f}" height="{BAR_HEIGHT - 2}" fill="{colour}"/>'
        f'<text x="{LEFT + width + 6:.0f}" y="{top + BAR_HEIGHT - 6}">{text}</text>\n'
    )


if __name__ == "__main__":
    (DOCS / "figures" / "gain.svg").write_text(draw())
