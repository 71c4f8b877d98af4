"""Tables of text that lose no figure: where a table is wider than the terminal, its further columns stand below."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

GAP = "  "  # between columns


class Table:
    """Rows of cells below the columns' heads. Heads and cells may have several lines.

    keys: the first columns, which name a row and stand in front of every part. left: columns that are not aligned to
    the right.
    """

    def __init__(self, heads: Sequence[str], keys: int = 1, left: Sequence[str] = ()) -> None:
        self._heads, self._keys = list(heads), keys
        self._left = [head in left for head in heads]
        self._rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        """Raises ValueError if there is not one for each column."""
        if len(cells) != len(self._heads):
            raise ValueError(f"{len(cells)} cells in a table of {len(self._heads)} columns")
        self._rows.append(list(cells))

    def add_gap(self) -> None:
        """Leaves a line free, between groups of rows."""
        self._rows.append([])

    def __len__(self) -> int:
        return sum(1 for row in self._rows if row)

    def lines(self, width: int | None) -> Iterator[str]:
        """width: the columns of the terminal; None: any number. A wider table comes in parts, with a free line between.

        A part of keys and a single column may still be wider. Nothing is ever cut.
        """
        for number, part in enumerate(self._parts(width)):
            if number:
                yield ""
            yield from self._part(part)

    def _parts(self, width: int | None) -> Iterator[list[int]]:
        keys = list(range(self._keys))
        part = list(keys)
        for column in range(self._keys, len(self._heads)):
            if width is not None and len(part) > len(keys) and self._width([*part, column]) > width:
                yield part
                part = list(keys)
            part.append(column)
        yield part

    def _width(self, columns: Sequence[int]) -> int:
        return sum(map(self._width_of, columns)) + len(GAP) * (len(columns) - 1)

    def _width_of(self, column: int) -> int:
        cells = [self._heads[column], *(row[column] for row in self._rows if row)]
        return max(len(line) for cell in cells for line in cell.split("\n"))

    def _part(self, columns: Sequence[int]) -> Iterator[str]:
        heads = [self._heads[column].split("\n") for column in columns]
        height = max(map(len, heads))
        yield from self._laid_out(columns, [[""] * (height - len(head)) + head for head in heads])
        for row in self._rows:
            if row:
                yield from self._laid_out(columns, [row[column].split("\n") for column in columns])
            else:
                yield ""

    def _laid_out(self, columns: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
        """cells: the lines of each."""
        for number in range(max(map(len, cells))):
            texts = [cell[number] if number < len(cell) else "" for cell in cells]
            aligned = [
                text.ljust(self._width_of(column)) if self._left[column] else text.rjust(self._width_of(column))
                for column, text in zip(columns, texts, strict=True)
            ]
            yield GAP.join(aligned).rstrip()


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None


def show(table: Table, title: str = "") -> None:
    """Prints it, as wide as the terminal."""
    if title:
        print(f"\n{title}")
    for line in table.lines(terminal_width()):
        print(line)
