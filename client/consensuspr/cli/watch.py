"""``consensuspr watch``: look at runs in a browser, while they go on and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.options import more_option
from consensuspr.console import load_core
from consensuspr.credentials import TOKEN_FILE_VARIABLE
from consensuspr.errors import InputError


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|SCORED…",
            help="Folders of runs with score logs, or files of scored rollouts.",
        ),
    ],
    *,
    dataset: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Dataset of the runs, for problem texts and nodes; repeat it for several.",
        ),
    ] = None,
    address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free port."),
    ] = "127.0.0.1:8790",
    token_file: Annotated[
        Path | None,
        more_option(
            "FILE",
            "File of tokens, one a line; the page asks for one of them. `consensuspr token FILE`"
            " adds a token.",
            envvar=TOKEN_FILE_VARIABLE,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        more_option("FILE", "Certificate chain (PEM), for TLS."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        more_option("FILE", "Private key (PEM), for TLS."),
    ] = None,
) -> None:
    """Show runs in the browser, also while they train.

    ```text
    consensuspr watch runs/qwen3-4b
    consensuspr watch runs/linear runs/outcome --dataset dataset.jsonl
    consensuspr watch scored.jsonl --dataset dataset.jsonl
    ```

    Prints `watching on http://HOST:PORT` when you can open the page; stop it with Ctrl-C. The page
    has curves, samples, groups, problems and the dataset. It loads nothing from other machines.
    An address that other machines can reach needs `--token-file`. See the page "Watch a run".
    """
    from consensuspr.web import require_web

    require_web("watch")
    load_core()
    from consensuspr.server.config import Address, claim
    from consensuspr.server.security import Gate, Security, Tls, check_page_reach
    from consensuspr.web.app import serve_page, until_signal
    from consensuspr.web.sources import open_source

    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key need each other; give both")
    wanted = Address.parse(address)
    check_page_reach("--address", wanted, known=token_file is not None)
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key, None)
    security = Security(Gate(token_file), tls)
    for path in dataset or ():
        if not path.is_file():
            raise InputError(f"--dataset: file not found: {path}")
    sources = [open_source(path) for path in runs]
    with claim(wanted) as claimed:
        scheme, bound = "http" if tls is None else "https", Address.of(claimed)

        def announce() -> None:
            print(f"watching on {scheme}://{bound}", flush=True)

        serve_page(sources, dataset or (), bound, security, announce, until_signal)
