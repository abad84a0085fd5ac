"""The classes of the paper's figure 1, counted by model and source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from consensusbench.diagnosis import Diagnosis
from consensusbench.diagnosis.diagnose import share
from consensusbench.evaluation.columns import UNKNOWN, label_order
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.shares import Part, share_bars
from consensusbench.report.page import Scope, Section
from consensusbench.report.table import Column, Table, count, percent, text

if TYPE_CHECKING:
    from consensusbench.diagnosis import DiagnosisReport
    from consensusbench.diagnosis.classes import Thresholds

_HINTS = {
    Diagnosis.ALMOST_CORRECT: "a wrong answer after nearly all of the nodes",
    Diagnosis.FORMAT_ERROR: "a right answer that is not where or as it was asked for",
    Diagnosis.DIRECT_ANSWER: "a right answer in a few words, without the nodes",
    Diagnosis.REDUNDANT_THINKING: "a right answer after far more text than is usual",
    Diagnosis.SOUND: "a right answer, none of the former",
    Diagnosis.WRONG: "a wrong answer, none of the former",
    Diagnosis.UNSCORED: "no score to judge by; its share is of all rollouts",
}

# More bars than this are longer than a page that anyone scrolls through.
MAX_BARS = 60

_PARTS = {
    Diagnosis.SOUND: Part("sound", "S", "c-sound"),
    Diagnosis.REDUNDANT_THINKING: Part("redundant thinking", "R", "c-redundant"),
    Diagnosis.DIRECT_ANSWER: Part("direct answer", "D", "c-direct"),
    Diagnosis.FORMAT_ERROR: Part("format error", "F", "c-format"),
    Diagnosis.ALMOST_CORRECT: Part("almost correct", "A", "c-almost"),
    Diagnosis.WRONG: Part("wrong", "W", "c-wrong"),
    Diagnosis.UNSCORED: Part("unscored", "U", "c-unscored"),
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
    rows = [((model or UNKNOWN,), by_model[model]) for model in sorted(by_model, key=_order)]
    if len(rows) > 1:
        rows.append((("all",), report.total))
    tables = [_table("Classes by model", ("model",), rows, shown)]
    if len({source for _, source in report.groups}) > 1:
        both = [
            ((model or UNKNOWN, source or UNKNOWN), counts)
            for (model, source), counts in sorted(
                report.groups.items(), key=lambda one: tuple(map(_order, one[0]))
            )
        ]
        tables.append(_table("Classes by model and source", ("model", "source"), both, shown))
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
            *(_meanings(report.thresholds)[one] for one in shown),
            "These NCRs are without final nodes, where a problem has others.",
        ),
    )


def _order(label: str) -> tuple[int, int, str]:
    return label_order(label or UNKNOWN)


def _meanings(limits: Thresholds) -> dict[Diagnosis, str]:
    """Return for each class a sentence that says what is put into it, with its thresholds."""
    return {
        Diagnosis.ALMOST_CORRECT: "Almost correct: a wrong answer with an NCR of "
        f"{limits.almost_ncr:g} or more and {limits.almost_hits:g} nodes reached or more.",
        Diagnosis.FORMAT_ERROR: "Format error: a right answer that is not where or as it was asked "
        "for; it shows only where the rule asked for is stricter than auto (--answer-rule).",
        Diagnosis.DIRECT_ANSWER: "Direct answer: a right answer with an NCR of "
        f"{limits.direct_ncr:g} or less, in {limits.direct_chars:g} characters or less, or in "
        f"{limits.direct_chars_per_node:g} or less for each node of its problem.",
        Diagnosis.REDUNDANT_THINKING: "Redundant thinking: a right answer with "
        f"{limits.redundant_per_node:g} times the usual length for each node reached and "
        f"{limits.redundant_length:g} times the usual length in all, or one that goes on for "
        f"{limits.redundant_tail:g} times the usual length after the final answer's node.",
        Diagnosis.SOUND: "Sound: a right answer that is none of the former.",
        Diagnosis.WRONG: "Wrong: a wrong answer that is none of the former.",
        Diagnosis.UNSCORED: "Unscored: no score to judge by; the share is of all rollouts.",
    }


def _bars(
    groups: Sequence[tuple[tuple[str, ...], Counter[Diagnosis]]], shown: Sequence[Diagnosis]
) -> Chart:
    largest = sorted(groups, key=lambda group: -group[1].total())[:MAX_BARS]
    drawn = [group for group in groups if group in largest]
    parts = {one: part for one, part in _PARTS.items() if one in shown}
    chart = share_bars(
        "diagnosis",
        "Classes by model",
        "An outcome reward pays S, R and D alike, and F, A and W nothing.",
        tuple(parts.values()),
        [(key[0], [counts[one] for one in parts]) for key, counts in drawn],
    )
    left_out = len(groups) - len(drawn)
    if not left_out:
        return chart
    return replace(
        chart,
        notes=(
            f"{left_out:,} models with fewer rollouts are left out here; the table below has all.",
        ),
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
