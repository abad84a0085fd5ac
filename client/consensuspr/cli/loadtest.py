"""``consensuspr loadtest``: load a server, measure it, and check what it answers."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consensuspr.cli.boundary import DONE, FAILED, INTERRUPTED
from consensuspr.cli.connection import connect
from consensuspr.cli.console import ColorMode, make_console, one_line
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
from consensuspr.cli.progress import NoProgress
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardKind
from consensuspr.wire.options import ScoreOptions

if TYPE_CHECKING:  # --help waits for none of it
    from consensuspr.loadtest.pool import Pool


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
    from consensuspr.loadtest.load import Arrivals, LoadShape
    from consensuspr.loadtest.outputs import check_outputs, write_output
    from consensuspr.loadtest.perform import perform
    from consensuspr.loadtest.saturation import DEFAULT_WINDOW_S, Limits
    from consensuspr.loadtest.settings import (
        DEFAULT_BATCH,
        DEFAULT_CONCURRENCY,
        DEFAULT_DURATION_S,
        DEFAULT_STEPS,
        REQUESTS_DURATION_S,
        Profile,
        Settings,
        default_processes,
    )

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
    from consensuspr.cli.loadtest_view import print_result, watching

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
    from consensuspr.loadtest.pool import pool_from_dataset, pool_from_file

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
