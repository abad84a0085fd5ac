"""A worker process that also listens for HTTP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from consensuspr.http.prepare import texts_folder
from consensuspr.server.config import ServerConfig
from consensuspr.server.worker import main

if TYPE_CHECKING:
    from consensuspr.http.app import HttpFront
    from consensuspr.http.problem_texts import ProblemTexts
    from consensuspr.server.service import BuiltServer


def make_front(config: ServerConfig, built: BuiltServer, payload: dict[str, Any]) -> HttpFront:
    """Return the face that the supervisor ordered."""
    from consensuspr.http.problem_texts import open_texts

    texts = {name: open_texts(texts_folder(path)) for name, path in payload["snapshots"].items()}
    return build_front(config, built, texts, payload["http_address"])


def build_front(
    config: ServerConfig, built: BuiltServer, texts: dict[str, ProblemTexts], address: str
) -> HttpFront:
    """Put the HTTP face of a server together; to be called with an event loop running.

    Args:
        config: settings.
        built: the server, whose scorer, admission and metrics are used.
        texts: of each dataset's problems, by the dataset's name.
        address: HOST:PORT with a numeric host.
    """
    from consensuspr.http.adapters import Batches, Namer
    from consensuspr.http.app import Endpoint, HttpFront
    from consensuspr.http.json_body import Receiver

    namers = {name: Namer(index, texts[name]) for name, index in built.datasets.items()}
    batches = Batches(built.scorer, namers, config.http_max_items)
    receiver = Receiver(int(config.http_max_body_bytes), int(config.queue_limit_bytes))
    endpoint = Endpoint(built.service, batches, receiver, built.metrics)
    return HttpFront(endpoint, address)


if __name__ == "__main__":
    sys.exit(main(make_front))
