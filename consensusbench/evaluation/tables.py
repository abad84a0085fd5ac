"""What was measured, as people read it: tables, and the sentences that stand beside them.

Shares are in percent with one decimal, as in the paper's tables; JSON and CSV keep fractions.  The
columns of figures stand here once, for the terminal, CSV, LaTeX and the report's page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from consensusbench.evaluation.estimates import ONE_PROBLEM, Estimate
from consensusbench.evaluation.metrics import (
    DIMENSIONS,
    ONE_CLASS,
    Breakdown,
    Evaluation,
    GroupMetrics,
    NodeFigures,
)
from consensusbench.evaluation.paired import Comparison, PairedDifference, PairedGroup
from consensusbench.evaluation.scored import label_order
from consensusbench.tables import (
    ABSENT,
    Cell,
    Column,
    Row,
    Table,
    Value,
    latex_table,
    latex_text,
    named,
    number,
    percent,
    words,
    write_rows,
    write_text,
)
from consensuspr.console import count_of, one_line
from consensuspr.scoring.types import Status

if TYPE_CHECKING:  # at run time this would load the core, for --help too
    from consensusbench.evaluation.agreement import Agreement

ALL: Final = "all"

# Groups past which only the first table has those of two dimensions.
MAX_ROWS: Final = 24
# Share of right rollouts lowered by the guard from which on a budget does not fit the rollouts.
MAX_RIGHT_LOWERED: Final = 0.01
# Of the human nodes without a partner, as many as fit a screen; --json has all.
_SHOWN_MISSED: Final = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of a table of groups, and what takes its value out of a group."""

    column: Column
    of: Callable[[GroupMetrics], Value]


def _share(key: str, heading: str, of: Callable[[GroupMetrics], Estimate | None]) -> Figure:
    return Figure(replace(percent(heading, key), interval=True), of)


def _amount(key: str, heading: str, of: Callable[[GroupMetrics], Estimate]) -> Figure:
    return Figure(Column(heading, key, decimals=1, interval=True), of)


def _count(key: str, heading: str, of: Callable[[GroupMetrics], int], hint: str = "") -> Figure:
    return Figure(number(heading, key, hint=hint), of)


SIZES: Final = (
    _count("num_rollouts", "Rollouts", lambda group: group.num_rollouts),
    _count("num_problems", "Problems", lambda group: group.num_problems),
)
WITH_ACC: Final = _count(
    "", "With Acc", lambda g: g.acc.count, "rollouts whose answer could be judged: what Acc is over"
)
WITH_NCR: Final = _count(
    "",
    "With NCR",
    lambda g: g.nodes.ncr.count,
    "rollouts whose problem has nodes: what NCR is over",
)
UNDECIDED: Final = _count("num_undecided", "Undecided", lambda group: group.num_undecided)
NO_MATCH: Final = _count("", "No match", lambda group: group.nodes.num_without_match)

ACC: Final = _share("acc", "Acc", lambda group: group.acc)
NCR: Final = _share("ncr", "NCR", lambda group: group.nodes.ncr)
NCR_BY_PROBLEM: Final = _share("ncr_by_problem", "NCR by problem", lambda g: g.nodes.ncr_by_problem)
NCR_WITHOUT_FINAL: Final = _share(
    "ncr_without_final", "NCR w/o final", lambda group: group.nodes_without_final.ncr
)
TPN: Final = _amount("tpn", "TPN", lambda group: group.nodes.tpn)
TPN_MEDIAN: Final = _amount("tpn_median", "TPN median", lambda group: group.nodes.tpn_median)
TPN_POOLED: Final = _amount("tpn_pooled", "TPN pooled", lambda group: group.nodes.tpn_pooled)
TPN_WITHOUT_FINAL: Final = _amount(
    "tpn_without_final", "TPN w/o final", lambda group: group.nodes_without_final.tpn
)
TOKENS: Final = _amount("tokens", "Tokens", lambda group: group.tokens)
CHARS: Final = _amount("chars", "Characters", lambda group: group.chars)
LENGTH_AUROC: Final = Figure(
    percent("AUROC of length", "auroc_length"), lambda group: group.length.auroc
)
LENGTH_WITHIN: Final = _share(
    "auroc_length_within", "length, within", lambda group: group.length.within
)
NCR_RAW: Final = _share("ncr_raw", "NCR unguarded", lambda group: group.nodes.ncr_raw)
NCR_PAPER: Final = _share("ncr_paper", "NCR, paper's", lambda group: group.nodes.ncr_paper)
RIGHT_LOWERED: Final = _share(
    "right_lowered", "Right lowered by guard", lambda group: group.right_lowered
)
LENGTHS: Final = (TPN, TPN_MEDIAN, TPN_POOLED, TOKENS, CHARS)


def pass_figures(ks: tuple[int, ...]) -> tuple[Figure, ...]:
    """Return a column for each k of pass@k."""

    def pick(at: int) -> Callable[[GroupMetrics], Estimate]:
        return lambda group: group.pass_at[at].estimate

    return tuple(_share(f"pass@{k}", f"pass@{k}", pick(at)) for at, k in enumerate(ks))


def consistency_figures(
    nodes: Callable[[GroupMetrics], NodeFigures], suffix: str = ""
) -> tuple[Figure, ...]:
    """Return D_NCR, AUROC and AUCPR over these nodes of a group."""
    return (
        _share(f"d_ncr{suffix}", "D_NCR", lambda group: nodes(group).consistency.d_ncr),
        _share(f"auroc{suffix}", "AUROC", lambda group: nodes(group).consistency.auroc),
        _share(f"aucpr{suffix}", "AUCPR", lambda group: nodes(group).consistency.aucpr),
    )


def within_figure(nodes: Callable[[GroupMetrics], NodeFigures], suffix: str = "") -> Figure:
    """Return AUROC within problems over these nodes of a group."""
    return _share(
        f"auroc_within{suffix}", "AUROC within", lambda group: nodes(group).consistency.within
    )


def paper_figures(
    nodes: Callable[[GroupMetrics], NodeFigures], suffix: str = ""
) -> tuple[Figure, ...]:
    """Return AUROC of the paper's own NCR over these nodes of a group, pooled and within."""

    def pick(name: str) -> Callable[[GroupMetrics], Estimate | None]:
        return lambda group: getattr(nodes(group).consistency_paper, name, None)

    return (
        _share(f"auroc_paper{suffix}", "AUROC, paper's", pick("auroc")),
        _share(f"auroc_within_paper{suffix}", "within, paper's", pick("within")),
    )


def class_figures(nodes: Callable[[GroupMetrics], NodeFigures]) -> tuple[Figure, ...]:
    """Return how many rollouts are right and wrong, where NCR over these nodes is known."""
    return (
        _count("", "Right", lambda group: nodes(group).consistency.num_right),
        _count("", "Wrong", lambda group: nodes(group).consistency.num_wrong),
        Figure(percent("Prevalence"), lambda group: nodes(group).consistency.prevalence),
    )


def _all(group: GroupMetrics) -> NodeFigures:
    return group.nodes


def _without_final(group: GroupMetrics) -> NodeFigures:
    return group.nodes_without_final


def table_of_groups(
    caption: str,
    keys: Sequence[Figure],
    sections: Sequence[Sequence[GroupMetrics]],
    figures: Sequence[Figure],
    *,
    bold: int | None = None,
    sortable: bool = False,
) -> Table:
    """Return a table with a row for each group."""
    columns = (*keys, *figures)
    rows = [[[figure.of(group) for figure in columns] for group in groups] for groups in sections]
    return Table(caption, [figure.column for figure in columns], rows, bold, sortable)


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables: results, NCR against Acc with and without final nodes, and lengths."""
    results = [*SIZES]
    if evaluation.overall.has_populations:
        results += [WITH_ACC, WITH_NCR]
    results += [ACC, *pass_figures(evaluation.settings.ks), NCR, NCR_WITHOUT_FINAL]
    lengths = LENGTHS if evaluation.overall.tokens.count else (CHARS,)
    every = [[evaluation.overall], *(one.groups for one in evaluation.breakdowns)]
    main = every
    if _is_long(evaluation):
        plain = [one.groups for one in evaluation.breakdowns if len(one.by) == 1]
        main = [[evaluation.overall], *plain]
    name = [Figure(words("Group"), label_of)]
    if evaluation.overall.nodes.consistency_raw is not None:
        results += [NCR_RAW, RIGHT_LOWERED]
    has_paper = evaluation.overall.nodes.ncr_paper is not None
    if has_paper:
        results += [NCR_PAPER]

    def against(nodes: Callable[[GroupMetrics], NodeFigures]) -> list[Figure]:
        paper = paper_figures(nodes) if has_paper else ()
        return [*class_figures(nodes), *consistency_figures(nodes), within_figure(nodes), *paper]

    without = "NCR against Acc, without the nodes that state the final answer"
    return [
        table_of_groups(caption, name, sections, figures, bold=0)
        for caption, sections, figures in (
            ("Answers and nodes", every, results),
            ("NCR against Acc", main, against(_all)),
            (without, main, [*against(_without_final), LENGTH_WITHIN]),
            ("Tokens per node, and length", main, [NO_MATCH, *lengths]),
        )
    ]


def _is_long(evaluation: Evaluation) -> bool:
    return sum(len(one.groups) for one in evaluation.breakdowns) > MAX_ROWS


def label_of(group: GroupMetrics) -> str:
    """Return what a group is called."""
    return " · ".join(one_line(label) for label in group.key.values()) or ALL


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Return what a reader must know beside the tables, one sentence or count each."""
    notes = [*_about_rollouts(evaluation), *_about_figures(evaluation)]
    if _is_long(evaluation):
        notes.append("groups of two dimensions are in the first table, in --json and in --csv")
    return notes


def _about_rollouts(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    for status, count in overall.statuses.items():
        message = evaluation.messages.get(status)
        if status != Status.OK:
            first = f"  (the first: {one_line(message, 200)})" if message else ""
            yield f"{status} {count:,}{first}"
    if overall.num_undecided:
        limit = ACC.column.show(overall.acc_if_undecided_were_right)
        by_load = overall.num_undecided_by_load
        load = f", {by_load:,} of them because the machine was busy," if by_load else ""
        yield (
            f"{count_of(overall.num_undecided, 'answer')} stayed undecided{load}, which counts as "
            f"wrong; with all of them right, Acc would be {limit} %"
        )
    if unjudged := overall.num_rollouts - overall.acc.count:
        without = count_of(unjudged, "rollout has", "rollouts have")
        yield f"{without} no Acc, and no part in a mean of it: the status says why"
    if (with_nodes := overall.nodes.ncr.count) < overall.acc.count:
        yield (
            f"Acc is over {overall.acc.count:,} rollouts, NCR over the {with_nodes:,} whose "
            "problems have nodes"
        )
    if evaluation.skipped_rows:
        yield f"{count_of(evaluation.skipped_rows, 'bad row')} skipped"
    if evaluation.num_problems_without_rollouts:
        without = count_of(
            evaluation.num_problems_without_rollouts,
            "problem of the dataset has",
            "problems of the dataset have",
        )
        yield f"{without} no rollout, and no part in a figure"
    if evaluation.num_stored:
        brought = count_of(evaluation.num_stored, "rollout")
        yield f"{brought} brought scores along: not scored again"


def _about_figures(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    # Where models are told apart, samples of one model are what pass@k is about.
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
        yield "no intervals: a single problem says nothing about others"
        return
    level = f"{100 * evaluation.settings.confidence:g} %"
    yield f"in brackets: {level} intervals, clustered by problem"
    reason = overall.nodes.consistency.auroc.no_interval
    if reason and reason != ONE_CLASS:
        yield f"AUROC of {ALL} has no interval: {reason}"


def _about_guard(overall: GroupMetrics) -> Iterator[str]:
    """Yield the unguarded figures where they differ."""
    raw, inner = overall.nodes.consistency_raw, overall.nodes_without_final.consistency_raw
    if raw is None:
        return
    show = NCR.column.show
    said = f"without the guard NCR is {show(overall.nodes.ncr_raw.value)} %"
    if raw.auroc.value is not None:
        said += f", AUROC {show(raw.auroc.value)} %"
    if inner is not None and inner.within.value is not None:
        said += f", within problems and without final nodes {show(inner.within.value)} %"
    yield said
    lowered = overall.right_lowered.value
    if lowered is not None and lowered > MAX_RIGHT_LOWERED:
        yield (
            f"warning: the guard lowers {show(lowered)} % of the right rollouts: store budgets "
            "where there are none (consensusbench build --budgets)"
        )


def about_paper(group: GroupMetrics) -> Iterator[str]:
    """Yield the paper's own figures where they differ."""
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


def write_csv(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write every group of an evaluation as CSV; the file appears complete or not at all.

    Each figure has three columns, ``NAME``, ``NAME_low`` and ``NAME_high``, empty where there is
    no value or no interval.
    """

    def label(dimension: str) -> Callable[[GroupMetrics], str]:
        return lambda group: group.key.get(dimension, "")

    figures = [
        *SIZES, UNDECIDED, ACC, *pass_figures(evaluation.settings.ks), NCR, NCR_BY_PROBLEM,
        NCR_WITHOUT_FINAL, *LENGTHS, TPN_WITHOUT_FINAL, *consistency_figures(_all),
        *consistency_figures(_without_final, "_without_final"), within_figure(_all),
        within_figure(_without_final, "_without_final"), LENGTH_AUROC, LENGTH_WITHIN, NCR_RAW,
        RIGHT_LOWERED, NCR_PAPER, *paper_figures(_all),
        *paper_figures(_without_final, "_without_final"),
        Figure(percent("", "prevalence"), lambda group: group.nodes.consistency.prevalence),
    ]  # fmt: skip
    sections = [[evaluation.overall], *(one.groups for one in evaluation.breakdowns)]
    keys = [Figure(words(dimension, dimension), label(dimension)) for dimension in DIMENSIONS]
    write_rows(table_of_groups("", keys, sections, figures).to_csv(), path)


# Of LaTeX: the paper's own words for two columns, and what is best where it is not the most.
_LATEX_HEADINGS: Final = {
    "d_ncr": r"$D_\text{NCR}$",
    "tokens": "Response Length (tokens)",
    "chars": "Response Length (characters)",
}
_LEAST_IS_BEST: Final = frozenset(("tpn",))
_NONE_IS_BEST: Final = frozenset(("tokens", "chars"))


def write_latex(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write the tables of an evaluation; the file appears complete or not at all."""
    write_text(latex_of(evaluation), path)


def latex_of(evaluation: Evaluation) -> str:
    """Return tables in the shape of the paper's, for LaTeX with ``booktabs`` and ``amsmath``.

    Models are rows.  There is a table of Acc, pass@k, NCR and TPN, one of D_NCR, AUROC and AUCPR,
    and where rollouts are grouped so, one by source and one by difficulty whose columns are the
    groups and whose blocks are the measures.  The best value of a column is bold where there are
    several models; of TPN the least, as in the paper.  Intervals are in the JSON and CSV forms.
    """
    by_model = evaluation.breakdown("model")
    groups = (evaluation.overall,) if by_model is None else by_model.groups
    results = (ACC, *pass_figures(evaluation.settings.ks), NCR, TPN)
    tables = [
        _latex_models("Acc, pass@k and NCR in percent, and tokens per node.", groups, results),
        _latex_models(
            "Consistency metrics between Acc and NCR, in percent.",
            groups,
            consistency_figures(_all),
        ),
    ]
    length = TOKENS if evaluation.overall.tokens.count else CHARS
    for breakdown in evaluation.breakdowns:
        if breakdown.by[-1] != "model":
            tables.append(_latex_blocks(breakdown, breakdown.by[-1], (ACC, NCR, length)))
    return "% needs \\usepackage{booktabs,amsmath}\n\n" + "\n".join(tables)


def _latex_models(caption: str, groups: Sequence[GroupMetrics], figures: Sequence[Figure]) -> str:
    columns = [_latex_column(figure, groups) for figure in figures]
    rows = [
        [latex_text(_model(group)), *[column[at] for column in columns]]
        for at, group in enumerate(groups)
    ]
    return latex_table(caption, [[["Model", *map(_latex_heading, figures)]], rows])


def _latex_blocks(breakdown: Breakdown, dimension: str, figures: Sequence[Figure]) -> str:
    """Return a table of models by groups, one block of rows for each measure."""
    labels = sorted({group.key[dimension] for group in breakdown.groups}, key=label_order)
    # By their own names: two that are shown alike, cut or cleaned, are two rows.
    models = list(dict.fromkeys(map(_model, breakdown.groups)))
    cell = {(_model(group), group.key[dimension]): group for group in breakdown.groups}
    sections: list[list[list[str]]] = [[["Model", *map(latex_text, labels)]]]
    for figure in figures:
        columns = []
        for label in labels:
            there = [model for model in models if (model, label) in cell]
            shown = _latex_column(figure, [cell[model, label] for model in there])
            columns.append(dict(zip(there, shown, strict=True)))
        rows = [
            [latex_text(model), *[column.get(model, "--") for column in columns]]
            for model in models
        ]
        sections.append([[_latex_heading(figure)], *rows])
    return latex_table(f"Results by {dimension}, in percent.", sections)


def _latex_column(figure: Figure, groups: Sequence[GroupMetrics]) -> list[str]:
    """Return the values of a column, the best of several bold; equal ones as they are shown."""
    key, scale = figure.column.key, figure.column.scale
    decimals = 2 if key == "tpn" else figure.column.decimals
    estimates = [figure.of(group) for group in groups]
    values = [one.value if isinstance(one, Estimate) else None for one in estimates]
    shown = ["--" if v is None else f"{scale * v:.{decimals}f}" for v in values]
    known = [value for value in values if value is not None]
    if len(known) < 2 or key in _NONE_IS_BEST:
        return shown
    best = shown[values.index(min(known) if key in _LEAST_IS_BEST else max(known))]
    return [rf"\textbf{{{text}}}" if text == best else text for text in shown]


def _model(group: GroupMetrics) -> str:
    return group.key.get("model", ALL)


def _latex_heading(figure: Figure) -> str:
    heading = figure.column.heading.removesuffix(" %")
    return _LATEX_HEADINGS.get(figure.column.key, latex_text(heading))


# Of a comparison, each measure is a row.
_MEASURES: Final = {
    one.column.key: one.column for one in (ACC, NCR, NCR_WITHOUT_FINAL, TPN, TOKENS)
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
    column, delta = _MEASURES[difference.measure], difference.delta

    def signed(value: float | None, scale: float = column.scale) -> str:
        return ABSENT if value is None else f"{scale * value:+,.1f}"

    known = delta.low is not None and delta.high is not None
    interval = f"({signed(delta.low)} to {signed(delta.high)})" if known else ""
    relative, p_value = difference.relative, difference.p_value
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
    """Yield what a reader must know beside the tables."""
    for who, count, ids in (
        ("baseline", comparison.num_only_baseline, comparison.only_baseline),
        ("candidate", comparison.num_only_candidate, comparison.only_candidate),
    ):
        if count:
            left_out = f"{count:,} problems that only the {who} answered are left out"
            yield f"{left_out}: {named(ids, count)}"
    for difference in comparison.overall.differences:
        if 0 < difference.num_unpaired < comparison.overall.num_problems:
            yield (
                f"{_MEASURES[difference.measure].heading.removesuffix(' %')}: "
                f"{count_of(difference.num_unpaired, 'problem')} left out, one of the two has "
                "no value there"
            )
    if comparison.num_undecided:
        yield f"{comparison.num_undecided:,} answers stayed undecided and count as wrong"
    yield (
        f"in brackets: {100 * comparison.confidence:g} % intervals over problems; "
        "of TPN and tokens, less counts as better"
    )


def agreement_table(found: Agreement) -> Table:
    """Return consistency, recall and precision, over all nodes and over problems."""
    return Table(
        "",
        [
            words(""),
            replace(percent("All nodes"), interval=True),
            replace(percent("Mean over problems"), interval=True),
        ],
        [
            [
                ["Consistency", found.consistency, found.consistency_by_problem],
                ["Recall", found.recall, found.recall_by_problem],
                ["Precision", found.precision, found.precision_by_problem],
            ]
        ],
    )


def agreement_notes(found: Agreement, confidence: float) -> Iterator[str]:
    """Yield what a reader must know beside the table."""
    yield (
        f"{count_of(found.num_pairs, 'pair')} of {count_of(found.num_ours, 'node')} of the "
        f"dataset and {found.num_theirs:,} human ones, in "
        f"{count_of(len(found.problems), 'problem')}"
    )
    if count := found.num_only_theirs:
        left_out = f"{count:,} annotated problems are not in the dataset and left out"
        yield f"{left_out}: {named(found.only_theirs, count)}"
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
