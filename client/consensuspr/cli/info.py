"""``consensuspr info``: versions, limits and datasets, of this install or of a server."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import Json, TlsCa, TokenFile, more_option
from consensuspr.client.files import CONNECT_TIMEOUT_S
from consensuspr.console import load_core, make_console, one_line
from consensuspr.wire.server_info import DatasetInfo


def info(
    address: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Server to ask.")] = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    timeout: Annotated[
        float,
        more_option("SECONDS", "Seconds to wait for the server.", min=0.001),
    ] = CONNECT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Print versions and limits of this installation, or of a server and its datasets.

    ```text
    consensuspr info
    consensuspr info --address 127.0.0.1:50051
    ```
    """
    if address is None:
        facts, datasets = _installed(), tuple[DatasetInfo, ...]()
    else:
        from consensuspr.client import Access, RewardClient

        with RewardClient(address, timeout_s=timeout, access=Access(token_file, tls_ca)) as client:
            server = client.server_info()
        facts, datasets = asdict(server), server.datasets
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        if name != "datasets":
            shown = f"{value:,}" if name.startswith("max_") else one_line(str(value))
            table.add_row(name.replace("_", " "), Text(shown))
    make_console().print(table)
    if datasets:
        make_console().print(_dataset_table(datasets))


def _installed() -> dict[str, Any]:
    backend = load_core()
    from consensuspr.core import NORMAL_FORM_VERSION
    from consensuspr.scoring.answers import ANSWER_VERSION
    from consensuspr.scoring.types import SCORING_VERSION
    from consensuspr.v1 import PROTOCOL_VERSION
    from consensuspr.version import VERSION

    return {
        "version": VERSION,
        "protocol_version": PROTOCOL_VERSION,
        "normal_form_version": NORMAL_FORM_VERSION,
        "answer_version": ANSWER_VERSION,
        "scoring_version": SCORING_VERSION,
        "core_backend": backend,
    }


def _dataset_table(datasets: tuple[DatasetInfo, ...]) -> Table:
    table = Table("Dataset", box=None, pad_edge=False, header_style="bold")
    for heading in ("Problems", "Without nodes", "Nodes", "Expressions", "Derived"):
        table.add_column(heading, justify="right")
    table.add_column("Digest", no_wrap=True)
    for dataset in datasets:
        nodes = (dataset.num_nodes, dataset.num_expressions, dataset.num_derived)
        counts = (dataset.num_problems, dataset.num_without_nodes, *nodes)
        name, digest = Text(one_line(dataset.name)), dataset.digest[:19]
        table.add_row(name, *(f"{n:,}" for n in counts), digest)
    return table
