"""The progress of a running benchmark, on stderr: a bar on a terminal, else a line for each thing that is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class _Console(Console):
    """Leaves the cursor visible: nobody would show it again after Ctrl-C, which ends a rank at once."""

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        return False


class Reporter:
    def __init__(self, bar: Progress | None, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total) if bar else None

    def now(self, text: str) -> None:
        """Shows what comes next."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)

    def advance(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)

    def done(self, text: str) -> None:
        """Shows a result, which stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def reporting(shown: bool, total: int) -> Iterator[Reporter]:
    """shown: whether this rank shows progress. total: how often advance() will be called."""
    if not shown:
        yield Reporter(None, total)
        return
    console = _Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, redirect_stdout=False) as bar:
        yield Reporter(bar, total)
