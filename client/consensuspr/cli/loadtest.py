"""``consensuspr loadtest``: load a server, measure it, and check its replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.boundary import DONE, FAILED
from consensuspr.cli.options import Json, TlsCa, TokenFile, flag, more_option, seconds_option
from consensuspr.console import load_core, make_console, one_line, printable
from consensuspr.errors import InputError


def loadtest(
    *,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Server to test.")],
    dataset: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Dataset of the server; the test checks replies with it.",
        ),
    ],
    rollouts: Annotated[
        Path, typer.Option(metavar="FILE", help="File of rollouts to send, again and again.")
    ],
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    batch: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Rollouts in a request; verl sends 1.",
        ),
    ] = 64,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="Requests a second, sent by the clock; the first rate of a search."
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            metavar="C", min=1, max=65_536, help="Requests in flight at a time, without --rate."
        ),
    ] = 8,
    duration: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="Seconds of the test, for each rate.")
    ] = 10.0,
    find_saturation: Annotated[
        bool, flag("--find-saturation", "Search for the highest sustained rate.")
    ] = False,
    max_p99: Annotated[
        float | None,
        typer.Option(metavar="MS", min=0, help="Highest p99 latency of a sustained rate."),
    ] = None,
    max_error_rate: Annotated[
        float,
        more_option("SHARE", "Highest share of errors that passes.", min=0, max=1),
    ] = 0.01,
    timeout: Annotated[
        float,
        seconds_option("Seconds for a request."),
    ] = 30.0,
    connections: Annotated[
        int,
        more_option("N", "Connections to the server.", min=1, max=1024),
    ] = 8,
    processes: Annotated[
        int,
        more_option("N", "Processes that send requests.", min=1, max=64),
    ] = 1,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file of the figures.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the throughput and latency of a server, and check its replies.

    ```text
    consensuspr loadtest --address HOST:PORT --dataset dataset.jsonl --rollouts rollouts.jsonl
    consensuspr loadtest ... --rate 200 --duration 60 --output load.json
    consensuspr loadtest ... --find-saturation --max-p99 250
    ```

    It takes all capacity of the server, so test your own servers only.

    Without `--rate`, `--concurrency` requests are always in flight (closed loop). With `--rate`,
    requests are sent by the clock, and latency counts from the time when a request is due (open
    loop). Some scores are compared with the in-process scorer.

    Prints a Markdown table. "The load generator was the limit" means that this machine could not
    send in time. The exit code is 1 if no request was answered, a score was wrong, there were too
    many errors, or no rate was sustained.
    """
    load_core()
    from consensuspr.client import Access
    from consensuspr.client.files import connect
    from consensuspr.loadtest.run import perform, read_pool
    from consensuspr.loadtest.sender import Load, Target

    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"--rate must be above 0 requests a second, got {rate}")
    if max_p99 is not None and not find_saturation:
        raise InputError("--max-p99 needs --find-saturation")
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
