"""``consensuspr watch``: look at runs in a browser, while they go on and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consensuspr.console import load_core
from consensuspr.credentials import TOKEN_FILE_VARIABLE
from consensuspr.errors import InputError


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|SCORED…",
            help="Folders of runs with their score logs, and files of scored rollouts; several are "
            "laid over one another.",
        ),
    ],
    *,
    dataset: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Dataset: for texts of problems, for what keeps no dataset itself (files, "
            "trainers alone), and to review its nodes; may be repeated.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any free one.")
    ] = "127.0.0.1:8790",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar=TOKEN_FILE_VARIABLE,
            help="Tokens that the page asks for, one a line; `consensuspr token FILE` adds one.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM), for TLS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key (PEM).")
    ] = None,
) -> None:
    """Show runs as a page: curves, samples, groups, problems, datasets; also while they go on.

    ```text
    consensuspr watch runs/qwen3-4b
    consensuspr watch runs/linear runs/outcome --dataset dataset.jsonl
    consensuspr watch scored.jsonl --dataset dataset.jsonl
    ```

    Prints one line, `watching on http://HOST:PORT`, when the page can be opened, and serves it
    until Ctrl-C. Nothing leaves the machine; an address that others can reach needs
    `--token-file`.
    """
    from consensuspr.web import require_web

    require_web("watch")
    load_core()
    from consensuspr.server.config import Address, claim
    from consensuspr.server.security import Gate, Security, Tls, check_page_reach
    from consensuspr.web.app import serve_page, until_signal
    from consensuspr.web.sources import open_source

    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert goes with --tls-key")
    wanted = Address.parse(address)
    check_page_reach("--address", wanted, known=token_file is not None)
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key, None)
    security = Security(Gate(token_file), tls)
    for path in dataset or ():
        if not path.is_file():
            raise InputError(f"{path} is no file")
    sources = [open_source(path) for path in runs]
    with claim(wanted) as claimed:
        scheme, bound = "http" if tls is None else "https", Address.of(claimed)

        def announce() -> None:
            print(f"watching on {scheme}://{bound}", flush=True)

        serve_page(sources, dataset or (), bound, security, announce, until_signal)
