"""Datasets of any size, written row by row.

The content of a pool of generated problems repeats; ids do not, and come in no order.  Loading
costs the same as if all were different: nothing is shared between problems but by deriving,
which looks at fewer problems at a time than the pool has.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import texts
from benchmarks.suites.problems.names import problem_id
from consensuspr.data import JsonRows, open_writer

POOL = 5577

# Prime, and no divisor of any size that is measured: steps of it visit every number once.
_STRIDE = 7919


def pool(seed: int, largest: int) -> list[dict[str, Any]]:
    """Return generated problems with their equal forms stored, for datasets up to a size."""
    return texts.problems(min(POOL, largest), seed)


def content(problems: list[dict[str, Any]], number: int, count: int) -> dict[str, Any]:
    """Return the row of the pool that a problem of a dataset of ``count`` repeats."""
    return problems[number * pow(_STRIDE, -1, count) % count % len(problems)]


def write(path: Path, problems: list[dict[str, Any]], count: int, *, stored: bool) -> Path:
    """Write a dataset in the format of the path's suffix; in memory is never more than the pool.

    Args:
        path: where to.
        problems: the pool.
        count: rows.
        stored: whether the equal forms stay.
    """
    bare = [row if stored else _without_forms(row) for row in problems]
    with open_writer(path) as out:
        if isinstance(out, JsonRows):
            # The rest of a row is the same text each time it comes.
            rest = [json.dumps({**row, "problem_id": ""}, ensure_ascii=False) for row in bare]
            tails = [line.replace('{"problem_id": ""', "", 1).encode() for line in rest]
            for number, tail in zip(_numbers(count), itertools.cycle(tails), strict=False):
                out.write_lines(b'{"problem_id": "%s"%s\n' % (problem_id(number).encode(), tail))
        else:
            for number, row in zip(_numbers(count), itertools.cycle(bare), strict=False):
                out.write({**row, "problem_id": problem_id(number)})
    return path


def _numbers(count: int) -> Iterator[int]:
    return (position * _STRIDE % count for position in range(count))


def _without_forms(row: dict[str, Any]) -> dict[str, Any]:
    nodes = [{k: v for k, v in node.items() if k != "derived"} for node in row["nodes"]]
    return {**row, "nodes": nodes}
