"""A file of rollouts through a client, in bounded memory: read, score, write, count up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from consensuspr.cli.summary import Summary
from consensuspr.data import Row, RowWriter
from consensuspr.errors import ServerFault
from consensuspr.scoring import Identity, Rollout, rollout_from_row, scored_row

if TYPE_CHECKING:  # at run time this would load gRPC
    from consensuspr.client import ScoredBatch

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
