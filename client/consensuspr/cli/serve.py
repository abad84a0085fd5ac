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
        "metrics_address": "HOST:PORT",
        "score_log": "RUN",
        "http_address": "HOST:PORT",
        "web": "HOST:PORT",
        "workers": None,
        "log_format": "text|json",
        "log_level": "debug|info|warning|error",
    },
)
def serve(*, settings: ServerConfig) -> int:
    """Start the reward server and serve until SIGTERM or Ctrl-C, then drain.

    ```text
    consensuspr serve --dataset dataset.jsonl
    consensuspr serve --dataset math=math.parquet --dataset gsm8k=gsm8k.jsonl.gz --workers 4
    ```

    Prints one line, `listening on HOST:PORT`, on standard output when it is ready; logs go to
    standard error. These are the options that people set; `--list-settings` prints all settings,
    each of which can stand in the TOML file of `--config` or in an environment variable
    (`CONSENSUSPR_WORKERS=4`), or be an option. The command line wins over the environment, and
    that over the file.
    """
    load_core()
    if settings.web is not None:
        from consensuspr.web import require_web

        require_web("web")
    from consensuspr.server import run

    return run(settings)
