"""Who scores: this process, or a server whose dataset is the one that was meant.

A path given together with an address is not sent anywhere: the server has its own copy.  It
is read here to find, by digest, the server's dataset of equal content, so that a run cannot
be scored against an older file by mistake.  Anything else is the name of a dataset there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from consensuspr.cli.core_note import load_core
from consensuspr.data import Row
from consensuspr.errors import InputError

if TYPE_CHECKING:  # each is imported where it is needed: --help waits for none of them
    from consensuspr.client import DatasetInfo, LocalClient, RewardClient

DatasetChoice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        show_default=False,
        help="Dataset with nodes and ground truths. With --address: the server's dataset of equal "
        "content, or the name of one there.",
    ),
]


# Long enough for a server that is just starting, short enough for a wrong address.
CONNECT_TIMEOUT_S = 10.0

# For one chunk of a file, also on the pure-Python core.
REMOTE_TIMEOUT_S = 3600.0


class Connection:
    """A client, and which of its datasets to use.

    Args:
        client: in this process or to a server.
        dataset: name of the dataset there; None where there is only one.
        source_of: data source of a problem by its id, None where nobody here knows it.
    """

    def __init__(
        self,
        client: LocalClient | RewardClient,
        dataset: str | None,
        source_of: Callable[[str], str | None],
    ) -> None:
        self.client = client
        self.dataset = dataset
        self._source_of = source_of

    def data_source(self, row: Row) -> str | None:
        """Return the data source of a rollout, its problem's where the rollout has none."""
        source: str | None = row.get("data_source")
        return source or self._source_of(row["problem_id"])


@contextmanager
def connect(
    dataset: str | None, address: str | None, timeout_s: float | None
) -> Iterator[Connection]:
    """Connect to what scores, and close it after the block.

    Args:
        dataset: path of a dataset, or with an address also a name.
        address: of a server; None to score in this process.
        timeout_s: limit of one call; None for none here and the usual one with a server.

    Raises:
        InputError: no dataset was given, or the server has none of that content.
        DataError: the dataset cannot be read.
        RewardServiceError: the server does not answer.
    """
    if address is None:
        if dataset is None:
            raise InputError("give --dataset PATH to score here, or --address HOST:PORT")
        load_core()
        from consensuspr.client import LocalClient

        with LocalClient(dataset, timeout_s=timeout_s) as local:
            yield Connection(local, None, local.data_source)
        return
    from consensuspr.client import RewardClient

    with RewardClient(address, timeout_s=timeout_s or REMOTE_TIMEOUT_S) as remote:
        # At once, so that a wrong address does not look like a slow server.
        limit_s = min(timeout_s or CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S)
        served = remote.server_info(timeout_s=limit_s).datasets
        if dataset is None or not os.path.exists(dataset):
            if dataset is not None and os.sep in dataset:
                raise InputError(f"{dataset}: no such file, and no name of a dataset either")
            yield Connection(remote, dataset, _unknown)
        else:
            load_core()
            from consensuspr.scoring import DatasetIndex

            with closing(DatasetIndex.load(dataset)) as index:
                name = _same_content(served, index.digest, dataset, address)
                yield Connection(remote, name, index.data_source)


def _unknown(_: str) -> None:
    """Answer for problems of a dataset that only the server has."""


def _same_content(served: tuple[DatasetInfo, ...], digest: str, path: str, address: str) -> str:
    """Return the name of the server's dataset whose digest is that of a file."""
    for dataset in served:
        if dataset.digest == digest:
            return dataset.name
    held = ", ".join(f"{dataset.name} ({dataset.digest[:19]}…)" for dataset in served)
    raise InputError(
        f"the server at {address} has no dataset with the content of {path} "
        f"({digest[:19]}…); it has {held}"
    )
