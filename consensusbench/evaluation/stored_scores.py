"""Scores that a rollouts file brings with it, checked against the dataset they claim to be of.

A file written by ``consensuspr score`` is not scored again.  What it says is believed, but not
that it belongs to this dataset: a score with another number of nodes is refused, because it
would be counted under the wrong nodes.
"""

from __future__ import annotations

from typing import Final

from consensuspr.data import Row
from consensuspr.errors import DataError
from consensuspr.scoring.types import Score, Status

SCORE_COLUMNS: Final = ("acc", "ncr", "matched", "status")

# Statuses under which a score says of every node whether it was found.
_LOOKED_AT_NODES: Final = frozenset((Status.OK, Status.ANSWER_UNDECIDED, Status.NO_GROUND_TRUTH))
_KNOWS_NO_NODES: Final = frozenset((Status.NO_NODES, Status.UNKNOWN_PROBLEM))
# Statuses under which no answer was judged: an acc of 0 beside one would make a failure a wrong
# answer.
_JUDGED_NO_ANSWER: Final = frozenset(
    (Status.NO_GROUND_TRUTH, Status.UNKNOWN_PROBLEM, Status.OVERSIZE, Status.INTERNAL)
)


def is_scored(row: Row, spans: bool) -> bool:
    """Say whether a row brings its scores, and where nodes were found if that is asked for."""
    if row.get("status") is None or any(column not in row for column in SCORE_COLUMNS):
        return False
    # Where no node was looked for, none has a place.
    return not spans or row.get("spans") is not None or not row["matched"]


class _Unusable(Exception):
    """Why a stored score cannot be taken; the entry point adds file and rollout."""


def stored_score(row: Row, num_nodes: int, path: str, name: str) -> Score:
    """Return the score that a row brings.

    Args:
        row: a row for which :func:`is_scored` holds.
        num_nodes: of its problem in the dataset, 0 where the dataset does not have it.
        path: the file, for messages.
        name: the rollout, for messages.

    Raises:
        DataError: a column has a wrong type, or the score was made with another dataset.
    """
    try:
        status = _status(row["status"])
        matched = _matched(row["matched"], status, num_nodes)
        acc = row["acc"]
        if acc is not None and (type(acc) not in (int, float) or acc not in (0, 1)):
            raise _Unusable(f"acc must be 0, 1 or null, got {str(acc)[:40]!r}")
        if acc is not None and status in _JUDGED_NO_ANSWER:
            raise _Unusable(f"acc must be null under status {status}, got {acc}")
        return Score(
            status,
            reward=_number(row.get("reward")),
            acc=None if acc is None else float(acc),
            ncr=sum(matched) / len(matched) if matched else None,
            num_nodes=len(matched),
            num_matched=sum(matched),
            matched=matched,
            tpn=_number(row.get("tpn")),
            spans=_spans(row.get("spans"), matched, len(row["response"])),
            answer=_text(row, "answer"),
            answer_method=_text(row, "answer_method") or "",
        )
    except _Unusable as fault:
        raise DataError(path, None, f"rollout {name[:80]!r}: {fault}") from None


def _status(value: object) -> Status:
    if not isinstance(value, str) or value not in Status.__members__:
        raise _Unusable(f"status {str(value)[:40]!r} is not a status of scores")
    return Status(value)


def _matched(value: object, status: Status, num_nodes: int) -> tuple[bool, ...]:
    hits = [] if value is None else value
    if type(hits) is not list or not all(type(hit) is bool for hit in hits):
        raise _Unusable("matched must be a list of true and false")
    looked_for = num_nodes if status in _LOOKED_AT_NODES else 0
    if len(hits) != looked_for or (status in _KNOWS_NO_NODES and num_nodes):
        raise _Unusable(
            f"it was scored {status} with {len(hits)} nodes, and its problem has {num_nodes} in "
            "this dataset; score it again with this dataset"
        )
    return tuple(hits)


def _spans(
    value: object, matched: tuple[bool, ...], num_chars: int
) -> tuple[tuple[int, int] | None, ...] | None:
    if value is None:
        return None
    wrong = _Unusable(
        "spans must hold [start, end] inside the response for each matched node, null for others"
    )
    if type(value) is not list or len(value) != len(matched):
        raise wrong
    spans: list[tuple[int, int] | None] = []
    for span, hit in zip(value, matched, strict=True):
        if span is None and not hit:
            spans.append(None)
            continue
        if type(span) is not list or [type(end) for end in span] != [int, int] or not hit:
            raise wrong
        if not 0 <= span[0] <= span[1] <= num_chars:
            raise wrong
        spans.append((span[0], span[1]))
    return tuple(spans)


def _number(value: object) -> float | None:
    """Return a figure that is only carried through, none where it holds something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _text(row: Row, column: str) -> str | None:
    """Return a column that is not of the format, hence none where it holds something else."""
    value = row.get(column)
    return value if isinstance(value, str) else None
