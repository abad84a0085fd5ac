"""``consensuspr token``: make a token for a server and its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consensuspr.credentials import Scope, add_token


def token(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of tokens, made if need be.")],
    scope: Annotated[
        Scope, typer.Option(help="Scope of the token; each includes those before it.")
    ] = Scope.SCORE,
) -> None:
    """Add a new token to a file for servers and clients.

    ```text
    consensuspr token tokens
    consensuspr serve --dataset dataset.jsonl --address 0.0.0.0:50051 --token-file tokens
    CONSENSUSPR_TOKEN_FILE=tokens consensuspr info --address HOST:50051
    ```

    A line is a token and its scope: `read` lists datasets and reads metrics, `score` also scores,
    `admin` also changes datasets. A server accepts every line and reads the file again within
    seconds of a change; a client sends the token of the first line. The token is random and is
    not printed.
    """
    add_token(file, scope)
    typer.echo(f"{file}: a new token of scope {scope}", err=True)
