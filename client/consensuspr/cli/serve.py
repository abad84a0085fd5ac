"""``consensuspr serve``: run the reward server."""

from __future__ import annotations

from consensuspr.cli.options import with_settings
from consensuspr.console import load_core
from consensuspr.server.config import ENVIRONMENT_PREFIX, ServerConfig


@with_settings(
    ServerConfig,
    prefix=ENVIRONMENT_PREFIX,
    shown={
        "datasets": "[NAME=]PATH",
        "address": "HOST:PORT",
        "workers": "N",
        "score_log": "RUN",
        "web": "HOST:PORT",
        "metrics_address": "HOST:PORT",
        "token_file": "FILE",
    },
    more={
        "dataset_folder": "DIR",
        "http_address": "HOST:PORT",
        "tls_cert": "FILE",
        "tls_key": "FILE",
        "insecure": None,
        "log_format": "text|json",
        "log_level": "LEVEL",
    },
)
def serve(*, settings: ServerConfig) -> int:
    """Start the reward server; stop it with SIGTERM or Ctrl-C.

    ```text
    consensuspr serve --dataset dataset.jsonl
    consensuspr serve --dataset math=math.parquet --dataset gsm8k=gsm8k.jsonl.gz --workers 4
    ```

    When it is ready, the server prints `listening on HOST:PORT` on standard output. Logs go to
    standard error. On SIGTERM it finishes the requests that it has, then exits with 0.

    `--list-settings` prints all settings. Each can be an option, an environment variable
    (`CONSENSUSPR_WORKERS=4`) or a key in the file of `--config`. Options win over variables, and
    variables win over the file. See the page "Run a server".
    """
    load_core()
    if settings.web is not None:
        from consensuspr.web import require_web

        require_web("web")
    from consensuspr.server import run

    return run(settings)
