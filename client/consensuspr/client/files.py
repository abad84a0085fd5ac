"""Score a file of rollouts through a client, in bounded memory, with means by data source.

A dataset path given with an address is not sent: its digest finds the server's dataset of equal
content.  A mean is over the rollouts that have the value, with their number.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from consensuspr.console import load_core
from consensuspr.data import Row, RowWriter
from consensuspr.errors import InputError, ServerFault
from consensuspr.scoring import Identity, rollout_from_row, scored_row
from consensuspr.scoring.types import Score, ScoreOptions, Status
from consensuspr.wire.codec import cut

if TYPE_CHECKING:
    from consensuspr.client.interface import BlockingClient
    from consensuspr.client.transport import Access

# Long enough for a server that is just starting, short enough for a wrong address.
CONNECT_TIMEOUT_S = 10.0

# For one chunk of a file, also on the pure-Python core.
REMOTE_TIMEOUT_S = 3600.0

# Bounds of the rows in memory: enough to keep several requests in flight and all cores busy.
CHUNK_ROLLOUTS = 4096
CHUNK_CHARS = 32 << 20

NO_SOURCE = "(none)"
MEASURES = ("acc", "ncr", "tpn", "reward", "ncr_raw")


@dataclass(frozen=True, slots=True)
class Connection:
    """A client, the dataset to use, and what is known of a problem by its id."""

    client: BlockingClient
    dataset_name: str | None
    source_of: Callable[[str], str | None]
    truth_of: Callable[[str], str | None] = lambda problem_id: None

    def data_source(self, row: Row) -> str | None:
        """Return the data source of a rollout, its problem's if the rollout has none."""
        source: str | None = row.get("data_source")
        return source or self.source_of(row["problem_id"])

    def ground_truth(self, row: Row) -> str | None:
        """Return the ground truth of a rollout, its problem's if the rollout has none."""
        truth: str | None = row.get("ground_truth")
        return truth if truth and not truth.isspace() else self.truth_of(row["problem_id"])


@contextmanager
def connect(
    dataset: str | None, address: str | None, timeout_s: float | None, access: Access | None = None
) -> Iterator[Connection]:
    """Connect to a scorer, and close it after the block.

    Args:
        dataset: path of a dataset, or with an address also a name.
        address: of a server; None: score in this process.
        timeout_s: limit of one call; None: none here, an hour with a server.
        access: token and TLS of the server; None: from the environment.

    Raises:
        InputError: no dataset was given, or the server has none of that content.
        DataError: the dataset cannot be read.
        RewardServiceError: the server does not answer.
    """
    if address is None:
        if dataset is None:
            raise InputError(
                "give --dataset PATH to score here, or --address HOST:PORT;"
                " nodes in rollouts are not read"
            )
        load_core()
        from consensuspr.client import LocalClient

        with LocalClient(dataset, timeout_s=timeout_s) as local:
            yield Connection(local, None, local.data_source, local.ground_truth)
        return
    from consensuspr.client import RewardClient

    with RewardClient(address, timeout_s=timeout_s or REMOTE_TIMEOUT_S, access=access) as remote:
        # At once, so that a wrong address does not look like a slow server.
        limit_s = min(timeout_s or CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S)
        served = remote.server_info(timeout_s=limit_s).datasets
        if dataset is None or not os.path.isfile(dataset):
            if dataset is not None and os.sep in dataset:
                raise InputError(f"--dataset: file not found: {dataset}")
            yield Connection(remote, dataset, _unknown)
            return
        load_core()
        from consensuspr.scoring import DatasetIndex

        index = DatasetIndex.load(dataset)
        for served_dataset in served:
            if served_dataset.digest == index.digest:
                yield Connection(remote, served_dataset.name, index.data_source, index.ground_truth)
                return
        held = ", ".join(f"{each.name} ({each.digest[:19]}…)" for each in served)
        raise InputError(
            f"the server at {address} has no dataset with the content of {dataset} "
            f"({index.digest[:19]}…); it has {held}"
        )


def _unknown(_: str) -> None:
    """Return None, the data source of problems that only the server has."""


@dataclass(slots=True)
class Mean:
    """A running mean of the values that are known."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        """Count a value; None is left out."""
        if value is not None:
            self.total += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """The mean, None without a single value."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class ScoreCounts:
    """The scores of some rollouts.

    Attributes:
        guarded: rollouts whose NCR the guard lowered.
        guarded_right: those of them that are right.
        messages: the message of the first rollout of each status.
    """

    rollouts: int = 0
    means: dict[str, Mean] = field(default_factory=lambda: {name: Mean() for name in MEASURES})
    guarded: int = 0
    guarded_right: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    messages: dict[Status, str] = field(default_factory=dict)

    def add(self, score: Score) -> None:
        """Count one score."""
        self.rollouts += 1
        self.statuses[score.status] += 1
        if score.message:
            self.messages.setdefault(score.status, score.message)
        for measure, mean in self.means.items():
            mean.add(getattr(score, measure))
        if score.guard is not None and score.guard < 1.0:
            self.guarded += 1
            self.guarded_right += score.acc == 1.0

    def to_json(self) -> dict[str, object]:
        """Return means with their counts, and the count of each status met."""
        return {
            "rollouts": self.rollouts,
            **{measure: mean.value for measure, mean in self.means.items()},
            **{f"{measure}_count": mean.count for measure, mean in self.means.items()},
            "guarded": self.guarded,
            "guarded_right": self.guarded_right,
            "statuses": {status.value: count for status, count in self.statuses.items()},
        }


@dataclass(slots=True)
class Summary:
    """All scores of a file, by data source in the order of first appearance, and overall.

    Attributes:
        lower_in_training: rollouts whose reward training lowers by default (no marked answer).
    """

    overall: ScoreCounts = field(default_factory=ScoreCounts)
    lower_in_training: int = 0
    by_source: dict[str, ScoreCounts] = field(default_factory=dict)

    def add(self, data_source: str | None, score: Score, lower_in_training: bool) -> None:
        """Count one score."""
        self.by_source.setdefault(data_source or NO_SOURCE, ScoreCounts()).add(score)
        self.overall.add(score)
        self.lower_in_training += lower_in_training

    def to_json(self) -> dict[str, object]:
        """Return all counts, ready for ``json.dumps``."""
        return {
            "overall": self.overall.to_json(),
            "by_data_source": {name: counts.to_json() for name, counts in self.by_source.items()},
            "lower_in_training": self.lower_in_training,
        }


def score_file(
    rows: Iterable[Row],
    connection: Connection,
    options: ScoreOptions,
    out: RowWriter,
    advance_to: Callable[[int], None],
) -> tuple[Summary, Identity]:
    """Score rows, at least one, chunk by chunk, and write them with their scores, in order.

    ``advance_to`` is called with the number of rollouts scored so far.

    Raises:
        ServerFault: the server was restarted with another dataset meanwhile.
    """
    from consensuspr.scoring.scorer import reward_in_training

    options = replace(options, dataset=connection.dataset_name)
    summary = Summary()
    identity: Identity | None = None

    def report(scored: int, of_chunk: int) -> None:
        advance_to(summary.overall.rollouts + scored)

    for chunk in chunks(rows):
        rollouts = [rollout_from_row(row) for row in chunk]
        batch = connection.client.score_with(rollouts, options, progress=report)
        if identity is not None and batch.identity != identity:
            raise ServerFault(
                f"the server changed after {summary.overall.rollouts} rollouts: these were scored "
                f"under {identity}, the next under {batch.identity}; nothing was written"
            )
        identity = batch.identity
        for row, score in zip(chunk, batch, strict=True):
            out.write(scored_row(row, score))
            trained = reward_in_training(row["response"], score, identity)
            summary.add(connection.data_source(row), score, trained is not None)
    assert identity is not None, "the reader refuses a file without a row"
    return summary, identity


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists that are bounded in number and in characters of response."""
    pieces = cut(rows, lambda row: len(row["response"]), CHUNK_CHARS, CHUNK_ROLLOUTS)
    return (piece for piece in pieces if piece)
