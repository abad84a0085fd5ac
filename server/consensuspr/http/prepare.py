"""The process that loads the datasets, and indexes the texts of their problems.

The texts are read in a second pass over the files: the index that scoring needs does not
keep them, and a server without this endpoint shall not pay for them.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.prepare import main, save_snapshots

_log = logging.getLogger(logs.LOGGER_NAME)


def texts_folder(snapshot: str) -> Path:
    """Return where the texts of a snapshot's dataset are kept."""
    return Path(f"{snapshot}.texts")


def save_all(config: ServerConfig, snapshots: dict[str, str]) -> None:
    """Save the snapshot of each dataset, and its texts beside it.

    Raises:
        DataError: a dataset or one of its rows is bad.
    """
    save_snapshots(config, snapshots)
    from consensuspr.data import read_problems
    from consensuspr.http.problem_texts import build
    from consensuspr.scoring import DatasetIndex

    for name, path in config.datasets.items():
        start = time.monotonic()
        index = DatasetIndex.open(snapshots[name], name=name)
        numbered = (
            (index.image.find(problem.problem_id), problem.problem)
            for problem in read_problems(path)
        )
        texts = build((at, text) for at, text in numbered if at is not None)
        texts.save(texts_folder(snapshots[name]))
        _log.info(
            "dataset %s: %d of %d problems can be found by their text, indexed in %.1f s",
            name, len(texts), len(index), time.monotonic() - start,
        )  # fmt: skip
        index.close()


if __name__ == "__main__":
    sys.exit(main(save_all))
