"""An evaluation as one CSV file: a row for each group, fractions as in the JSON form."""

from __future__ import annotations

import os

from consensusbench.csv_rows import write_rows
from consensusbench.evaluation.evaluating import DIMENSIONS, Evaluation
from consensusbench.evaluation.figures import all_figures
from consensusbench.evaluation.measuring import Group


def write_csv(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write every group of an evaluation; the file appears complete or not at all.

    Each figure has three columns, ``NAME``, ``NAME_low`` and ``NAME_high``, empty where there is
    no value or no interval.

    Raises:
        InputError: the file cannot be written.
    """
    figures = all_figures(evaluation.settings.ks)
    heading = [
        *DIMENSIONS,
        "num_rollouts",
        "num_problems",
        "num_undecided",
        *[f"{figure.name}{end}" for figure in figures for end in ("", "_low", "_high")],
        "prevalence",
    ]
    groups = [group for breakdown in evaluation.breakdowns for group in breakdown.groups]
    rows = [_row(group, evaluation) for group in (evaluation.overall, *groups)]
    write_rows([heading, *rows], path)


def _row(group: Group, evaluation: Evaluation) -> list[object]:
    row: list[object] = [group.key.get(dimension, "") for dimension in DIMENSIONS]
    row += [group.num_rollouts, group.num_problems, group.num_undecided]
    for figure in all_figures(evaluation.settings.ks):
        estimate = figure.pick(group)
        row += [estimate.value, estimate.low, estimate.high]
    return [*row, group.nodes.consistency.prevalence]
