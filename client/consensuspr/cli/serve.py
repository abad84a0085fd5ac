"""``consensuspr serve``: run the reward server."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from consensuspr.cli.options import ConfigFile, list_settings
from consensuspr.console import load_core
from consensuspr.settings import Settings


def _server_config() -> type[Settings]:
    from consensuspr.server.config import ServerConfig

    return ServerConfig


def serve(
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]PATH",
            show_default=False,
            help="Dataset to serve; repeat it, with a name each, for several.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="127.0.0.1:50051",
            help="Where to listen; port 0 takes any free one.",
        ),
    ] = None,
    metrics_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", show_default="off", help="Where to offer Prometheus metrics."
        ),
    ] = None,
    http_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="off",
            help="Where to answer OpenRLHF's and slime's remote-reward requests.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(show_default="one a core, at most 4", help="Worker processes."),
    ] = None,
    config: ConfigFile = None,
    show_settings: Annotated[bool, list_settings(_server_config, "CONSENSUSPR")] = False,
    log_format: Annotated[
        str | None,
        typer.Option(metavar="text|json", show_default="text", help="Form of log lines."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="debug|info|warning|error",
            show_default="info",
            help="Least severe level that is logged.",
        ),
    ] = None,
) -> int:
    """Start the reward server and serve until SIGTERM or Ctrl-C, then drain.

    ```text
    consensuspr serve --dataset dataset.jsonl
    consensuspr serve --dataset math=math.parquet --dataset gsm8k=gsm8k.jsonl.gz --workers 4
    ```

    Prints one line, `listening on HOST:PORT`, on standard output when it is ready; logs go to
    standard error. These are the options that people set; `--list-settings` prints all settings,
    each of which can stand in the TOML file of `--config` or in an environment variable
    (`CONSENSUSPR_WORKERS=4`). The command line wins over the environment, and that over the file.
    """
    from consensuspr.server.config import load_config, parse_datasets

    settings = load_config(
        file=config,
        environment=os.environ,
        overrides={
            "datasets": parse_datasets(dataset) if dataset else None,
            "address": address,
            "metrics_address": metrics_address,
            "http_address": http_address,
            "workers": workers,
            "log_format": log_format,
            "log_level": log_level,
        },
    )
    load_core()
    if settings.http_address is not None:
        from consensuspr.http import run
    else:
        from consensuspr.server import run

    return run(settings)
