"""The sets of rollouts, and how each is split into folds.

A fold holds some rollouts out: all of one model, or, where one model wrote the set, every
n-th rollout of each problem.  Nodes are made from the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from consensuspr.data import Row, open_writer, read_rollouts

# GPT-3's rollouts hold calculator calls, which no other model writes.
_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, slots=True)
class RolloutSet:
    """Rollouts that are evaluated together.

    Attributes:
        name: row of the table.
        files: below the folder of outside data.
        folds: 0: leave one model out; n: leave every n-th rollout of a problem out.
        min_rollouts, min_support: where they are not the defaults.
        variants: how many of the variants are measured.
    """

    name: str
    files: tuple[str, ...]
    folds: int = 0
    min_rollouts: int = 3
    min_support: int = 2
    variants: int = 1


SETS = (
    RolloutSet(
        "GSM8K",
        (
            "data/rollouts/gsm8k_gpt3.jsonl.gz",
            "data/rollouts/gsm8k_gpt4o_mini_and_older.jsonl.gz",
        ),
        variants=3,
    ),
    RolloutSet("MATH", ("data/rollouts/math100_qwen25math.jsonl.gz",), folds=4),
    RolloutSet(
        "AIME 2024",
        (
            "data/rollouts/aime24_gpt4o_claude35.jsonl.gz",
            "data/rollouts/aime24_qwen3_32b.jsonl.gz",
        ),
    ),
    RolloutSet(
        "Olympiad, very long", ("data/rollouts/olympiad_gptoss120b_very_long.jsonl.gz",), folds=4
    ),
    RolloutSet(
        "MATH, long (one source)",
        ("data/rollouts/math_r1distill_long.jsonl.gz",),
        min_rollouts=1,
        min_support=1,
    ),
)


@dataclass(frozen=True, slots=True)
class Fold:
    """One split of a set.

    Attributes:
        sources: file of the rollouts that nodes are made from.
        held_out: file of the others.
    """

    sources: Path
    held_out: Path


def read_set(one: RolloutSet, shared: Path) -> list[Row]:
    """Return the rollouts of a set, calculator calls taken out."""
    return [
        row | {"response": _CALCULATOR.sub("", row["response"])}
        for file in one.files
        for row in read_rollouts(shared / file)
    ]


def folds_of(one: RolloutSet, rows: list[Row], folder: Path) -> Iterator[Fold]:
    """Write the folds of a set, one at a time, and yield where they are."""
    for number, held in enumerate(_splits(one, rows)):
        fold = Fold(folder / f"sources-{number}.jsonl", folder / f"held-out-{number}.jsonl")
        with open_writer(fold.sources) as sources, open_writer(fold.held_out) as held_out:
            for row, is_out in zip(rows, held, strict=True):
                (held_out if is_out else sources).write(row)
        yield fold
        fold.sources.unlink()
        fold.held_out.unlink()


def _splits(one: RolloutSet, rows: list[Row]) -> Iterator[list[bool]]:
    """Yield for each fold which rollouts it holds out."""
    if one.folds:
        places = _places(rows)
        for fold in range(one.folds):
            yield [place % one.folds == fold for place in places]
    else:
        for model in sorted({row["model"] for row in rows}):
            yield [row["model"] == model for row in rows]


def _places(rows: list[Row]) -> list[int]:
    """Return for each rollout how many of its problem came before it."""
    seen: Counter[str] = Counter()
    places = []
    for row in rows:
        places.append(seen[row["problem_id"]])
        seen[row["problem_id"]] += 1
    return places
