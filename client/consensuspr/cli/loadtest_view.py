"""What a person sees of a load test: how it goes, and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consensuspr.cli.console import make_console, one_line
from consensuspr.loadtest.result import RANKS, LoadTest
from consensuspr.loadtest.saturation import Search, Step
from consensuspr.loadtest.settings import Settings
from consensuspr.loadtest.team import Progress

# Between two lines where there is no terminal to repaint.
LINE_S = 5.0
# What "now" means: long enough for a p99, short enough to see a change.
RECENT_S = 3.0

Show = Callable[[Progress], None]
Say = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class _Now:
    """The last seconds of a run."""

    sent_rate: float
    rollout_rate: float
    p50_s: float | None
    p99_s: float | None

    @classmethod
    def of(cls, progress: Progress) -> _Now:
        """Read the last full bins of a run that is past its warm-up."""
        timeline = progress.tally.timeline
        end_s = progress.elapsed_s - progress.elapsed_s % timeline.width_s
        start_s = max(0.0, end_s - max(RECENT_S, timeline.width_s))
        recent = timeline.between(start_s, end_s)
        seconds = max(end_s - start_s, 1e-9)
        p50, p99 = recent.latency.resolved((50, 99))
        return cls(recent.due / seconds, recent.rollouts / seconds, p50, p99)


@contextmanager
def watching(settings: Settings, *, hidden: bool) -> Iterator[tuple[Show, Say]]:
    """Show on standard error how a load test goes; yield what is to be told of it.

    On a terminal a small table is repainted; elsewhere a line appears every few seconds.

    Args:
        settings: of the load test.
        hidden: show nothing.
    """
    console = make_console(stderr=True)
    if hidden:
        yield lambda progress: None, lambda step: None
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield (
                lambda progress: live.update(_live_table(settings, progress)),
                lambda step: console.print(step_line(step), markup=False),
            )
    else:
        yield _Lines(console).show, lambda step: _line(console, step_line(step))


class _Lines:
    """Plain lines, some seconds apart."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at = time.monotonic() + LINE_S

    def show(self, progress: Progress) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at += LINE_S
        if progress.elapsed_s <= 0:
            _line(self._console, "warming up")
            return
        now, tally = _Now.of(progress), progress.tally
        _line(
            self._console,
            f"{progress.elapsed_s:.0f} s: {now.sent_rate:,.1f} requests/s,"
            f" {now.rollout_rate:,.0f} rollouts/s, {progress.in_flight:,} in flight,"
            f" p50 {ms(now.p50_s)} ms, p99 {ms(now.p99_s)} ms,"
            f" {tally.shed:,} shed, {tally.failed:,} failed",
        )


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _live_table(settings: Settings, progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "Time",
        "Requests/s",
        "Rollouts/s",
        "In flight",
        "p50 ms",
        "p99 ms",
        "Answered",
        "Shed",
        "Failed",
    ):
        table.add_column(heading, justify="right")
    if progress.elapsed_s <= 0:
        table.add_row(Text("warming up"), *[""] * 8)
        return table
    now, tally = _Now.of(progress), progress.tally
    table.add_row(
        f"{progress.elapsed_s:.0f} s",
        f"{now.sent_rate:,.1f}",
        f"{now.rollout_rate:,.0f}",
        f"{progress.in_flight:,}",
        ms(now.p50_s),
        ms(now.p99_s),
        f"{tally.answered:,}",
        Text(f"{tally.shed:,}", style="yellow" if tally.shed else ""),
        Text(f"{tally.failed:,}", style="bold red" if tally.failed else ""),
    )
    return table


def step_line(step: Step) -> str:
    """Return one step of a search in one line."""
    return (
        f"{step.rate:,.1f} requests/s ({step.rollout_rate:,.0f} rollouts/s):"
        f" p50 {ms(step.p50_s)} ms, p99 {ms(step.p99_s)} ms; sustained: {step.verdict}"
    )


def print_result(test: LoadTest, console: Console) -> None:
    """Print what was found."""
    if test.search is not None:
        _print_search(test.search, console)
    else:
        _print_run(test, console)
    console.print(_ends_table(test))
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
        ("… answered", f"{tally.answered:,}"),
        ("… shed", f"{tally.shed:,}"),
        ("… failed", f"{tally.failed:,}"),
        ("Repeated attempts", f"{tally.retries:,}"),
    ):
        figures.add_row(name, value)
    console.print(figures)
    console.print()
    latency = Table(box=None, pad_edge=False, header_style="bold")
    latency.add_column("Latency")
    names = ("mean", *(f"p{rank:g}" for rank in RANKS), "max")
    for name in names:
        latency.add_column(name, justify="right")
    values: list[float | None] = [
        tally.latency.mean_s,
        *tally.latency.resolved(RANKS),
        tally.latency.max_s if tally.latency.count else None,
    ]
    latency.add_row("ms", *map(ms, values))
    console.print(latency)
    console.print()


def _print_search(search: Search, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "Requests/s",
        "Answered/s",
        "Rollouts/s",
        "p50 ms",
        "p99 ms",
        "Late ms",
        "Lost",
    ):
        table.add_column(heading, justify="right")
    table.add_column("Sustained")
    for step in sorted(search.steps, key=lambda step: step.rate):
        table.add_row(
            f"{step.rate:,.1f}",
            f"{step.answered_rate:,.1f}",
            f"{step.rollout_rate:,.0f}",
            ms(step.p50_s),
            ms(step.p99_s),
            ms(step.late_s),
            f"{step.error_rate:.2%}",
            Text(step.verdict),
        )
    console.print(table)
    console.print()
    best = search.best
    if best is not None:
        console.print(
            Text(
                f"highest sustained rate: {best.rate:,.1f} requests/s,"
                f" {best.rollout_rate:,.0f} rollouts/s, p99 {ms(best.p99_s)} ms",
                "bold",
            )
        )


def _ends_table(test: LoadTest) -> Table:
    """Return how requests, attempts and rollouts ended, with the first sentence of each error."""
    tally = test.tally
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Ended as")
    table.add_column("Count", justify="right")
    table.add_column("The first", overflow="fold")
    for what, counts in (
        ("request", tally.codes),
        ("failed attempt", tally.attempt_codes),
        ("rollout", tally.statuses),
    ):
        for status, count in sorted(counts.items()):
            example = tally.examples.get(status, "") if what == "request" else ""
            table.add_row(f"{what} {status}", f"{count:,}", Text(one_line(example, 200)))
    return table


def ms(seconds: float | None) -> str:
    """Return a time in milliseconds, a dash where there is none."""
    return "–" if seconds is None else f"{seconds * 1e3:,.2f}"
