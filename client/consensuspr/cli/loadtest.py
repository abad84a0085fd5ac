"""``consensuspr loadtest``: load a server, measure it, and check what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from consensuspr.cli.boundary import DONE, FAILED, INTERRUPTED
from consensuspr.cli.options import HowToScore, Json, TlsCa, TokenFile, with_settings
from consensuspr.console import load_core, make_console, one_line
from consensuspr.errors import InputError
from consensuspr.loadtest.settings import LoadSettings


class LoadtestSettings(LoadSettings, HowToScore):
    """How ``loadtest`` loads a server, has it score, and shows how that goes."""

    run: str | None = Field(
        None,
        description="Name of the run that asks; servers give each run an equal share of their work,"
        " and count by it.",
    )
    no_progress: bool = Field(False, description="Show no progress.")


@with_settings(
    LoadtestSettings,
    prefix="CONSENSUSPR_LOADTEST",
    shown={
        "profile": None,
        "batch": None,
        "rate": None,
        "concurrency": None,
        "duration": "SECONDS",
        "find_saturation": None,
        "max_p99": "MS",
    },
)
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
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
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
    output: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Also write a report: .html (with plots), .json or .csv; may be repeated.",
        ),
    ] = None,
    settings: LoadtestSettings,
    as_json: Json = False,
) -> int:
    """Load a server and say how fast, how even and how right it answers.

    ```text
    consensuspr loadtest --address HOST:PORT --dataset dataset.jsonl --rollouts rollouts.jsonl
    consensuspr loadtest ... --rate 200 --arrivals poisson --duration 60 --output report.html
    consensuspr loadtest ... --generate 10000 --find-saturation --max-p99 250
    ```

    For servers that are yours: it takes all that they have, from whoever else uses them.

    These are the options that people set; `--list-settings` prints all: arrivals, rates that rise,
    warm-up, processes that send, limits on errors, the share of replies that are checked, how the
    server is to score. Each is an option too (`--arrivals poisson`), and can stand in the TOML file
    of `--config` or in the environment (`CONSENSUSPR_LOADTEST_ARRIVALS=poisson`).

    What comes out:

    ```text
    latency    from when a request was due, not from when it was sent
    p99        the time within which 99 % of them ended; – too few to tell
    answered   a reply came
    shed       refused for load, to come back later: no failure
    out of time  neither within its timeout
    cut off    in flight, or waiting to be sent, when the run or step was stopped
    failed     everything else: lost, broken; out of time is an error as well
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
    load_core()
    from consensuspr.client import Access
    from consensuspr.client.files import connect
    from consensuspr.loadtest.load import Target, pool_from_dataset, pool_from_file
    from consensuspr.loadtest.report import check_outputs, write_output
    from consensuspr.loadtest.result import perform
    from consensuspr.loadtest.terminal import print_result, watching

    files = output or []
    check_outputs(files)
    if not dataset.exists():
        raise InputError(f"--dataset {str(dataset)!r}: there is no such file")
    if (rollouts is None) == (generate is None):
        raise InputError("give either --rollouts FILE or --generate BYTES")
    # What is wrong there is said before anything is connected.
    options = replace(settings.options(), run=settings.run)
    if generate is not None:
        pool = pool_from_dataset(dataset, generate, settings.seed)
    else:
        assert rollouts is not None
        pool = pool_from_file(rollouts)
    access = Access(token_file, tls_ca)
    with connect(str(dataset), address, settings.timeout, access) as connection:
        options = replace(options, dataset=connection.dataset)
        target = Target(address, connection.client.server_info(), str(dataset), options, access)
    with watching(hidden=settings.no_progress) as (show, say):
        test = perform(target, settings, pool, show, say)
    for file in files:
        write_output(file, test)
    if as_json:
        print(json.dumps(test.to_json()))
    else:
        print_result(test, make_console(settings.color))
    faults = test.faults()
    for fault in faults:
        typer.echo(f"consensuspr: error: {one_line(fault, 2000)}", err=True)
    if faults:
        return FAILED
    return INTERRUPTED if test.result.interrupted else DONE
