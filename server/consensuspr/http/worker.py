"""The processes below the supervisor of a server that also listens for HTTP.

The texts of the problems are read in a second pass over the datasets: the index that scoring needs
does not keep them, and a server without this endpoint shall not pay for them.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.worker import main, save_snapshots

if TYPE_CHECKING:
    from consensuspr.http.app import HttpFront
    from consensuspr.http.problems import ProblemTexts
    from consensuspr.server.service import BuiltService

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
    from consensuspr.http.problems import build
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


def make_front(config: ServerConfig, built: BuiltService, payload: dict[str, Any]) -> HttpFront:
    """Return the face that the supervisor ordered."""
    from consensuspr.http.problems import open_texts

    texts = {name: open_texts(texts_folder(path)) for name, path in payload["snapshots"].items()}
    return build_front(config, built, texts, payload["http_address"])


def build_front(
    config: ServerConfig, built: BuiltService, texts: dict[str, ProblemTexts], address: str
) -> HttpFront:
    """Put the HTTP face of a server together; to be called with an event loop running."""
    from consensuspr.http.adapters import Batches
    from consensuspr.http.app import HttpFront
    from consensuspr.http.json_body import Receiver

    batches = Batches(built.scorer, config.http_max_items)
    for name, index in built.datasets.items():
        batches.add(index, texts[name])
    receiver = Receiver(int(config.http_max_body_bytes), int(config.queue_limit_bytes))
    return HttpFront(built.service, batches, receiver, built.metrics, built.security, address)


if __name__ == "__main__":
    sys.exit(main(save_all, make_front))
