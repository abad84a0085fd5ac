"""Tables of evaluations, comparisons and agreement, and the notes below them.

Shares are in percent with one decimal, as in the paper; JSON keeps fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from consensusbench.evaluation.estimates import ONE_PROBLEM
from consensusbench.evaluation.metrics import ONE_CLASS, Evaluation, GroupMetrics
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

# A column of a table of groups, and the path of its value in a group.
Figure: TypeAlias = tuple[Column, str]
_SHARE: Final = percent("")
_ACC: Final = (percent("Acc"), "acc")
_NCR: Final = (percent("NCR"), "nodes.ncr")
_NCR_WITHOUT_FINAL: Final = (percent("NCR w/o final"), "nodes_without_final.ncr")
_TPN: Final = (number("TPN", decimals=1), "nodes.tpn")
_TOKENS: Final = (number("Tokens", decimals=1), "tokens")
_CHARS: Final = (number("Characters", decimals=1), "chars")


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables: results, NCR against Acc with and without final nodes, and lengths."""
    overall, ks = evaluation.overall, evaluation.settings.ks
    has_paper = overall.nodes.ncr_paper is not None
    results: list[Figure] = [
        (number("Rollouts"), "num_rollouts"),
        (number("Problems"), "num_problems"),
    ]
    if {overall.acc.count, overall.nodes.ncr.count} != {overall.num_rollouts}:
        results += [(number("With Acc"), "acc.count"), (number("With NCR"), "nodes.ncr.count")]
    results += [_ACC, *((percent(f"pass@{k}"), f"pass@{at}") for at, k in enumerate(ks))]
    results += [_NCR, _NCR_WITHOUT_FINAL]
    if overall.nodes.consistency_raw is not None:
        results += [
            (percent("NCR unguarded"), "nodes.ncr_raw"),
            (percent("Right lowered by guard"), "right_lowered"),
        ]
    if has_paper:
        results.append((percent("NCR, paper's"), "nodes.ncr_paper"))
    lengths: list[Figure] = [_CHARS]
    if overall.tokens.count:
        lengths = [
            _TPN,
            (number("TPN pooled", decimals=1), "nodes.tpn_pooled"),
            _TOKENS,
            _CHARS,
        ]
    every = [[overall], *(breakdown.groups for breakdown in evaluation.breakdowns)]
    main = every
    if _is_long(evaluation):
        main = [[overall], *(one.groups for one in evaluation.breakdowns if len(one.by) == 1)]
    without_final = _against_acc("nodes_without_final", has_paper)
    return [
        _groups_table("Answers and nodes", every, results),
        _groups_table("NCR against Acc", main, _against_acc("nodes", has_paper)),
        _groups_table(
            "NCR against Acc, without the nodes that state the final answer",
            main,
            [*without_final, (percent("length, within"), "length.within")],
        ),
        _groups_table(
            "Tokens per node, and length",
            main,
            [(number("No match"), "nodes.num_without_match"), *lengths],
        ),
    ]


def _against_acc(nodes: str, has_paper: bool) -> list[Figure]:
    """Return the columns that compare NCR over these nodes with Acc."""
    path = f"{nodes}.consistency"
    figures = [
        (number("Right"), f"{path}.num_right"),
        (number("Wrong"), f"{path}.num_wrong"),
        (percent("Prevalence"), f"{path}.prevalence"),
        (percent("D_NCR"), f"{path}.d_ncr"),
        (percent("AUROC"), f"{path}.auroc"),
        (percent("AUCPR"), f"{path}.aucpr"),
        (percent("AUROC within"), f"{path}.within"),
    ]
    if has_paper:
        figures.append((percent("AUROC, paper's"), f"{path}_paper.auroc"))
        figures.append((percent("within, paper's"), f"{path}_paper.within"))
    return figures


def _groups_table(
    caption: str, sections: Sequence[Sequence[GroupMetrics]], figures: Sequence[Figure]
) -> Table:
    rows = [
        [[label_of(group.key), *(_value(group, path) for _, path in figures)] for group in groups]
        for groups in sections
    ]
    return Table(caption, [words("Group"), *(column for column, _ in figures)], rows, bold=0)


def _value(group: GroupMetrics, path: str) -> Value:
    """Return the value at a path; None below None.  ``pass@I`` is the I-th k."""
    if path.startswith("pass@"):
        return group.pass_at[int(path.removeprefix("pass@"))].estimate
    value: Value = group
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _is_long(evaluation: Evaluation) -> bool:
    return sum(len(breakdown.groups) for breakdown in evaluation.breakdowns) > MAX_ROWS


def label_of(key: dict[str, str], separator: str = " · ") -> str:
    """Return the name of a group."""
    return separator.join(map(one_line, key.values())) or ALL


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
            first = f"  (first: {one_line(message, 200)})" if message else ""
            yield f"{status} {count:,}{first}"
    if overall.num_undecided:
        yield (
            f"{count_of(overall.num_undecided, 'answer')} could not be decided and count as wrong; "
            f"if all of them were right, Acc would be {_shown(overall.acc_if_undecided_were_right)}"
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
    overall, nodes = evaluation.overall, evaluation.overall.nodes
    models = evaluation.breakdown("model")
    for group in (overall, *(models.groups if models else ())):
        for found in group.pass_at:
            if found.num_left_out:
                yield (
                    f"pass@{found.k} of {label_of(group.key)} leaves out {found.num_left_out:,} of "
                    f"{group.num_problems:,} problems, which have fewer than {found.k} samples: "
                    + named(found.left_out, found.num_left_out)
                )
    if missing := overall.num_rollouts - overall.tokens.count:
        yield (
            f"{count_of(missing, 'rollout has', 'rollouts have')} no length in tokens: give "
            "--tokenizer, or num_tokens in the rollouts"
        )
    if nodes.consistency_raw is not None:
        yield (
            f"without the guard NCR is {_shown(nodes.ncr_raw.value)}, "
            f"AUROC {_shown(nodes.consistency_raw.auroc.value)}"
        )
        lowered = overall.right_lowered.value
        if lowered is not None and lowered > MAX_RIGHT_LOWERED:
            yield (
                f"warning: the guard lowers {_shown(lowered)} of the right rollouts: store budgets "
                "if problems have none (consensusbench build --budgets)"
            )
    if nodes.ncr_paper is not None and nodes.consistency_paper is not None:
        note = f"the paper's own NCR (no statements, no guard) is {_shown(nodes.ncr_paper.value)}"
        if (auroc := nodes.consistency_paper.auroc.value) is not None:
            note += f", AUROC {_shown(auroc)}"
        inner = overall.nodes_without_final.consistency_paper
        if inner is not None and inner.auroc.value is not None:
            note += f", without final nodes {_shown(inner.auroc.value)}"
        yield note
    if overall.acc.no_interval == ONE_PROBLEM:
        yield "no intervals: there is a single problem"
        return
    level = f"{100 * evaluation.settings.confidence:g} %"
    yield f"in brackets: {level} intervals, clustered by problem"
    reason = nodes.consistency.auroc.no_interval
    if reason and reason != ONE_CLASS:
        yield f"AUROC of {ALL} has no interval: {reason}"


def _shown(share: float | None) -> str:
    return f"{_SHARE.show(share)} %"


# Each measure of a comparison is a row.
_MEASURES: Final = {
    "acc": _ACC[0],
    "ncr": _NCR[0],
    "ncr_without_final": _NCR_WITHOUT_FINAL[0],
    "tpn": _TPN[0],
    "tokens": _TOKENS[0],
}


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return a table of differences for all problems and for each group of them."""
    return [_comparison_table(group) for group in (comparison.overall, *comparison.groups)]


def _comparison_table(group: PairedGroup) -> Table:
    headings = ("Baseline", "Candidate", "Difference", "Relative", "p", "Better/equal/worse")
    return Table(
        f"{label_of(group.key, ', ')}: {count_of(group.num_problems, 'problem')}",
        [words("Measure"), *map(number, headings)],
        [[_comparison_row(one) for one in group.differences if one.delta.value is not None]],
    )


def _comparison_row(difference: PairedDifference) -> Row:
    column, delta = _MEASURES[difference.measure], difference.delta

    def signed(value: float | None, scale: float = column.scale) -> str:
        return ABSENT if value is None else f"{scale * value:+,.1f}"

    relative, p_value = difference.relative, difference.p_value
    interval = "" if delta.low is None else f"({signed(delta.low)} to {signed(delta.high)})"
    return [
        column.heading,
        column.show(difference.baseline),
        column.show(difference.candidate),
        Cell(signed(delta.value), note=interval),
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
                f"{_MEASURES[difference.measure].heading.removesuffix(' %')}: "
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
    rows = [
        ["Consistency", found.consistency, found.consistency_by_problem],
        ["Recall", found.recall, found.recall_by_problem],
        ["Precision", found.precision, found.precision_by_problem],
    ]
    return Table("", [words(""), percent("All nodes"), percent("Mean over problems")], [rows])


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
    missed = [
        (problem.problem_id, label) for problem in found.problems for _, label in problem.missed
    ]
    if missed:
        yield f"human nodes without a partner ({len(missed):,}; --json has all):"
    for problem_id, label in missed[:_SHOWN_MISSED]:
        yield f"  {one_line(problem_id)}: {one_line(label, 80)}"
    if found.recall.no_interval:
        yield f"no intervals: {found.recall.no_interval}"
    else:
        yield f"in brackets: {100 * confidence:g} % intervals, clustered by problem"
