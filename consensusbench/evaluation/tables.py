"""Tables of evaluations, comparisons and agreement, and the notes below them.

Shares are in percent with one decimal, as in the paper; JSON keeps fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from consensusbench.evaluation.estimates import ONE_PROBLEM, Estimate
from consensusbench.evaluation.metrics import ONE_CLASS, Evaluation, GroupMetrics, NodeFigures
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

# With more groups than this, only the first table has those of two dimensions.
MAX_ROWS: Final = 24
# Share of right rollouts lowered by the guard from which on a budget does not fit the rollouts.
MAX_RIGHT_LOWERED: Final = 0.01
# Human nodes without a partner that fit a screen; --json has all.
_SHOWN_MISSED: Final = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of a table of groups, and the function that takes its value out of a group."""

    column: Column
    of: Callable[[GroupMetrics], Value]


SIZES: Final = (
    Figure(number("Rollouts"), lambda group: group.num_rollouts),
    Figure(number("Problems"), lambda group: group.num_problems),
)
WITH_ACC: Final = Figure(number("With Acc"), lambda group: group.acc.count)
WITH_NCR: Final = Figure(number("With NCR"), lambda group: group.nodes.ncr.count)
ACC: Final = Figure(percent("Acc"), lambda group: group.acc)
NCR: Final = Figure(percent("NCR"), lambda group: group.nodes.ncr)
NCR_WITHOUT_FINAL: Final = Figure(
    percent("NCR w/o final"), lambda group: group.nodes_without_final.ncr
)
NCR_RAW: Final = Figure(percent("NCR unguarded"), lambda group: group.nodes.ncr_raw)
NCR_PAPER: Final = Figure(percent("NCR, paper's"), lambda group: group.nodes.ncr_paper)
RIGHT_LOWERED: Final = Figure(percent("Right lowered by guard"), lambda group: group.right_lowered)
TPN: Final = Figure(number("TPN", decimals=1), lambda group: group.nodes.tpn)
TPN_MEDIAN: Final = Figure(number("TPN median", decimals=1), lambda group: group.nodes.tpn_median)
TPN_POOLED: Final = Figure(number("TPN pooled", decimals=1), lambda group: group.nodes.tpn_pooled)
TOKENS: Final = Figure(number("Tokens", decimals=1), lambda group: group.tokens)
CHARS: Final = Figure(number("Characters", decimals=1), lambda group: group.chars)
NO_MATCH: Final = Figure(number("No match"), lambda group: group.nodes.num_without_match)
LENGTH_WITHIN: Final = Figure(percent("length, within"), lambda group: group.length.within)


def pass_figures(ks: tuple[int, ...]) -> tuple[Figure, ...]:
    """Return a column for each k of pass@k."""

    def pick(at: int) -> Callable[[GroupMetrics], Estimate]:
        return lambda group: group.pass_at[at].estimate

    return tuple(Figure(percent(f"pass@{k}"), pick(at)) for at, k in enumerate(ks))


def _against_acc(
    nodes: Callable[[GroupMetrics], NodeFigures], has_paper: bool
) -> tuple[Figure, ...]:
    """Return how NCR over these nodes of a group goes together with Acc."""

    def paper(name: str) -> Callable[[GroupMetrics], Estimate | None]:
        return lambda group: getattr(nodes(group).consistency_paper, name, None)

    figures = (
        Figure(number("Right"), lambda group: nodes(group).consistency.num_right),
        Figure(number("Wrong"), lambda group: nodes(group).consistency.num_wrong),
        Figure(percent("Prevalence"), lambda group: nodes(group).consistency.prevalence),
        Figure(percent("D_NCR"), lambda group: nodes(group).consistency.d_ncr),
        Figure(percent("AUROC"), lambda group: nodes(group).consistency.auroc),
        Figure(percent("AUCPR"), lambda group: nodes(group).consistency.aucpr),
        Figure(percent("AUROC within"), lambda group: nodes(group).consistency.within),
    )
    if not has_paper:
        return figures
    return (
        *figures,
        Figure(percent("AUROC, paper's"), paper("auroc")),
        Figure(percent("within, paper's"), paper("within")),
    )


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables: results, NCR against Acc with and without final nodes, and lengths."""
    overall = evaluation.overall
    has_paper = overall.nodes.ncr_paper is not None
    results = [*SIZES]
    if overall.has_populations:
        results += [WITH_ACC, WITH_NCR]
    results += [ACC, *pass_figures(evaluation.settings.ks), NCR, NCR_WITHOUT_FINAL]
    if overall.nodes.consistency_raw is not None:
        results += [NCR_RAW, RIGHT_LOWERED]
    if has_paper:
        results.append(NCR_PAPER)
    lengths = (TPN, TPN_MEDIAN, TPN_POOLED, TOKENS, CHARS) if overall.tokens.count else (CHARS,)
    every = [[overall], *(one.groups for one in evaluation.breakdowns)]
    main = every
    if _is_long(evaluation):
        main = [[overall], *(one.groups for one in evaluation.breakdowns if len(one.by) == 1)]
    tables = []
    for caption, sections, figures in (
        ("Answers and nodes", every, results),
        ("NCR against Acc", main, _against_acc(lambda group: group.nodes, has_paper)),
        (
            "NCR against Acc, without the nodes that state the final answer",
            main,
            [*_against_acc(lambda group: group.nodes_without_final, has_paper), LENGTH_WITHIN],
        ),
        ("Tokens per node, and length", main, [NO_MATCH, *lengths]),
    ):
        columns = [words("Group"), *(figure.column for figure in figures)]
        rows = [
            [[label_of(group), *(figure.of(group) for figure in figures)] for group in groups]
            for groups in sections
        ]
        tables.append(Table(caption, columns, rows, bold=0))
    return tables


def _is_long(evaluation: Evaluation) -> bool:
    return sum(len(one.groups) for one in evaluation.breakdowns) > MAX_ROWS


def label_of(group: GroupMetrics) -> str:
    """Return the name of a group."""
    return " · ".join(one_line(label) for label in group.key.values()) or ALL


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Return the notes below the tables, one line each."""
    notes = [*_about_rollouts(evaluation), *_about_figures(evaluation)]
    if _is_long(evaluation):
        notes.append("groups of two dimensions are in the first table and in --json")
    return notes


def _about_rollouts(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    for status, count in overall.statuses.items():
        if status != Status.OK:
            message = evaluation.messages.get(status)
            yield f"{status} {count:,}" + (
                f"  (first: {one_line(message, 200)})" if message else ""
            )
    if overall.num_undecided:
        limit = ACC.column.show(overall.acc_if_undecided_were_right)
        yield (
            f"{count_of(overall.num_undecided, 'answer')} could not be decided and count as "
            f"wrong; if all of them were right, Acc would be {limit} %"
        )
    if unjudged := overall.num_rollouts - overall.acc.count:
        yield f"{count_of(unjudged, 'rollout has', 'rollouts have')} no Acc; see the statuses"
    if evaluation.skipped_rows:
        yield f"{count_of(evaluation.skipped_rows, 'bad row')} skipped"
    if missing := evaluation.num_problems_without_rollouts:
        yield f"{count_of(missing, 'problem')} of the dataset without rollouts, left out"
    if evaluation.num_stored:
        yield f"{count_of(evaluation.num_stored, 'rollout')} already scored, not scored again"


def _about_figures(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    models = evaluation.breakdown("model")
    for group in (overall,) if models is None else (overall, *models.groups):
        for one in group.pass_at:
            if one.num_left_out:
                yield (
                    f"pass@{one.k} of {label_of(group)} leaves out {one.num_left_out:,} of "
                    f"{group.num_problems:,} problems, which have fewer than {one.k} samples: "
                    + named(one.left_out, one.num_left_out)
                )
    if missing := overall.num_rollouts - overall.tokens.count:
        yield (
            f"{count_of(missing, 'rollout has', 'rollouts have')} no length in tokens: give "
            "--tokenizer, or num_tokens in the rollouts"
        )
    yield from _about_guard(overall)
    yield from about_paper(overall)
    if overall.acc.no_interval == ONE_PROBLEM:
        yield "no intervals: there is a single problem"
        return
    level = f"{100 * evaluation.settings.confidence:g} %"
    yield f"in brackets: {level} intervals, clustered by problem"
    reason = overall.nodes.consistency.auroc.no_interval
    if reason and reason != ONE_CLASS:
        yield f"AUROC of {ALL} has no interval: {reason}"


def _about_guard(overall: GroupMetrics) -> Iterator[str]:
    raw = overall.nodes.consistency_raw
    if raw is None:
        return
    show = NCR.column.show
    yield (
        f"without the guard NCR is {show(overall.nodes.ncr_raw.value)} %, "
        f"AUROC {show(raw.auroc.value)} %"
    )
    lowered = overall.right_lowered.value
    if lowered is not None and lowered > MAX_RIGHT_LOWERED:
        yield (
            f"warning: the guard lowers {show(lowered)} % of the right rollouts: store budgets "
            "if problems have none (consensusbench build --budgets)"
        )


def about_paper(group: GroupMetrics) -> Iterator[str]:
    """Yield the paper's own figures if they differ."""
    found, inner = group.nodes, group.nodes_without_final.consistency_paper
    if found.ncr_paper is None or found.consistency_paper is None:
        return
    show = NCR.column.show
    said = f"the paper's own NCR (no statements, no guard) is {show(found.ncr_paper.value)} %"
    if (auroc := found.consistency_paper.auroc.value) is not None:
        said += f", AUROC {show(auroc)} %"
    if inner is not None and inner.auroc.value is not None:
        said += f", without final nodes {show(inner.auroc.value)} %"
    yield said


# Each measure of a comparison is a row.
_MEASURES: Final = {
    "acc": ACC,
    "ncr": NCR,
    "ncr_without_final": NCR_WITHOUT_FINAL,
    "tpn": TPN,
    "tokens": TOKENS,
}


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return a table of differences for all problems and for each group of them."""
    return [_comparison_table(group) for group in (comparison.overall, *comparison.groups)]


def _comparison_table(group: PairedGroup) -> Table:
    title = ", ".join(one_line(label) for label in group.key.values()) or ALL
    headings = ("Baseline", "Candidate", "Difference", "Relative", "p", "Better/equal/worse")
    return Table(
        f"{title}: {count_of(group.num_problems, 'problem')}",
        [words("Measure"), *map(number, headings)],
        [[_comparison_row(one) for one in group.differences if one.delta.value is not None]],
    )


def _comparison_row(difference: PairedDifference) -> Row:
    column, delta = _MEASURES[difference.measure].column, difference.delta

    def signed(value: float | None, scale: float = column.scale) -> str:
        return ABSENT if value is None else f"{scale * value:+,.1f}"

    known = delta.low is not None and delta.high is not None
    relative, p_value = difference.relative, difference.p_value
    return [
        column.heading,
        column.show(difference.baseline),
        column.show(difference.candidate),
        Cell(
            signed(delta.value),
            note=f"({signed(delta.low)} to {signed(delta.high)})" if known else "",
        ),
        ABSENT if relative is None else f"{signed(relative, 100.0)} %",
        ABSENT if p_value is None else f"{p_value:.4f}",
        f"{difference.wins:,}/{difference.ties:,}/{difference.losses:,}",
    ]


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield the notes below the tables."""
    for who, count, ids in (
        ("baseline", comparison.num_only_baseline, comparison.only_baseline),
        ("candidate", comparison.num_only_candidate, comparison.only_candidate),
    ):
        if count:
            yield (
                f"{count:,} problems that only the {who} answered are left out: {named(ids, count)}"
            )
    for difference in comparison.overall.differences:
        if 0 < difference.num_unpaired < comparison.overall.num_problems:
            yield (
                f"{_MEASURES[difference.measure].column.heading.removesuffix(' %')}: "
                f"{count_of(difference.num_unpaired, 'problem')} left out, because one of the two "
                "has no value"
            )
    if comparison.num_undecided:
        yield f"{comparison.num_undecided:,} answers could not be decided and count as wrong"
    yield (
        f"in brackets: {100 * comparison.confidence:g} % intervals over problems; "
        "of TPN and tokens, less counts as better"
    )


def agreement_table(found: Agreement) -> Table:
    """Return consistency, recall and precision, over all nodes and over problems."""
    return Table(
        "",
        [words(""), percent("All nodes"), percent("Mean over problems")],
        [
            [
                ["Consistency", found.consistency, found.consistency_by_problem],
                ["Recall", found.recall, found.recall_by_problem],
                ["Precision", found.precision, found.precision_by_problem],
            ]
        ],
    )


def agreement_notes(found: Agreement, confidence: float) -> Iterator[str]:
    """Yield the notes below the table."""
    yield (
        f"{count_of(found.num_pairs, 'pair')} of {count_of(found.num_ours, 'node')} of the "
        f"dataset and {found.num_theirs:,} human ones, in "
        f"{count_of(len(found.problems), 'problem')}"
    )
    if count := found.num_only_theirs:
        yield (
            f"{count:,} annotated problems are not in the dataset and are left out: "
            + named(found.only_theirs, count)
        )
    if found.num_only_ours:
        yield f"{found.num_only_ours:,} problems have no human annotation and are left out"
    if found.num_without_nodes:
        yield f"{found.num_without_nodes:,} problems have no nodes in either"
    missed = [(one.problem_id, label) for one in found.problems for _, label in one.missed]
    if missed:
        yield f"human nodes without a partner ({len(missed):,}; --json has all):"
    for problem_id, label in missed[:_SHOWN_MISSED]:
        yield f"  {one_line(problem_id)}: {one_line(label, 80)}"
    if found.recall.no_interval:
        yield f"no intervals: {found.recall.no_interval}"
    else:
        yield f"in brackets: {100 * confidence:g} % intervals, clustered by problem"
