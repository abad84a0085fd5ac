"""How a sampling run looks on the terminal: its bar, its table, its sentences."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from consensusbench.sampling import Estimate, Outcome, Progress, Report
from consensuspr.cli.console import make_console, one_line

WINDOW_S = 30.0


class Rates:
    """Requests and tokens a second, over the last half minute.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int, int]] = deque()

    def update(self, requests: int, tokens: int) -> tuple[float, float]:
        """Take in the totals so far and return both rates."""
        now = self._clock()
        self._seen.append((now, requests, tokens))
        while now - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        since, requests_then, tokens_then = self._seen[0]
        seconds = max(now - since, 1e-9)
        if len(self._seen) == 1:
            return 0.0, 0.0
        return (requests - requests_then) / seconds, (tokens - tokens_then) / seconds


@contextmanager
def sampling_progress(total: int, *, hidden: bool) -> Iterator[Callable[[Progress], None]]:
    """Show problems, rates and cost while the block runs; yield what takes in the progress."""
    if hidden:
        yield lambda progress: None
        return
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} problems", style="progress.download"),
        TextColumn("{task.fields[rates]}", style="progress.data.speed"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=make_console(stderr=True),
    )
    rates = Rates()
    with bar:
        task = bar.add_task("sampling", total=total, rates="")

        def show(progress: Progress) -> None:
            if progress.phase == "writing":
                bar.update(task, description="writing", completed=progress.problems, rates="")
                return
            requests, tokens = rates.update(progress.requests, progress.tokens)
            bar.update(
                task,
                description=progress.phase,
                completed=progress.problems,
                rates=f"{requests:,.1f} requests/s {tokens:,.0f} tokens/s{_paid(progress)}",
            )

        yield show


def _paid(progress: Progress) -> str:
    return f" ${progress.cost:,.2f}" if progress.cost else ""


def print_report(console: Console, report: Report, path: str, samples: bool) -> None:
    """Print what was written, and what each model contributed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Model")
    for heading in ("Rollouts", "Correct", "Undecided", "Cut", "Refused", "Tokens", "Cost"):
        table.add_column(heading, justify="right")
    for name, count in report.models.items():
        table.add_row(
            Text(one_line(name)),
            f"{count.rollouts:,}",
            _share(count.correct, count.rollouts),
            f"{count.undecided:,}",
            f"{count.cut:,}",
            f"{count.refused:,}",
            f"{count.completion_tokens:,}",
            f"${count.cost:,.2f}" if count.cost else "–",
        )
    console.print(table)
    console.print(f"{path}: {report.written:,} rows", markup=False, soft_wrap=True)
    console.print(_problems(report, samples), markup=False, soft_wrap=True)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.1f} %)" if whole else "–"


def _problems(report: Report, samples: bool) -> str:
    """Say in one sentence how many problems got what they were to get."""
    said = [f"{report.problems['complete']:,} problems complete"]
    if report.problems["enough"]:
        said.append(f"{report.problems['enough']:,} with fewer rollouts, but enough")
    if report.problems["few"]:
        first = next(iter(report.few))
        what = "with samples missing" if samples else "with too few correct rollouts"
        said.append(f"{report.problems['few']:,} {what} (first: {one_line(first)!r})")
    if report.not_asked:
        first, reason = next(iter(report.not_asked.items()))
        said.append(f"{len(report.not_asked):,} not asked (first: {one_line(first)!r}, {reason})")
    return ", ".join(said)


def print_estimate(console: Console, estimate: Estimate) -> None:
    """Print the bounds of a run that was not made."""
    console.print(
        f"{estimate.problems:,} problems, {estimate.recorded:,} replies recorded, "
        f"${estimate.spent:,.2f} spent"
    )
    console.print(
        f"requests: {estimate.least_requests:,} if every answer is correct, "
        f"at most {estimate.most_requests:,} besides repeated ones"
    )
    if estimate.most_tokens is None:
        console.print("tokens and cost: no bound, since a model has no max_tokens")
        return
    cost = "no bound, since a model has no price"
    if estimate.most_cost is not None:
        cost = f"at most ${estimate.most_cost:,.2f}"
    console.print(f"tokens: at most {estimate.most_tokens:,}; cost: {cost}")


def how_to_go_on(outcome: Outcome) -> str:
    """Return how far a run came that was stopped, and what to do."""
    finished = 0 if outcome.run is None else outcome.run.finished
    return (
        f"{finished:,} of {outcome.total:,} problems are finished; run the same command again to "
        "go on, or with --finish to write the rollouts that there are"
    )
