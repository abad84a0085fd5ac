"""``consensusbench sample``: rollouts from language models, correct ones or all."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from consensusbench.outputs import check_outputs
from consensusbench.sampling import (
    SampleEstimate,
    SampleJob,
    SampleOutcome,
    SampleProgress,
    SampleReport,
    SampleSettings,
    estimate_job,
    run_job,
)
from consensusbench.tables import Row, Table, number, words
from consensuspr.cli.options import Color, Json, OnErrorChoice, with_settings
from consensuspr.console import ColorMode, count_of, make_console, one_line
from consensuspr.errors import ConsensusPRError

WINDOW_S = 30.0


class SampleOptions(SampleSettings):
    """How ``sample`` draws, reads and tells."""

    on_error: OnErrorChoice = Field(
        OnErrorChoice.STOP,
        description="At a bad row: stop before anything is paid, or skip and count it.",
    )
    no_progress: bool = Field(False, description="Show no progress bar.")


@with_settings(
    SampleOptions,
    prefix="CONSENSUSBENCH_SAMPLE",
    shown={
        "per_problem": "N",
        "samples": "K",
        "temperature": None,
        "max_tokens": "N",
        "concurrency": "N",
        "max_cost": "USD",
    },
)
def sample(
    problems: Annotated[
        Path,
        typer.Argument(
            metavar="PROBLEMS", show_default=False, help="Dataset: JSONL, JSONL.gz or Parquet."
        ),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE", show_default=False, help="Rollouts: .jsonl, .jsonl.gz or .parquet."
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[@BASE_URL]",
            show_default=False,
            help="Model to ask; repeat it for several. Without a URL it is OpenAI's.",
        ),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="TOML file of models with their own prices, limits, keys and temperatures.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask nothing; print bounds on requests and cost.")
    ] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Ask nothing; write the rollouts of a run that was stopped."),
    ] = False,
    settings: SampleOptions,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Draw rollouts of a dataset's problems from OpenAI-compatible models.

    ```text
    consensusbench sample problems.jsonl --model gpt-5-mini --output rollouts.jsonl
    consensusbench sample problems.jsonl --models models.toml --max-cost 20 --output r.jsonl
    consensusbench sample test.jsonl --model qwen@http://gpu:8000/v1 --samples 16 --output k.jsonl
    ```

    Each problem is put in the paper's prompt until five rollouts have the right answer, the
    models taking turns. Every reply is kept in `FILE.journal`: stop the command in any way
    and run it again, and no reply is paid for twice. The output is written at the end; wrong
    rollouts are in it with `correct: false`. Keys come from the environment (`OPENAI_API_KEY`,
    or what the models file names).
    """
    from consensusbench.llm import read_models

    defaults = settings.model_dump(include={"temperature", "top_p", "max_tokens", "concurrency"})
    check_outputs((output,), (problems, models))
    asked = read_models(model or (), models, defaults)
    job = SampleJob(problems, output, asked, settings, finish, settings.on_error.value)
    if not dry_run:
        return _run(job, settings.no_progress, as_json, color)
    estimate = asyncio.run(estimate_job(job))
    if as_json:
        print(json.dumps(estimate.to_json()))
    else:
        print_estimate(make_console(color), estimate)
    return 0


def _run(job: SampleJob, no_progress: bool, as_json: bool, color: ColorMode) -> int:
    # Once before all else, so that a bad row stops the command before anything is paid.
    total = sum(1 for _ in job.read())
    with sampling_progress(total, hidden=no_progress) as watch:
        outcome = asyncio.run(run_job(job, watch))
    go_on = _how_to_go_on(outcome, total)
    if outcome.signal is not None and outcome.report is None:
        name = outcome.signal.name
        print(f"consensusbench: stopped by {name}: {go_on}", file=sys.stderr)
        return 128 + outcome.signal
    if outcome.run is not None and outcome.run.stopped_by is not None:
        raise ConsensusPRError(f"{one_line(str(outcome.run.stopped_by), 1000)}; {go_on}")
    if outcome.report is not None:
        if as_json:
            print(json.dumps(outcome.report.to_json()))
        else:
            samples = job.settings.samples is not None
            print_report(make_console(color), outcome.report, str(job.output), samples)
    _say_what_is_missing(outcome, total)
    return 0


def _how_to_go_on(outcome: SampleOutcome, total: int) -> str:
    finished = 0 if outcome.run is None else outcome.run.finished
    return (
        f"{finished:,} of {total:,} problems are finished; run the same command again to "
        "go on, or with --finish to write the rollouts that there are"
    )


def _say_what_is_missing(outcome: SampleOutcome, total: int) -> None:
    """Warn of models that were given up; raise where problems wait for a later run."""
    if outcome.run is None:
        return
    for name, reason in outcome.run.gone.items():
        print(f"warning: {name} was given up: {one_line(reason, 300)}", file=sys.stderr)
    if outcome.run.unfinished:
        problem, reason = next(iter(outcome.run.unfinished.items()))
        raise ConsensusPRError(
            f"{len(outcome.run.unfinished):,} of {total:,} problems wait for a reply, "
            f"the first {one_line(problem)!r} ({one_line(reason, 300)}); "
            "run the same command again to go on"
        )


class Rates:
    """Requests and tokens a second, over the last half minute."""

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
def sampling_progress(total: int, *, hidden: bool) -> Iterator[Callable[[SampleProgress], None]]:
    """Show problems, rates and cost while the block runs; yield what takes in the progress."""
    if hidden:
        yield lambda progress: None
        return
    bar = Progress(
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

        def show(progress: SampleProgress) -> None:
            if progress.phase == "writing":
                bar.update(task, description="writing", completed=progress.problems, rates="")
                return
            paid = f" ${progress.cost:,.2f}" if progress.cost else ""
            requests, tokens = rates.update(progress.requests, progress.tokens)
            bar.update(
                task,
                description=progress.phase,
                completed=progress.problems,
                rates=f"{requests:,.1f} requests/s {tokens:,.0f} tokens/s{paid}",
            )

        yield show


def print_report(console: Console, report: SampleReport, path: str, samples: bool) -> None:
    """Print what was written, and what each model contributed."""
    headings = ("Rollouts", "Correct", "Undecided", "Cut", "Refused", "Tokens", "Cost")
    rows: list[Row] = [
        [
            name,
            count.rollouts,
            _share(count.correct, count.rollouts),
            count.undecided,
            count.cut,
            count.refused,
            count.completion_tokens,
            f"${count.cost:,.2f}" if count.cost else None,
        ]
        for name, count in report.models.items()
    ]
    table = Table("", [words("Model"), *map(number, headings)], [rows])
    console.print(table.to_terminal(console.width))
    console.print(f"{path}: {count_of(report.written, 'row')}", markup=False, soft_wrap=True)
    console.print(_problems(report, samples), markup=False, soft_wrap=True)


def _share(part: int, whole: int) -> str | None:
    return f"{part:,} ({100 * part / whole:.1f} %)" if whole else None


def _problems(report: SampleReport, samples: bool) -> str:
    """Say in one sentence how many problems got what they were to get."""
    said = [f"{count_of(report.problems['complete'], 'problem')} complete"]
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


def print_estimate(console: Console, estimate: SampleEstimate) -> None:
    """Print the bounds of a run that was not made."""
    console.print(
        f"{count_of(estimate.problems, 'problem')}, "
        f"{count_of(estimate.recorded, 'reply', 'replies')} recorded, "
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
