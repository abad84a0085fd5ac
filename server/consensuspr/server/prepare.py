"""The process that loads the datasets once, for all workers.

Its own process, so that the memory of reading and deriving is gone when serving begins:
what stays is a snapshot of each dataset, which the workers map and share.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.worker import Orders


def main(save: Callable[[ServerConfig, dict[str, str]], None] | None = None) -> int:
    """Load every dataset and save its snapshot; report how it went.

    Args:
        save: does the work; None: :func:`save_snapshots`.

    Returns:
        The exit code of the process.
    """
    orders = Orders()
    # Nothing here needs an orderly end.
    orders.when_left_alone(lambda: os._exit(1))
    config = ServerConfig.model_validate(orders.payload["config"])
    logs.configure(config.log_format, config.log_level, "prepare")
    try:
        (save or save_snapshots)(config, orders.payload["snapshots"])
    except ConsensusPRError as error:
        orders.report_failure(str(error), bad_input=isinstance(error, InputError))
        return 1
    orders.report_ready()
    return 0


def save_snapshots(config: ServerConfig, snapshots: dict[str, str]) -> None:
    """Load the datasets one after the other and save each.

    Args:
        config: names and paths of the datasets, and whether to derive.
        snapshots: where to save them, by name.

    Raises:
        DataError: a dataset or one of its rows is bad.
    """
    from consensuspr.scoring import DatasetIndex

    for name, path in config.datasets.items():
        DatasetIndex.load(Path(path), name=name, derive=config.derive).save(snapshots[name])


if __name__ == "__main__":
    sys.exit(main())
