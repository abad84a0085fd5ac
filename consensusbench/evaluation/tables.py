"""Tables of evaluations, comparisons and agreement, and the notes below them.

Shares are in percent with one decimal, as in the paper; JSON keeps fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from consensusbench.evaluation.estimates import ONE_PROBLEM
from consensusbench.evaluation.metrics import (
    MIN_PROBLEMS,
    ONE_CLASS,
    REASONING,
    Evaluation,
    GroupMetrics,
)
from consensusbench.evaluation.paired import Comparison, PairedDifference, PairedGroup
from consensusbench.tables import (
    ABSENT,
    Cell,
    Column,
    Row,
    Table,
    Value,
    named,
    number,
    percent,
    words,
)
from consensuspr.console import count_of, one_line
from consensuspr.scoring.types import Status

if TYPE_CHECKING:  # at run time this would load the core, for --help too
    from consensusbench.evaluation.agreement import Agreement

ALL: Final = "all"
# With more groups than this, those of two dimensions have a table of their own.
MAX_ROWS: Final = 24
# Share of right rollouts lowered by the guard from which on a budget does not fit the rollouts.
MAX_RIGHT_LOWERED: Final = 0.01
# Human nodes without a partner that fit a screen; --json has all.
_SHOWN_MISSED: Final = 10

# How the figures and counts of a group are shown, by name.
_COLUMNS: Final[dict[str, Column]] = {
    "num_rollouts": number("Rollouts"),
    "num_problems": number("Problems"),
    "num_right": number("Right"),
    "num_wrong": number("Wrong"),
    "num_without_match": number("No match"),
    "acc": percent("Acc"),
    "ncr": percent("NCR"),
    "ncr_without_final": percent("NCR without final nodes"),
    "ncr_raw": percent("NCR without guard"),
    "ncr_paper": percent("NCR of the paper"),
    "right_lowered": percent("Right lowered by guard"),
    "d_ncr": percent("D_NCR"),
    "auroc": percent("AUROC"),
    "aucpr": percent("AUCPR"),
    "within": percent("AUROC within problems"),
    "auroc_paper": percent("AUROC of the paper"),
    "within_paper": percent("... within problems"),
    "length_within": percent("Length within problems"),
    "tpn": number("TPN", decimals=1),
    "tpn_pooled": number("TPN pooled", decimals=1),
    "tokens": number("Tokens", decimals=1),
    "chars": number("Characters", decimals=1),
}
_AGAINST_ACC: Final = ("d_ncr", "auroc", "aucpr", "within")
_SHARE: Final = percent("")


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables: results, other NCR, NCR against Acc with and without final nodes, lengths.

    With many groups those of two dimensions come first, in a table of their own.
    """
    overall = evaluation.overall
    figures, sizes = overall.figures, ["num_rollouts", "num_problems"]
    if {figures["acc"].count, figures["ncr"].count} != {overall.num_rollouts}:
        sizes += ["acc.count", "ncr.count"]
    results = [*sizes, "acc", *(f"pass@{k}" for k in evaluation.settings.ks), "ncr"]
    others = ["ncr_without_final"] + ["ncr_raw", "right_lowered"] * ("ncr_raw" in figures)
    others += ["ncr_paper", "auroc_paper", "within_paper"]
    lengths = ["tpn", "tpn_pooled", "tokens"] if figures["tokens"].count else []
    tables, models = [], evaluation.breakdown("model")
    # With one source the groups of a model would be the models again.
    parts = [
        part
        for part in evaluation.breakdowns
        if len(part.by) == 1 or models is None or len(part.groups) > len(models.groups)
    ]
    if sum(len(part.groups) for part in parts) > MAX_ROWS:
        pairs = [[overall], *(part.groups for part in parts if len(part.by) > 1)]
        if len(pairs) > 1:
            tables.append(_groups_table("Answers and nodes, groups of a model", pairs, results))
        parts = [part for part in parts if len(part.by) == 1]
    main = [[overall], *(part.groups for part in parts)]
    return [
        *tables,
        _groups_table("Answers and nodes", main, results),
        _groups_table("Other ways to count NCR", main, others),
        _groups_table("NCR against Acc", main, ["num_right", "num_wrong", *_AGAINST_ACC]),
        _groups_table(
            "NCR against Acc, without the nodes that state the final answer",
            main,
            [*_AGAINST_ACC, "length_within"],
            suffix="_without_final",
        ),
        _groups_table(
            "Tokens per node, and length", main, ["num_without_match", *lengths, "chars"]
        ),
    ]


def _groups_table(
    caption: str,
    sections: Sequence[Sequence[GroupMetrics]],
    names: Sequence[str],
    suffix: str = "",
) -> Table:
    """Return a table of groups; figures of the paper's own NCR only if they differ overall."""
    overall = sections[0][0].figures
    shown = [name for name in names if "paper" not in name or f"{name}{suffix}" in overall]
    columns = [words("Group"), *map(_column, shown)]
    rows = [
        [[label_of(group.key), *(_value(group, name, suffix) for name in shown)] for group in part]
        for part in sections
    ]
    return Table(caption, columns, rows, bold=0)


def _column(name: str) -> Column:
    if name.startswith("pass@"):
        return percent(name)
    of, _, count = name.partition(".")
    return number(f"With {_COLUMNS[of].heading.removesuffix(' %')}") if count else _COLUMNS[name]


def _value(group: GroupMetrics, name: str, suffix: str) -> Value:
    """Return a figure or a count of a group; ``NAME.count`` is how many rollouts have the figure.

    A figure over some nodes has their suffix.
    """
    if name.startswith("num_"):
        return getattr(group, name)
    of, _, count = name.partition(".")
    figure = group.figures.get(f"{of}{suffix}", group.figures.get(of))
    return figure.count if figure and count else figure


def label_of(key: dict[str, str], separator: str = " · ") -> str:
    """Return the name of a group."""
    return separator.join(map(one_line, key.values())) or ALL


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Return the notes below the tables, one line each."""
    return [*_about_rollouts(evaluation), *_about_figures(evaluation)]


def _about_rollouts(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    for status, count in overall.statuses.items():
        if status != Status.OK:
            message = evaluation.messages.get(status)
            first = f"  (first: {one_line(message, 200)})" if message else ""
            yield f"{status} {count:,}{first}"
    if overall.num_undecided:
        yield (
            f"{count_of(overall.num_undecided, 'answer')} could not be decided and count as wrong; "
            f"if all were right, Acc would be {_shown(overall.acc_if_undecided_were_right)}"
        )
    if unjudged := overall.num_rollouts - overall.figures["acc"].count:
        yield f"{count_of(unjudged, 'rollout has', 'rollouts have')} no Acc; see the statuses"
    if evaluation.skipped_rows:
        yield f"{count_of(evaluation.skipped_rows, 'bad row')} skipped"
    if missing := evaluation.num_problems_without_rollouts:
        yield f"{count_of(missing, 'problem')} of the dataset have no rollouts and are left out"
    if evaluation.num_stored:
        yield f"{count_of(evaluation.num_stored, 'rollout')} with scores in the file"


def _about_figures(evaluation: Evaluation) -> Iterator[str]:
    overall, figures = evaluation.overall, evaluation.overall.figures
    if reasoning := evaluation.breakdown(*REASONING):
        (own,) = reasoning.groups
        left_out = count_of(overall.num_rollouts - own.num_rollouts, "rollout")
        yield (
            f"{label_of(own.key)}: without {left_out} that run a Python program or refer to a "
            "given solution"
        )
    models = evaluation.breakdown("model")
    for group in (overall, *(models.groups if models else ())):
        for name, (count, problems) in group.left_out.items():
            k = name.removeprefix("pass@")
            yield (
                f"{name} of {label_of(group.key)} leaves out {count:,} of "
                f"{group.num_problems:,} problems, which have fewer than "
                f"{count_of(int(k), 'rollout')}: " + named(problems, count)
            )
    if missing := overall.num_rollouts - figures["tokens"].count:
        yield (
            f"{count_of(missing, 'rollout has', 'rollouts have')} no length in tokens; set "
            "--tokenizer, or add num_tokens to the rollouts"
        )
    if "ncr_raw" in figures:
        yield (
            f"without the guard NCR is {_shown(figures['ncr_raw'].value)}, "
            f"AUROC {_shown(figures['auroc_raw'].value)}"
        )
        lowered = figures["right_lowered"].value
        if lowered is not None and lowered > MAX_RIGHT_LOWERED:
            yield (
                f"warning: the guard lowers {_shown(lowered)} of the right rollouts; add budgets "
                "if problems have none (consensusbench build --budgets)"
            )
    if "ncr_paper" in figures:
        yield (
            "NCR of the paper (no statements, no guard): "
            f"{_shown(figures['ncr_paper'].value)}, AUROC {_shown(figures['auroc_paper'].value)}"
        )
    for name, label in (("auroc", "AUROC"), ("within", "AUROC within problems")):
        figure = figures[name]
        if figure.value is not None and figure.problems < MIN_PROBLEMS:
            yield f"{label} of {count_of(figure.problems, 'problem')} says little"
    if figures["acc"].no_interval == ONE_PROBLEM:
        yield "no intervals: there is a single problem"
        return
    level = f"{100 * evaluation.settings.confidence:g} %"
    yield f"in brackets: {level} intervals, clustered by problem"
    reason = figures["auroc"].no_interval
    if reason and reason != ONE_CLASS:
        yield f"AUROC of {ALL} has no interval: {reason}"


def _shown(share: float | None) -> str:
    return f"{_SHARE.show(share)} %"


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return a table of differences for all problems and for each group of them."""
    return [_comparison_table(group) for group in (comparison.overall, *comparison.groups)]


def _comparison_table(group: PairedGroup) -> Table:
    headings = ("Baseline", "Candidate", "Difference", "Relative", "p", "Better/equal/worse")
    return Table(
        f"{label_of(group.key, ', ')}: {count_of(group.num_problems, 'problem')}",
        [words("Measure"), *map(number, headings)],
        [[_comparison_row(row) for row in group.differences if row.delta.value is not None]],
    )


def _comparison_row(difference: PairedDifference) -> Row:
    column, delta = _COLUMNS[difference.measure], difference.delta

    def signed(value: float | None, scale: float = column.scale) -> str:
        return ABSENT if value is None else f"{scale * value:+,.1f}"

    relative, p_value = difference.relative, difference.p_value
    interval = "" if delta.low is None else f"({signed(delta.low)} to {signed(delta.high)})"
    return [
        column.heading.replace("without final nodes", "w/o final"),
        column.show(difference.baseline),
        column.show(difference.candidate),
        Cell(signed(delta.value), note=interval),
        ABSENT if relative is None else f"{signed(relative, 100.0)} %",
        ABSENT if p_value is None else f"{p_value:.4f}",
        f"{difference.wins:,}/{difference.ties:,}/{difference.losses:,}",
    ]


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield the notes below the tables."""
    for side, (count, ids) in comparison.left_out.items():
        if count:
            yield (
                f"{count:,} problems that only the {side} answered are left out: "
                f"{named(ids, count)}"
            )
    for difference in comparison.overall.differences:
        if 0 < difference.num_unpaired < comparison.overall.num_problems:
            yield (
                f"{_COLUMNS[difference.measure].heading.removesuffix(' %')}: "
                f"{count_of(difference.num_unpaired, 'problem')} left out, because one of the two "
                "has no value"
            )
    if comparison.num_undecided:
        yield f"{comparison.num_undecided:,} answers could not be decided and count as wrong"
    yield (
        f"in brackets: {100 * comparison.confidence:g} % intervals over problems; "
        "fewer tokens and a lower TPN count as better"
    )


def agreement_table(found: Agreement) -> Table:
    """Return consistency, recall and precision, over all nodes and over problems."""
    rows = [
        ["Consistency", found.consistency, found.consistency_by_problem],
        ["Recall", found.recall, found.recall_by_problem],
        ["Precision", found.precision, found.precision_by_problem],
    ]
    return Table("", [words(""), percent("All nodes"), percent("Mean over problems")], [rows])


def agreement_notes(found: Agreement, confidence: float) -> Iterator[str]:
    """Yield the notes below the table."""
    yield (
        f"{count_of(found.num_pairs, 'pair')}: {count_of(found.num_ours, 'node')} of the dataset "
        f"against {found.num_theirs:,} reference nodes, in "
        f"{count_of(len(found.problems), 'problem')}"
    )
    if count := found.num_only_theirs:
        yield (
            f"{count_of(count, 'problem')} of the reference not in the dataset, left out: "
            + named(found.only_theirs, count)
        )
    if found.num_only_ours:
        yield f"{count_of(found.num_only_ours, 'problem')} not in the reference, left out"
    if found.num_without_nodes:
        yield f"{count_of(found.num_without_nodes, 'problem')} without nodes in either, left out"
    missed = [
        (problem.problem_id, label) for problem in found.problems for _, label in problem.missed
    ]
    if missed:
        yield f"reference nodes without a partner ({len(missed):,}; --json has all):"
    for problem_id, label in missed[:_SHOWN_MISSED]:
        yield f"  {one_line(problem_id)}: {one_line(label, 80)}"
    if found.recall.no_interval:
        yield f"no intervals: {found.recall.no_interval}"
    else:
        yield f"in brackets: {100 * confidence:g} % intervals, clustered by problem"
