"""The processes below the supervisor of a server that also listens for HTTP.

The texts of the problems are read in a second pass over the datasets: the index that scoring needs
does not keep them, and a server without this endpoint shall not pay for them.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.worker import main, save_snapshots

if TYPE_CHECKING:
    from consensuspr.http.app import HttpFront
    from consensuspr.server.service import BuiltService

_log = logging.getLogger(logs.LOGGER_NAME)


def save_all(config: ServerConfig, snapshots: dict[str, str]) -> dict[str, str]:
    """Save the snapshot of each dataset, and its texts beside it; return the digests.

    Raises:
        DataError: a dataset or one of its rows is bad.
    """
    digests = save_snapshots(config, snapshots)
    from consensuspr.data import read_problems
    from consensuspr.http.problems import build, texts_folder
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
    return digests


def make_front(config: ServerConfig, built: BuiltService, payload: dict[str, Any]) -> HttpFront:
    """Return the face that the supervisor ordered."""
    return build_front(config, built, payload["http_address"])


def build_front(config: ServerConfig, built: BuiltService, address: str) -> HttpFront:
    """Put the HTTP face of a server together; to be called with an event loop running."""
    from consensuspr.http.adapters import Batches
    from consensuspr.http.app import HttpFront
    from consensuspr.http.json_body import Receiver

    batches = Batches(built.scorer, config.http_max_items)
    receiver = Receiver(int(config.http_max_body_bytes), built.service.admission)
    return HttpFront(
        built.service,
        batches,
        receiver,
        built.metrics,
        built.security,
        address,
        max_connections=config.max_connections,
        allowed_hosts=config.http_allowed_hosts,
    )


if __name__ == "__main__":
    sys.exit(main(save_all, make_front))
