"""The evaluation of scored rollouts: one group of all, and groups by model, source, difficulty.

The values are made to be shown: the terminal's tables, JSON, CSV, LaTeX and the report read the
same :class:`Evaluation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from consensusbench.evaluation.bootstrap import REPLICATES
from consensusbench.evaluation.columns import UNKNOWN, Columns, columns_of, label_order
from consensusbench.evaluation.measuring import Group, Settings, measure
from consensusbench.evaluation.scored_types import ScoredSet
from consensuspr.errors import InputError
from consensuspr.version import VERSION

DIMENSIONS: Final = ("model", "source", "difficulty")

# Changes when a key of the JSON form is renamed, removed or gets another meaning.
SCHEMA: Final = "consensusbench.evaluation/1"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Groups of one kind.

    Attributes:
        by: dimensions, one or two of :data:`DIMENSIONS`; the keys of each group.
        groups: in the order of their labels, difficulties from easy to hard.
    """

    by: tuple[str, ...]
    groups: tuple[Group, ...]

    def to_json(self) -> dict[str, object]:
        """Return the groups ready for ``json.dumps``."""
        return {"by": list(self.by), "groups": [group.to_json() for group in self.groups]}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What some rollouts are worth on a dataset.

    Attributes:
        settings: how figures were made.
        overall: all rollouts.
        breakdowns: by model, source, difficulty, as asked for.
        dataset: path of the dataset, as it was given.
        files: of rollouts, as they were given.
        identity: what rollouts were scored under; None where all brought their scores.
        num_stored: rollouts that brought their scores.
        skipped_rows: bad rows that were passed over.
        num_problems_without_rollouts: problems of the dataset that nobody answered.
        tokenizer: what counted tokens where rollouts did not say; None for nothing.
        num_tokenized: rollouts whose length it counted.
        messages: what the first rollout of each status other than OK was told.
    """

    settings: Settings
    overall: Group
    breakdowns: tuple[Breakdown, ...]
    dataset: str
    files: tuple[str, ...]
    identity: dict[str, object] | None
    num_stored: int
    skipped_rows: int
    num_problems_without_rollouts: int
    tokenizer: str | None
    num_tokenized: int
    messages: dict[str, str]

    def breakdown(self, *by: str) -> Breakdown | None:
        """Return the groups by exactly these dimensions; None where there are none."""
        return next((one for one in self.breakdowns if one.by == by), None)

    def to_json(self) -> dict[str, object]:
        """Return everything ready for ``json.dumps``; ``docs/evaluation.md`` names the keys."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "dataset": self.dataset,
            "files": list(self.files),
            "identity": self.identity,
            "num_stored": self.num_stored,
            "skipped_rows": self.skipped_rows,
            "num_problems_without_rollouts": self.num_problems_without_rollouts,
            "tokenizer": self.tokenizer,
            "num_tokenized": self.num_tokenized,
            "messages": self.messages,
            "ks": list(self.settings.ks),
            "confidence": self.settings.confidence,
            "seed": self.settings.seed,
            "replicates": REPLICATES,
            "overall": self.overall.to_json(),
            "breakdowns": [one.to_json() for one in self.breakdowns],
        }


def evaluate(
    scored: ScoredSet,
    *,
    dataset: str = "",
    by: Sequence[str] = DIMENSIONS,
    settings: Settings | None = None,
) -> Evaluation:
    """Evaluate scored rollouts.

    Args:
        scored: at least one rollout.
        dataset: its path, to be told.
        by: dimensions to group by.  With ``model`` among them and several models there, the
            others are given for each model: a mean over unlike models is nobody's.
        settings: None for the default ones.

    Raises:
        InputError: a dimension is unknown or a setting is out of its range.
    """
    settings = settings or Settings()
    check(by, settings)
    columns, problem_ids = columns_of(scored)
    return Evaluation(
        settings=settings,
        overall=measure(columns, problem_ids, {}, settings),
        breakdowns=tuple(
            Breakdown(dimensions, groups)
            for dimensions in _breakdowns(columns, by)
            if (groups := _groups(columns, problem_ids, dimensions, settings))
        ),
        dataset=dataset,
        files=scored.files,
        identity=None if scored.identity is None else asdict(scored.identity),
        num_stored=scored.num_stored,
        skipped_rows=scored.skipped_rows,
        num_problems_without_rollouts=len(scored.problems.keys() - set(problem_ids)),
        tokenizer=scored.tokenizer,
        num_tokenized=scored.num_tokenized,
        messages={status.value: message for status, message in scored.messages.items()},
    )


def check(by: Sequence[str], settings: Settings) -> None:
    """Refuse settings that are out of their range, before anything is scored for them.

    Raises:
        InputError: a dimension is unknown or a setting is out of its range.
    """
    for dimension in by:
        if dimension not in DIMENSIONS:
            known = ", ".join(DIMENSIONS)
            raise InputError(f"groups are by {known}, not by {dimension!r}")
    if not 0 < settings.confidence < 1:
        raise InputError(f"the confidence must be above 0 and below 1, got {settings.confidence}")
    if settings.seed < 0:
        raise InputError(f"the seed must be 0 or more, got {settings.seed}")
    if not settings.ks or min(settings.ks) < 1 or list(settings.ks) != sorted(set(settings.ks)):
        raise InputError(f"k must be distinct, ascending and 1 or more, got {settings.ks}")


def _breakdowns(columns: Columns, by: Sequence[str]) -> list[tuple[str, ...]]:
    crossed = "model" in by and len(np.unique(columns.model)) > 1
    return [
        ("model", dimension) if crossed and dimension != "model" else (dimension,)
        for dimension in DIMENSIONS
        if dimension in by
    ]


def _groups(
    columns: Columns, problem_ids: tuple[str, ...], by: tuple[str, ...], settings: Settings
) -> tuple[Group, ...]:
    """Return the groups of one kind; none where no rollout has a label to group by."""
    labels = [getattr(columns, dimension) for dimension in by]
    if all((column == UNKNOWN).all() for column in labels[-1:]):
        return ()
    found = sorted(
        set(zip(*[column.tolist() for column in labels], strict=True)),
        key=lambda labels_of: [label_order(label) for label in labels_of],
    )
    groups = []
    for key in found:
        wanted = np.logical_and.reduce(
            [column == label for column, label in zip(labels, key, strict=True)]
        )
        groups.append(
            measure(columns.where(wanted), problem_ids, dict(zip(by, key, strict=True)), settings)
        )
    return tuple(groups)
