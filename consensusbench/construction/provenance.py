"""How a dataset was made, recorded in each of its rows.

In each row and not beside the file: a file beside is lost with the first copy, and rows of
several builds end up in one dataset.  What is the same in all rows (versions, thresholds,
prompts; some 2 KB) compresses to nothing in ``.gz`` and Parquet, and the server does not
keep it.  The layout is told in ``docs/design/construction.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.values import Group
from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.data import Row
from consensuspr.scoring.answers import ANSWER_VERSION
from consensuspr.version import VERSION

# Of the layout of ``metadata.construction``.
LAYOUT = 1


def extraction_provenance(
    selection: SelectionSettings, extractor: Row, sampling: Sequence[Row]
) -> Row:
    """Return what stages 1 and 2 of a build have in common for all problems.

    Args:
        selection: which rollouts were looked at.
        extractor: name, version and thresholds.
        sampling: how the rollouts were made, as far as that is known.
    """
    return {
        "consensuspr": VERSION,
        "normal_form": NORMAL_FORM_VERSION,
        "answers": ANSWER_VERSION,
        "sampling": list(sampling),
        "selection": selection.provenance(),
        "extraction": extractor,
    }


def construction_row(group: Group, refinement: Row) -> Row:
    """Return ``metadata.construction`` of a problem."""
    return {
        "layout": LAYOUT,
        "correct_rollouts": group.correct,
        "rollouts": sampled_rows(group),
        "inputs": group.inputs,
        "provenance": {**group.provenance, "refinement": refinement},
    }


def sampled_rows(group: Group) -> list[Row]:
    """Return the rollouts that were looked at, with how they were sampled where that is known."""
    return [
        {"rollout_id": one.rollout_id, "model": one.model}
        | ({"sampling": one.sampling} if one.sampling else {})
        for one in group.sampled
    ]
