"""A problem packed into bytes, and the digest over all that decides its score.

A record is three lines of compact JSON (which never holds a raw line break):

1. ``[ground_truth, data_source, num_nodes]``, read at every look-up;
2. ``[problem_id, ground_truth, [[node_id, [expression, …], [derived, …]], …]]``, the
   scoring line: all that decides a score, and what the digest is taken over;
3. ``[[label, type, is_final, support], …]``, for people.

JSON because its C encoder and decoder pack a problem in some 10 µs, and because arrays of
strings leave no freedom (no key order, no numbers): equal content gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from consensuspr.data import Node, Problem

DIGEST_VERSION = 1


class Head(NamedTuple):
    """The first line of a record."""

    ground_truth: str | None
    data_source: str
    num_nodes: int


def pack(problem: Problem) -> bytes:
    """Return the record of a problem; a node's missing derived forms count as none."""
    nodes = problem.nodes
    truth = _optional(problem.ground_truth)
    # Put together by hand: an encoder of JSON would be made anew for each line, and be asked
    # about every value of which kind it is.
    scoring = ",".join(
        [
            f"[{_string(node.node_id)},{_strings(node.expressions)},{_strings(node.derived or ())}]"
            for node in nodes
        ]
    )
    display = ",".join(
        [
            f"[{_string(node.label)},{_string(node.type)},{'true' if node.is_final else 'false'},"
            f"{'null' if node.support is None else node.support}]"
            for node in nodes
        ]
    )
    text = (
        f"[{truth},{_string(problem.data_source)},{len(nodes)}]\n"
        f"[{_string(problem.problem_id)},{truth},[{scoring}]]\n[{display}]"
    )
    return text.encode("utf-8", "surrogatepass")


def _optional(text: str | None) -> str:
    return "null" if text is None else _string(text)


def _strings(texts: Iterable[str]) -> str:
    return f"[{','.join(map(_string, texts))}]"


def read_head(record: bytes) -> Head:
    """Return the first line of a record."""
    line = record[: record.index(b"\n")]
    return Head(*json.loads(line.decode("utf-8", "surrogatepass")))


def scoring_line(record: bytes) -> bytes:
    """Return the line of a record that the digest is taken over."""
    return record.split(b"\n", 2)[1]


def read_patterns(record: bytes) -> list[list[str]]:
    """Return for each node what it is matched by: expressions, then derived forms."""
    nodes = json.loads(scoring_line(record).decode("utf-8", "surrogatepass"))[2]
    return [expressions + derived for _, expressions, derived in nodes]


def read_nodes(record: bytes) -> tuple[Node, ...]:
    """Return the nodes of a record, without their unknown keys."""
    _, scoring, display = record.decode("utf-8", "surrogatepass").split("\n", 2)
    return tuple(
        Node(
            node_id=node_id,
            expressions=tuple(expressions),
            label=label,
            type=kind,
            derived=tuple(derived),
            support=support,
            is_final=is_final,
        )
        for (node_id, expressions, derived), (label, kind, is_final, support) in zip(
            json.loads(scoring)[2], json.loads(display), strict=True
        )
    )


def content_digest(
    records: Iterable[bytes], normal_form_version: str, answer_rule: str | None
) -> str:
    """Return ``sha256:…`` over the scoring lines of records in order of their ids.

    Args:
        records: sorted by the UTF-8 bytes of the problem id.
        normal_form_version: version of the normal form that scores are made with.
        answer_rule: the rule that the dataset names, None where it names none.
    """
    digest = hashlib.sha256()
    head = ("consensuspr dataset", DIGEST_VERSION, normal_form_version, answer_rule)
    digest.update(_encode(head).encode() + b"\n")
    for record in records:
        digest.update(scoring_line(record) + b"\n")
    return f"sha256:{digest.hexdigest()}"


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# A JSON string of all but quotes, backslashes and control characters as they are.
_string = json.encoder.encode_basestring
