"""``consensuspr token``: make a token for a server and its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consensuspr.credentials import Scope, add_token


def token(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of tokens; created if it does not exist.")
    ],
    scope: Annotated[
        Scope, typer.Option(help="What the token allows; each scope includes those before it.")
    ] = Scope.SCORE,
) -> None:
    """Add a random token to a file for servers and clients.

    ```text
    consensuspr token tokens
    consensuspr serve --dataset dataset.jsonl --address 0.0.0.0:50051 --token-file tokens
    CONSENSUSPR_TOKEN_FILE=tokens consensuspr info --address HOST:50051
    ```

    Scopes: `read` lists datasets and reads metrics, `score` also scores, `admin` also changes
    datasets. A server accepts every token of the file and notices changes within seconds. A client
    sends the first token. The command does not print the token.
    """
    add_token(file, scope)
    typer.echo(f"{file}: added a token of scope {scope}", err=True)
