"""The classes of the paper's figure 1, counted by model and source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from consensusbench.diagnosis import Diagnosis
from consensusbench.diagnosis.diagnose import share
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.shares import Part, share_bars
from consensusbench.report.page import Scope, Section
from consensusbench.report.table import Column, Table, count, percent, text

if TYPE_CHECKING:
    from consensusbench.diagnosis import DiagnosisReport

_HINTS = {
    Diagnosis.ALMOST_CORRECT: "a wrong answer after nearly all of the nodes",
    Diagnosis.FORMAT_ERROR: "a right answer that is not where or as it was asked for",
    Diagnosis.DIRECT_ANSWER: "a right answer in a few words, without the nodes",
    Diagnosis.REDUNDANT_THINKING: "a right answer after far more text than is usual",
    Diagnosis.SOUND: "a right answer, none of the former",
    Diagnosis.WRONG: "a wrong answer, none of the former",
    Diagnosis.UNSCORED: "no score to judge by; its share is of all rollouts",
}

_NONE = "(none)"

# Bars beyond these would be a table, which stands below anyway.
MAX_BARS = 12

_PARTS = {
    Diagnosis.SOUND: Part("sound", "S", "n3"),
    Diagnosis.REDUNDANT_THINKING: Part("redundant thinking", "R", "n2"),
    Diagnosis.DIRECT_ANSWER: Part("direct answer", "D", "n5"),
    Diagnosis.FORMAT_ERROR: Part("format error", "F", "n4"),
    Diagnosis.ALMOST_CORRECT: Part("almost correct", "A", "n1"),
    Diagnosis.WRONG: Part("wrong", "W", "n6"),
    Diagnosis.UNSCORED: Part("unscored", "U", "n7"),
}


def class_name(diagnosis: Diagnosis) -> str:
    """Return a class as a person reads it."""
    return diagnosis.value.replace("_", " ")


def diagnosis_section(report: DiagnosisReport) -> Section:
    """Return the share and the number of each class."""
    shown = [one for one in Diagnosis if one is not Diagnosis.UNSCORED or report.total[one]]
    by_model: dict[str, Counter[Diagnosis]] = {}
    for (model, _), counts in report.groups.items():
        by_model.setdefault(model, Counter()).update(counts)
    rows = [((model or _NONE,), counts) for model, counts in by_model.items()]
    if len(rows) > 1:
        rows.append((("all",), report.total))
    tables = [_table("Classes by model", ("model",), rows, shown)]
    if len({source for _, source in report.groups}) > 1:
        both = [
            ((model or _NONE, source or _NONE), counts)
            for (model, source), counts in report.groups.items()
        ]
        tables.append(_table("Classes by model and source", ("model", "source"), both, shown))
    thresholds = ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in asdict(report.thresholds).items()
    )
    return Section(
        "diagnosis",
        "Diagnosis",
        (
            "What an outcome reward misjudges, each rollout in one class (figure 1 of the paper). "
            "Small: the number of rollouts. The rollouts below can be filtered by these classes.",
        ),
        scopes=(Scope("all", "All models", (_bars(rows, shown),)),),
        tables=tuple(tables),
        notes=(
            "; ".join(f"{class_name(one)}: {_HINTS[one]}" for one in shown) + ".",
            f"Thresholds: {thresholds}.",
            "A format error shows only where the rollouts were asked to follow a rule for answers "
            "that is stricter than auto (--answer-rule).",
        ),
    )


def _bars(
    groups: Sequence[tuple[tuple[str, ...], Counter[Diagnosis]]], shown: Sequence[Diagnosis]
) -> Chart:
    drawn = sorted(groups, key=lambda group: -group[1].total())[:MAX_BARS]
    parts = {one: part for one, part in _PARTS.items() if one in shown}
    return share_bars(
        "diagnosis",
        "Classes by model",
        "An outcome reward pays S, R and D alike, and F, A and W nothing.",
        tuple(parts.values()),
        [(key[0], [counts[one] for one in parts]) for key, counts in drawn],
    )


def _table(
    caption: str,
    names: Sequence[str],
    groups: Sequence[tuple[tuple[str, ...], Counter[Diagnosis]]],
    shown: Sequence[Diagnosis],
) -> Table:
    columns = (
        *(Column(name, numeric=False) for name in names),
        Column("rollouts"),
        *(Column(f"{class_name(one)}, %", hint=_HINTS[one]) for one in shown),
    )
    rows = tuple(
        (
            *(text(part) for part in key),
            count(counts.total()),
            *(percent(share(counts, one), f"{counts[one]:,}") for one in shown),
        )
        for key, counts in groups
    )
    return Table(caption, columns, rows, sortable=len(rows) > 2)
