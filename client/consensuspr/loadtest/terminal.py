"""What a person sees of a load test on the terminal: how it goes, and the tables at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consensuspr.console import make_console, one_line, printable
from consensuspr.loadtest.processes import RunProgress
from consensuspr.loadtest.result import LoadTest
from consensuspr.loadtest.saturation import RateStep
from consensuspr.loadtest.stats import ENDS, ms

# Between two lines where there is no terminal to repaint.
LINE_S = 5.0
# What "now" means: long enough for a p99, short enough to see a change.
RECENT_S = 3.0

Show = Callable[[RunProgress], None]
Say = Callable[[RateStep], None]


@contextmanager
def watching(*, hidden: bool) -> Iterator[tuple[Show, Say]]:
    """Show on standard error how a load test goes; yield what is to be told of it.

    On a terminal a small table is repainted; elsewhere a line appears every few seconds.
    """
    console = make_console(stderr=True)
    if hidden:
        yield lambda progress: None, lambda step: None
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield (
                lambda progress: live.update(live_table(progress)),
                lambda step: console.print(_step_line(step), markup=False),
            )
    else:
        yield _Lines(console).show, lambda step: _line(console, _step_line(step))


class _Lines:
    """Plain lines, some seconds apart."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at = time.monotonic() + LINE_S

    def show(self, progress: RunProgress) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at += LINE_S
        if progress.elapsed_s <= 0:
            _line(self._console, "warming up")
            return
        sent, rollouts, p50_s, p99_s = _recent(progress)
        tally = progress.tally
        _line(
            self._console,
            f"{progress.elapsed_s:.0f} s: {sent:,.1f} requests/s,"
            f" {rollouts:,.0f} rollouts/s, {progress.in_flight:,} in flight,"
            f" p50 {ms(p50_s)} ms, p99 {ms(p99_s)} ms,"
            f" {tally.shed:,} shed, {tally.timed_out:,} out of time, {tally.failed:,} failed",
        )


def _recent(progress: RunProgress) -> tuple[float, float, float | None, float | None]:
    """Return requests sent and rollouts scored a second, p50 and p99, of the last full bins."""
    timeline = progress.tally.timeline
    end_s = progress.elapsed_s - progress.elapsed_s % timeline.width_s
    start_s = max(0.0, end_s - max(RECENT_S, timeline.width_s))
    recent = timeline.between(start_s, end_s)
    seconds = max(end_s - start_s, 1e-9)
    p50_s, p99_s = recent.latency.resolved((50, 99))
    return recent.due / seconds, recent.rollouts / seconds, p50_s, p99_s


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def live_table(progress: RunProgress) -> Table:
    """Return how a run goes, in one row."""
    if progress.elapsed_s <= 0:
        return _table(["Time", "Requests/s"], [["warming up", ""]])
    sent, rollouts, p50_s, p99_s = _recent(progress)
    tally = progress.tally
    cells: dict[str, str | Text] = {
        "Time": f"{progress.elapsed_s:.0f} s",
        "Requests/s": f"{sent:,.1f}",
        "Rollouts/s": f"{rollouts:,.0f}",
        "In flight": f"{progress.in_flight:,}",
        "p50 ms": ms(p50_s),
        "p99 ms": ms(p99_s),
        "Sent": f"{tally.sent:,}",
        "Answered": f"{tally.answered:,}",
        "Shed": Text(f"{tally.shed:,}", style="yellow" if tally.shed else ""),
        "Out of time": Text(f"{tally.timed_out:,}", style="bold red" if tally.timed_out else ""),
        "Failed": Text(f"{tally.failed:,}", style="bold red" if tally.failed else ""),
    }
    return _table(list(cells), [list(cells.values())])


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], left: Sequence[int] = ()
) -> Table:
    """Return a table of right-aligned columns but for those at ``left``."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place in left else "right", overflow="fold")
    for row in rows:
        # What a server said is no markup, and moves no cursor.
        cells = (Text(printable(each)) if isinstance(each, str) else each for each in row)
        table.add_row(*cells)
    return table


def _step_line(step: RateStep) -> str:
    """Return one step of a search in one line."""
    return (
        f"{step.rate:,.1f} requests/s ({step.rollout_rate:,.0f} rollouts/s):"
        f" p50 {ms(step.p50_s)} ms, p99 {ms(step.p99_s)} ms; sustained: {step.verdict}"
    )


def print_result(test: LoadTest, console: Console) -> None:
    """Print what was found."""
    if test.search is not None:
        steps = sorted(test.search.steps, key=lambda step: step.rate)
        rows = [step.cells() for step in steps]
        if rows:
            console.print(_table([*rows[0]], [[*row.values()] for row in rows], left=(7,)))
            console.print()
            counts = [step.counts() for step in steps]
            console.print(_table([*counts[0]], [[*row.values()] for row in counts]))
            console.print()
        best = test.search.best
        if best is not None:
            found = (
                f"highest sustained rate: {best.rate:,.1f} requests/s,"
                f" {best.rollout_rate:,.0f} rollouts/s, p99 {ms(best.p99_s)} ms"
            )
            console.print(Text(found, "bold"))
    else:
        _print_run(test, console)
    ends = [
        (f"{what} {status}", f"{count:,}", one_line(example, 200))
        for what, status, count, example in test.ends()
    ]
    console.print(_table(("Ended as", "Count", "The first"), ends, left=(0, 2)))
    checked = test.checked
    if checked is not None and checked.compared:
        style = "bold red" if checked.wrong else "yellow" if checked.undecided else "green"
        console.print(Text(str(checked), style), soft_wrap=True)
    for limit in test.client_limits():
        console.print(
            Text(f"the load generator was the limit: {limit}", "bold yellow"), soft_wrap=True
        )
    for note in test.notes():
        console.print(Text(f"note: {note}", "dim"), soft_wrap=True)


def _print_run(test: LoadTest, console: Console) -> None:
    tally = test.tally
    figures = Table(box=None, pad_edge=False, show_header=False)
    figures.add_column(style="bold")
    figures.add_column(justify="right")
    for name, value in (
        ("Rollouts/s", f"{test.rollout_rate:,.1f}"),
        ("MB/s of responses", f"{test.byte_rate / 1e6:,.2f}"),
        ("Requests/s", f"{test.request_rate:,.1f}"),
        ("Measured seconds", f"{test.measured_s:,.1f}"),
        ("Requests sent", f"{tally.sent:,}"),
        *((f"… {ENDS[name]}", f"{count:,}") for name, count in tally.ends.items()),
        ("Repeated attempts", f"{tally.retries:,}"),
    ):
        figures.add_row(name, value)
    console.print(figures)
    console.print()
    names, cells = test.latency_row()
    console.print(_table(["Latency", *names], [["ms", *cells]], left=(0,)))
    console.print()
