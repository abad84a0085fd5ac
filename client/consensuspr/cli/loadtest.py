"""``consensuspr loadtest``: load a server, measure it, and check its replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.boundary import DONE, FAILED
from consensuspr.cli.options import Json, TlsCa, TokenFile
from consensuspr.console import load_core, make_console, one_line, printable
from consensuspr.errors import InputError


def loadtest(
    *,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Server to load.")],
    dataset: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Dataset with the content that the server has; replies are checked against it.",
        ),
    ],
    rollouts: Annotated[
        Path, typer.Option(metavar="FILE", help="Rollouts to send, over and over.")
    ],
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    batch: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Rollouts in a request; 1 sends single samples as verl's reward loop does.",
        ),
    ] = 64,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="Open loop: requests a second. Of a search: the first rate."
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(metavar="C", min=1, max=65_536, help="Closed loop: requests at a time.")
    ] = 8,
    duration: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="Seconds of sending, of each rate.")
    ] = 10.0,
    find_saturation: Annotated[
        bool, typer.Option("--find-saturation", help="Search for the highest sustained rate.")
    ] = False,
    max_p99: Annotated[
        float | None, typer.Option(metavar="MS", min=0, help="p99 that a sustained rate may have.")
    ] = None,
    max_error_rate: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0, max=1, help="More errors fail the test, or are not sustained."
        ),
    ] = 0.01,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=0.001, help="Limit of a request, from when it is due.")
    ] = 30.0,
    connections: Annotated[
        int, typer.Option(metavar="N", min=1, max=1024, help="Connections to the server.")
    ] = 8,
    processes: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Processes that send.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Load a server, measure throughput and latency, and check its replies.

    ```text
    consensuspr loadtest --address HOST:PORT --dataset dataset.jsonl --rollouts rollouts.jsonl
    consensuspr loadtest ... --rate 200 --duration 60 --output load.json
    consensuspr loadtest ... --find-saturation --max-p99 250
    ```

    Use it on your own servers only: it takes all their capacity. Without `--rate`, each of
    `--concurrency` requests is followed by the next (closed loop). With `--rate`, requests are due
    by the clock, and latency counts from then (open loop).

    Prints a Markdown table. "The load generator was the limit" means that this machine could not
    send in time. A sample of the scores is compared with the in-process scorer.

    Exit codes: 1 if nothing was answered or scored, a score was wrong, errors were too many, or no
    rate was sustained.
    """
    load_core()
    from consensuspr.client import Access
    from consensuspr.client.files import connect
    from consensuspr.loadtest.run import perform, read_pool
    from consensuspr.loadtest.sender import Load, Target

    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"--rate must be above 0 requests a second, got {rate}")
    if max_p99 is not None and not find_saturation:
        raise InputError("--max-p99 goes with --find-saturation")
    if not dataset.is_file():
        raise InputError(f"--dataset {str(dataset)!r}: no such file")
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"--output {str(output)!r}: no such folder")
    pool = read_pool(rollouts)
    access = Access(token_file, tls_ca)
    with connect(str(dataset), address, timeout, access) as connection:
        info = connection.client.server_info()
        name = connection.dataset_name
    digest = next(served.digest for served in info.datasets if served.name == name)
    load = Load(batch, rate, concurrency, duration, timeout, connections, processes)
    errors = make_console(stderr=True)
    with errors.status(f"loading {address}"):
        test = perform(
            Target(address, name, digest, access),
            info,
            str(dataset),
            load,
            pool,
            search=find_saturation,
            max_p99_ms=max_p99,
            max_error_rate=max_error_rate,
            say=lambda sentence: errors.print(sentence, markup=False, soft_wrap=True),
        )
    faults = test.faults(max_error_rate)
    figures = json.dumps(test.to_json(faults))
    if output is not None:
        output.write_text(figures + "\n", encoding="utf-8")
    if as_json:
        print(figures)
    else:
        for line in test.markdown():
            print(printable(line))
    for fault in faults:
        typer.echo(f"consensuspr: error: {one_line(fault, 2000)}", err=True)
    return FAILED if faults else DONE
