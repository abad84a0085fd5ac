"""Progress on standard error: how many, how fast, how long still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from consensuspr.cli.console import make_console

NoProgress: TypeAlias = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]


class _Rate(ProgressColumn):
    """Things per second since the beginning."""

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.elapsed and task.completed else None
        return Text("" if rate is None else f"{rate:,.0f}/s", style="progress.data.speed")


class _Count(ProgressColumn):
    """How many of how many."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        of = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{of} {self._unit}", style="progress.download")


@contextmanager
def count_progress(
    what: str, total: int | None, unit: str, *, hidden: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yield what sets how many are done.

    Without a terminal the bar appears once, when it is done.

    Args:
        what: the work in one word.
        total: how many in all, None where unknown.
        unit: what is counted, in plural.
        hidden: show nothing.
    """
    if hidden:
        yield lambda done: None
        return
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Count(unit),
        _Rate(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=make_console(stderr=True),
    )
    with progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
