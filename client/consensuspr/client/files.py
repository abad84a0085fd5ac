"""Who scores: this process, or a server whose dataset is the one that was meant.

A path given together with an address is not sent anywhere: the server has its own copy.  It
is read here to find, by digest, the server's dataset of equal content, so that a run cannot
be scored against an older file by mistake.  Anything else is the name of a dataset there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rich.table import Table
from rich.text import Text

from consensuspr.console import load_core, one_line
from consensuspr.data import Row, RowWriter
from consensuspr.errors import InputError, ServerFault
from consensuspr.scoring import Identity, Rollout, rollout_from_row, scored_row
from consensuspr.scoring.types import Score, Status

if TYPE_CHECKING:
    from consensuspr.client import DatasetInfo, LocalClient, RewardClient, ScoredBatch


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


# MERGED Scores counted up by data source, for the table and for ``--json``.
#
# A mean is over the rollouts where the value is known, and says over how many: a rollout
# without nodes has no NCR, and counting it as 0 would be a lie.  Mean TPN is the mean of
# equation 2 over rollouts that have it (a length in tokens and at least one node).

NO_SOURCE = "(none)"
MEASURES = ("acc", "ncr", "tpn", "reward")


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
class Group:
    """What the rollouts of one data source scored."""

    rollouts: int = 0
    acc: Mean = field(default_factory=Mean)
    ncr: Mean = field(default_factory=Mean)
    tpn: Mean = field(default_factory=Mean)
    reward: Mean = field(default_factory=Mean)
    statuses: Counter[Status] = field(default_factory=Counter)
    # What the first rollout of each status was told.
    messages: dict[Status, str] = field(default_factory=dict)

    def add(self, score: Score) -> None:
        """Count one score."""
        self.rollouts += 1
        self.statuses[score.status] += 1
        if score.message:
            self.messages.setdefault(score.status, score.message)
        for measure in MEASURES:
            getattr(self, measure).add(getattr(score, measure))

    def to_json(self) -> dict[str, object]:
        """Return means with their counts, and the count of each status met."""
        means: dict[str, object] = {}
        for measure in MEASURES:
            mean: Mean = getattr(self, measure)
            means[measure] = mean.value
            means[f"{measure}_count"] = mean.count
        return {
            "rollouts": self.rollouts,
            **means,
            "statuses": {status.value: count for status, count in self.statuses.items()},
        }


class Summary:
    """All scores of a run, by data source in the order of first appearance, and overall."""

    def __init__(self) -> None:
        self.overall = Group()
        self._by_source: dict[str, Group] = {}

    def add(self, data_source: str | None, score: Score) -> None:
        """Count one score."""
        self._by_source.setdefault(data_source or NO_SOURCE, Group()).add(score)
        self.overall.add(score)

    def __iter__(self) -> Iterator[tuple[str, Group]]:
        return iter(self._by_source.items())

    def __getitem__(self, data_source: str) -> Group:
        return self._by_source[data_source]

    def to_json(self) -> dict[str, object]:
        """Return everything counted, ready for ``json.dumps``."""
        return {
            "overall": self.overall.to_json(),
            "by_data_source": {source: group.to_json() for source, group in self},
        }


def percent(mean: Mean, rollouts: int) -> str:
    """Return a mean of values in [0, 1] in percent, with its count where some are unknown."""
    if mean.value is None:
        return "–"
    return f"{100 * mean.value:.1f} %" + _of(mean, rollouts)


def number(mean: Mean, rollouts: int, decimals: int) -> str:
    """Return a mean with so many decimals, and with its count where some are unknown."""
    if mean.value is None:
        return "–"
    return f"{mean.value:,.{decimals}f}" + _of(mean, rollouts)


def _of(mean: Mean, rollouts: int) -> str:
    return "" if mean.count == rollouts else f" (of {mean.count:,})"


def summary_table(summary: Summary, reward: str) -> Table:
    """Return the table of a run.

    Args:
        summary: the counts.
        reward: heading of the reward's column.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Data source")
    for heading in ("Rollouts", "Acc", "NCR", "TPN", reward):
        table.add_column(heading, justify="right")
    rows = list(summary)
    for source, group in rows:
        table.add_row(Text(one_line(source)), *_cells(group))
    if len(rows) > 1:
        table.add_section()
        table.add_row(Text("all"), *_cells(summary.overall), style="bold")
    return table


def _cells(group: Group) -> list[str]:
    return [
        f"{group.rollouts:,}",
        percent(group.acc, group.rollouts),
        percent(group.ncr, group.rollouts),
        number(group.tpn, group.rollouts, 1),
        number(group.reward, group.rollouts, 3),
    ]


def status_lines(group: Group) -> list[str]:
    """Return the count of every status met, OK first, with the first reason of each."""
    met = sorted(group.statuses.items(), key=lambda item: (item[0] is not Status.OK, item[0]))
    return [f"{status} {count:,}" + _example(group.messages.get(status)) for status, count in met]


def _example(message: str | None) -> str:
    return f"  (the first: {one_line(message, 200)})" if message else ""


# MERGED A file of rollouts through a client, in bounded memory: read, score, write, count up.

# What is in memory at a time, and what the client cuts into requests: enough to keep several
# requests in flight and all cores busy.
CHUNK_ROLLOUTS = 4096
CHUNK_CHARS = 32 << 20


class ScoreBatch(Protocol):
    """What scores a batch: the ``score`` of a client with everything else filled in."""

    def __call__(
        self, rollouts: list[Rollout], /, *, progress: Callable[[int, int], None]
    ) -> ScoredBatch: ...


@dataclass(frozen=True, slots=True)
class FileScores:
    """What became of a file: the counts, and under which identity all of it was scored."""

    summary: Summary
    identity: Identity


def score_file(
    rows: Iterable[Row],
    score_batch: ScoreBatch,
    out: RowWriter,
    data_source: Callable[[Row], str | None],
    advance_to: Callable[[int], None],
) -> FileScores:
    """Score rows chunk by chunk and write them with their scores, in order.

    Args:
        rows: rollouts, at least one.
        score_batch: scores one chunk.
        out: takes the scored rows.
        data_source: group of a row in the summary.
        advance_to: told how many rollouts are scored so far.

    Raises:
        ServerFault: a later chunk was scored under another identity than an earlier one, for
            example because the server was restarted with another dataset.
    """
    summary = Summary()
    identity: Identity | None = None

    def report(scored: int, of_chunk: int) -> None:
        advance_to(summary.overall.rollouts + scored)

    for chunk in chunks(rows):
        batch = score_batch([rollout_from_row(row) for row in chunk], progress=report)
        if identity is not None and batch.identity != identity:
            raise ServerFault(
                f"the server changed after {summary.overall.rollouts} rollouts: these were scored "
                f"under {identity}, the next under {batch.identity}; nothing was written"
            )
        identity = batch.identity
        for row, score in zip(chunk, batch, strict=True):
            out.write(scored_row(row, score))
            summary.add(data_source(row), score)
    assert identity is not None, "the reader refuses a file without a row"
    return FileScores(summary, identity)


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists that are bounded in number and in characters of response."""
    chunk: list[Row] = []
    chars = 0
    for row in rows:
        chunk.append(row)
        chars += len(row["response"])
        if len(chunk) >= CHUNK_ROLLOUTS or chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk
