"""What the demo shows: a line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


class Step:
    """A step under way; `at` moves its bar."""

    def __init__(self, progress: Progress | None, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None) if progress is not None else None

    def at(self, done: float, of: float) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=of)


class Screen:
    """Output goes to standard output; nothing is drawn where that is a file or a pipe."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show `title` and its time, and leave a line of both behind when it went well."""
        begin_s = time.monotonic()
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=self._console, transient=True) as progress:
                yield Step(progress, title)
        else:
            yield Step(None, title)
        self.say(f"  {title:<58}{time.monotonic() - begin_s:6.1f} s")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The first column to the left, figures to the right."""
        table = Table()
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
