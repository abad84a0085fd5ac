"""``consensuspr datasets``: list, add, replace and remove datasets of a running server."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import Json, TlsCa, TokenFile, more_option
from consensuspr.console import make_console, one_line
from consensuspr.errors import InputError, InvalidRequest

if TYPE_CHECKING:
    from consensuspr.client.admin import AdminClient, ServedDataset


class Action(StrEnum):
    """Change or query of the datasets."""

    LIST = "list"
    ADD = "add"
    REPLACE = "replace"
    REMOVE = "remove"


def datasets(
    action: Annotated[
        Action, typer.Argument(metavar="list|add|replace|remove", help="Action on the datasets.")
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the dataset in requests.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="File on the server's machine. For replace, default: the file it came from.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Server to ask.")
    ] = "127.0.0.1:50051",
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    expect_digest: Annotated[
        str | None,
        more_option("sha256:…", "Digest that the file must have, or nothing changes."),
    ] = None,
    timeout: Annotated[
        float,
        more_option("SECONDS", "Seconds to wait for the change.", min=0.001),
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """List or change the datasets of a running server.

    ```text
    consensuspr datasets list
    consensuspr datasets add gsm8k /data/gsm8k.parquet
    consensuspr datasets replace math /data/math-v2.parquet --address 127.0.0.1:50051
    consensuspr datasets remove gsm8k
    ```

    The server checks the file while it serves, then all workers switch at once. Requests in
    progress finish with the old dataset. A bad file changes nothing. The file must be below the
    folder of one of the server's datasets, or below its `dataset_folder`.
    """
    from consensuspr.client import Access
    from consensuspr.client.admin import AdminClient

    _check(action, name, path, expect_digest)
    with AdminClient(address, timeout, Access(token_file, tls_ca)) as client:
        try:
            done = _do(client, action, name or "", path, expect_digest)
        except InvalidRequest as error:
            raise InputError(str(error)) from None
    if as_json:
        print(json.dumps(done))
    elif action is Action.LIST:
        make_console().print(_table(done))
    elif action is Action.REMOVE:
        typer.echo(f"{name}: removed, {done['digest']}")
    else:
        before = done["previous_digest"]
        change = "added" if before is None else f"replaced {before}"
        if before == done["digest"]:
            change = "loaded again, with the same content"
        typer.echo(f"{name}: {change}, {done['num_problems']:,} problems, {done['digest']}")


def _check(action: Action, name: str | None, path: str | None, expect_digest: str | None) -> None:
    """Reject arguments that do not fit the action."""
    needs_name = action is not Action.LIST
    if needs_name != (name is not None):
        need = "needs the NAME of a dataset" if needs_name else f"takes no NAME, got {name!r}"
        raise InputError(f"datasets {action} {need}")
    if action is Action.ADD and path is None:
        raise InputError("datasets add needs the PATH of a file on the server's machine")
    if action in (Action.LIST, Action.REMOVE) and (path or expect_digest):
        raise InputError(f"datasets {action} takes no PATH and no --expect-digest")


def _do(
    client: AdminClient, action: Action, name: str, path: str | None, expect_digest: str | None
) -> Any:
    """Run the action and return its JSON result."""
    if action is Action.LIST:
        return [_row(dataset) for dataset in client.list()]
    if action is Action.REMOVE:
        return {"name": name, "digest": client.remove(name)}
    # The server takes absolute paths only.
    found = "" if path is None else os.path.abspath(path)
    put = client.put(name, found, "add" if action is Action.ADD else "replace", expect_digest)
    return _row(put.dataset) | {"previous_digest": put.previous_digest}


def _row(dataset: ServedDataset) -> dict[str, Any]:
    row = asdict(dataset)
    info: dict[str, Any] = row.pop("info")
    return info | row


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("Dataset", box=None, pad_edge=False, header_style="bold")
    for heading in ("Problems", "Nodes"):
        table.add_column(heading, justify="right")
    for heading in ("Served since", "Digest", "File"):
        table.add_column(heading, no_wrap=heading != "File")
    for row in rows:
        since = datetime.fromtimestamp(row["loaded_unix_s"], UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        counts = (f"{row['num_problems']:,}", f"{row['num_nodes']:,}")
        name, path = Text(one_line(row["name"])), Text(one_line(row["path"]))
        table.add_row(name, *counts, since, row["digest"][:19], path)
    return table
