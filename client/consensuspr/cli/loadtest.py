"""What a person sees of a load test: how it goes, and the table at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consensuspr.cli.boundary import DONE, FAILED, INTERRUPTED
from consensuspr.cli.options import (
    Alpha,
    AnswerRuleChoice,
    Color,
    Epoch,
    Json,
    Reward,
    SwitchEpoch,
    reward_spec,
)
from consensuspr.client.files import connect
from consensuspr.console import ColorMode, NoProgress, make_console, one_line
from consensuspr.errors import InputError
from consensuspr.loadtest.load import Settings
from consensuspr.loadtest.processes import Progress
from consensuspr.loadtest.result import RANKS, LoadTest
from consensuspr.loadtest.saturation import Search, Step
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import ScoreOptions

if TYPE_CHECKING:
    from consensuspr.loadtest.load import Pool


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


# MERGED ``consensuspr loadtest``: load a server, measure it, and check what it answers.


class ProfileChoice(StrEnum):
    """What a request is."""

    BATCH = "batch"
    VERL = "verl"


class ArrivalChoice(StrEnum):
    """How the times of requests are spread."""

    CONSTANT = "constant"
    POISSON = "poisson"


class ShapeChoice(StrEnum):
    """How the rate moves."""

    CONSTANT = "constant"
    STEP = "step"
    RAMP = "ramp"


def loadtest(
    *,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            show_default=False,
            help="Server to load; nothing is sent anywhere else.",
        ),
    ],
    dataset: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            show_default=False,
            help="Dataset with the content that the server has; replies are checked against it.",
        ),
    ],
    rollouts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Rollouts to send, over and over."),
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            show_default=False,
            help="Send made-up responses of this size instead.",
        ),
    ] = None,
    profile: Annotated[
        ProfileChoice,
        typer.Option(
            help="Whole batches, or single samples through the client of verl's reward loop."
        ),
    ] = ProfileChoice.BATCH,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="64", help="Rollouts a request of --profile batch."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            show_default="closed loop",
            help="Open loop: requests a second (samples, with --profile verl).",
        ),
    ] = None,
    arrivals: Annotated[
        ArrivalChoice | None,
        typer.Option(
            show_default="constant", help="Open loop, or search: how the requests are spread."
        ),
    ] = None,
    load: Annotated[
        ShapeChoice | None,
        typer.Option(
            show_default="constant", help="Open loop: how the rate goes from --rate to --rate-end."
        ),
    ] = None,
    rate_end: Annotated[
        float | None,
        typer.Option(metavar="R", show_default=False, help="Rate at the end of step and ramp."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default="5", help="Rates of --load step, first and last included."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="C", show_default="8", help="Closed loop: requests at a time."),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default="10", help="End after this time."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="no limit", help="End after so many requests."),
    ] = None,
    warmup: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Load before the measured part, counted nowhere; it begins when the server has "
            "answered once. 0: neither.",
        ),
    ] = 1.0,
    find_saturation: Annotated[
        bool,
        typer.Option("--find-saturation", help="Search for the highest rate that is sustained."),
    ] = False,
    max_p99: Annotated[
        float | None,
        typer.Option(
            metavar="MS", show_default="no limit", help="p99 that a sustained rate may have."
        ),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="2",
            help="Of the search: length of a window of a step.",
        ),
    ] = None,
    max_error_rate: Annotated[
        float, typer.Option(metavar="SHARE", help="Errors above this share fail the test.")
    ] = 0.01,
    max_undecided: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Compared scores above this share with an answer that the server left undecided "
            "and the in-process scorer did not fail the test.",
        ),
    ] = 0.05,
    check: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Replies to compare with the in-process scorer; 0: none."
        ),
    ] = 0.01,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default="half the cores, at most 4", help="Processes that send."
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option(metavar="N", help="Connections of all processes together.")
    ] = 8,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Of a request, from when it is due, with retries."),
    ] = 30.0,
    retries: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="0; with --profile verl as many as the timeout allows",
            help="Repetitions of a refused or lost request.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of texts, arrivals and the replies compared.")] = 0,
    reward: Reward = RewardKind.LINEAR,
    alpha: Alpha = 0.5,
    epoch: Epoch = 0,
    switch_epoch: SwitchEpoch = 1,
    answer_rule: AnswerRuleChoice = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Also write a report: .html (with plots), .json or .csv; may be repeated.",
        ),
    ] = None,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Load a server and say how fast, how even and how right it answers.

    ```text
    consensuspr loadtest --address HOST:PORT --dataset problems.jsonl --rollouts rollouts.jsonl
    consensuspr loadtest ... --rate 200 --arrivals poisson --duration 60 --output report.html
    consensuspr loadtest ... --generate 10000 --find-saturation --max-p99 250
    ```

    For servers that are yours: it takes all that they have, from whoever else uses them.

    What comes out:

    ```text
    latency    from when a request was due, not from when it was sent
    p99        the time within which 99 % of them ended; – too few to tell
    answered   a reply came
    shed       refused for load, to come back later: no failure
    failed     everything else: lost, out of time, broken
    ```

    "The load generator was the limit" means that this machine could not send in time: such
    figures are not of the server alone.

    A sample of the replies is compared with the in-process scorer. Ctrl-C ends early and still
    reports.

    Exit codes:

    ```text
    0    passed
    1    no server there, nothing answered or scored, no rate sustained,
         scores wrong, too many errors or undecided answers
    2    wrong options or files
    130  ended by Ctrl-C, and passed until then
    ```
    """
    from consensuspr.loadtest.load import (
        DEFAULT_BATCH,
        DEFAULT_CONCURRENCY,
        DEFAULT_DURATION_S,
        DEFAULT_STEPS,
        REQUESTS_DURATION_S,
        Arrivals,
        LoadShape,
        Profile,
        Settings,
        default_processes,
    )
    from consensuspr.loadtest.report import check_outputs, write_output
    from consensuspr.loadtest.result import perform
    from consensuspr.loadtest.saturation import DEFAULT_WINDOW_S, Limits

    files = output or []
    check_outputs(files)
    verl = profile is ProfileChoice.VERL
    _refuse_together("--profile verl", verl, {"--batch": batch})
    _refuse_together("--rate", rate is not None, {"--concurrency": concurrency})
    _refuse_together(
        "--find-saturation",
        find_saturation,
        {
            "--duration": duration,
            "--requests": requests,
            "--concurrency": concurrency,
            "--load": load,
            "--rate-end": rate_end,
            "--steps": steps,
        },
    )
    _refuse_alone("--find-saturation", find_saturation, {"--max-p99": max_p99, "--window": window})
    _refuse_alone(
        "--rate or --find-saturation", rate is not None or find_saturation, {"--arrivals": arrivals}
    )
    _refuse_alone("--load step", load is ShapeChoice.STEP, {"--steps": steps})
    if not dataset.exists():
        raise InputError(f"--dataset {str(dataset)!r}: there is no such file")
    limits = Limits(
        None if max_p99 is None else max_p99 / 1e3,
        max_error_rate,
        DEFAULT_WINDOW_S if window is None else window,
        max_undecided,
    )
    if find_saturation and rate is not None and rate < limits.lowest_rate:
        raise InputError(
            f"--rate must be at least {limits.lowest_rate:g} requests a second, one in each"
            f" --window of {limits.window_s:g} seconds, got {rate:g}"
        )
    if duration is None:
        duration = DEFAULT_DURATION_S if requests is None else REQUESTS_DURATION_S
    spec = reward_spec(reward, alpha, switch_epoch)
    at_a_time = DEFAULT_CONCURRENCY if concurrency is None else concurrency
    sending = default_processes() if processes is None else processes

    def settings_for(name: str | None) -> Settings:
        return Settings(
            address,
            profile=Profile(profile.value),
            batch=DEFAULT_BATCH if batch is None else batch,
            rate=rate,
            arrivals=Arrivals.CONSTANT if arrivals is None else Arrivals(arrivals.value),
            shape=LoadShape.CONSTANT if load is None else LoadShape(load.value),
            rate_end=rate_end,
            steps=DEFAULT_STEPS if steps is None else steps,
            concurrency=at_a_time,
            duration_s=duration,
            requests=requests,
            warmup_s=warmup,
            processes=sending,
            connections=connections,
            timeout_s=timeout,
            retries=0 if retries is None and not verl else retries,
            check=check,
            seed=seed,
            options=ScoreOptions.checked(spec, epoch, name, answer_rule),
        )

    settings_for(None)  # what is wrong here is said before anything is read or connected
    pool = _pool(rollouts, generate, dataset, seed)
    with connect(str(dataset), address, timeout) as connection:
        server = connection.client.server_info()
        settings = settings_for(connection.dataset)

    with watching(settings, hidden=no_progress) as (show, say):
        test = perform(
            settings,
            pool,
            server,
            str(dataset),
            limits,
            search=find_saturation,
            show=show,
            say=say,
        )
    for file in files:
        write_output(file, test)
    if as_json:
        print(json.dumps(test.to_json()))
    else:
        print_result(test, make_console(color))
    for fault in test.faults():
        typer.echo(f"consensuspr: error: {one_line(fault, 2000)}", err=True)
    if test.faults():
        return FAILED
    return INTERRUPTED if test.interrupted else DONE


def _pool(rollouts: Path | None, generate: int | None, dataset: Path, seed: int) -> Pool:
    """Return what is sent.

    Raises:
        InputError: neither or both of the two sources are given.
    """
    from consensuspr.loadtest.load import pool_from_dataset, pool_from_file

    if (rollouts is None) == (generate is None):
        raise InputError("give either --rollouts FILE or --generate BYTES")
    if rollouts is not None:
        return pool_from_file(rollouts)
    assert generate is not None
    return pool_from_dataset(dataset, generate, seed)


def _refuse_together(option: str, given: bool, others: dict[str, object]) -> None:
    """Raise InputError where an option is given together with one that it makes meaningless."""
    for name, value in others.items():
        if given and value is not None:
            raise InputError(f"{name} does not go with {option}")


def _refuse_alone(needed: str, given: bool, others: dict[str, object]) -> None:
    """Raise InputError where an option is given without what it belongs to."""
    for name, value in others.items():
        if not given and value is not None:
            raise InputError(f"{name} goes with {needed}, which is not given")
