"""Figures as people read them: shares in percent with one decimal, as the paper's tables.

JSON and CSV keep fractions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.table import Table
from rich.text import Text

from consensusbench.evaluation.estimates import ONE_PROBLEM, Estimate
from consensusbench.evaluation.metrics import DIMENSIONS, ONE_CLASS, Breakdown, Evaluation, Group
from consensusbench.evaluation.scored import label_order
from consensusbench.outputs import escaped, write_rows
from consensuspr.console import one_line
from consensuspr.data import atomic_file
from consensuspr.scoring.types import Status

ABSENT: Final = "–"
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Figure:
    """One column of a table of groups.

    Attributes:
        name: in CSV.
        heading: in a terminal.
        scale: what the fraction is multiplied by.
        decimals: of the shown value.
        pick: takes the estimate out of a group.
    """

    name: str
    heading: str
    scale: float
    decimals: int
    pick: Callable[[Group], Estimate]

    def text(self, value: float | None) -> str:
        """Return a value of this column as it is shown."""
        return ABSENT if value is None else f"{self.scale * value:,.{self.decimals}f}"

    def with_interval(self, group: Group) -> tuple[str, str]:
        """Return the value of a group and its interval, the latter empty where there is none."""
        estimate = self.pick(group)
        if estimate.low is None or estimate.high is None:
            return self.text(estimate.value), ""
        return self.text(estimate.value), f"({self.text(estimate.low)}–{self.text(estimate.high)})"


def share(name: str, heading: str, pick: Callable[[Group], Estimate]) -> Figure:
    """Return a column of shares, in percent."""
    return Figure(name, f"{heading} %", 100.0, 1, pick)


def amount(name: str, heading: str, pick: Callable[[Group], Estimate]) -> Figure:
    """Return a column of amounts."""
    return Figure(name, heading, 1.0, 1, pick)


ACC: Final = share("acc", "Acc", lambda group: group.acc)
NCR: Final = share("ncr", "NCR", lambda group: group.nodes.ncr)
NCR_WITHOUT_FINAL: Final = share(
    "ncr_without_final", "NCR w/o final", lambda group: group.nodes_without_final.ncr
)
TPN: Final = amount("tpn", "TPN", lambda group: group.nodes.tpn)
TOKENS: Final = amount("tokens", "Tokens", lambda group: group.tokens)
CHARS: Final = amount("chars", "Characters", lambda group: group.chars)

CONSISTENCY: Final = (
    share("d_ncr", "D_NCR", lambda group: group.nodes.consistency.d_ncr),
    share("auroc", "AUROC", lambda group: group.nodes.consistency.auroc),
    share("aucpr", "AUCPR", lambda group: group.nodes.consistency.aucpr),
)
CONSISTENCY_WITHOUT_FINAL: Final = (
    share(
        "d_ncr_without_final",
        "D_NCR",
        lambda group: group.nodes_without_final.consistency.d_ncr,
    ),
    share(
        "auroc_without_final",
        "AUROC",
        lambda group: group.nodes_without_final.consistency.auroc,
    ),
    share(
        "aucpr_without_final",
        "AUCPR",
        lambda group: group.nodes_without_final.consistency.aucpr,
    ),
)
LENGTHS: Final = (
    TPN,
    amount("tpn_median", "TPN median", lambda group: group.nodes.tpn_median),
    amount("tpn_pooled", "TPN pooled", lambda group: group.nodes.tpn_pooled),
    TOKENS,
    CHARS,
)
BY_PROBLEM: Final = share("ncr_by_problem", "NCR by problem", lambda g: g.nodes.ncr_by_problem)
TPN_WITHOUT_FINAL: Final = amount(
    "tpn_without_final", "TPN w/o final", lambda group: group.nodes_without_final.tpn
)


def pass_figures(ks: tuple[int, ...]) -> tuple[Figure, ...]:
    """Return a column for each k of pass@k."""

    def pick(at: int) -> Callable[[Group], Estimate]:
        return lambda group: group.pass_at[at].estimate

    return tuple(share(f"pass@{k}", f"pass@{k}", pick(at)) for at, k in enumerate(ks))


def all_figures(ks: tuple[int, ...]) -> tuple[Figure, ...]:
    """Return every column, in the order of a CSV file."""
    return (
        ACC,
        *pass_figures(ks),
        NCR,
        BY_PROBLEM,
        NCR_WITHOUT_FINAL,
        *LENGTHS,
        TPN_WITHOUT_FINAL,
        *CONSISTENCY,
        *CONSISTENCY_WITHOUT_FINAL,
    )


# MERGED An evaluation for the terminal: three tables, and what a reader must know beside them.

# Groups past which only the first table has those of two dimensions.
MAX_ROWS: Final = 24

Count: TypeAlias = tuple[str, Callable[[Group], str]]

_SIZES: Final[tuple[Count, ...]] = (
    ("Rollouts", lambda group: f"{group.num_rollouts:,}"),
    ("Problems", lambda group: f"{group.num_problems:,}"),
)
_POPULATIONS: Final[tuple[Count, ...]] = (
    ("With Acc", lambda group: f"{group.acc.count:,}"),
    ("With NCR", lambda group: f"{group.nodes.ncr.count:,}"),
)
_CLASSES: Final[tuple[Count, ...]] = (
    ("Right", lambda group: f"{group.nodes.consistency.num_right:,}"),
    ("Wrong", lambda group: f"{group.nodes.consistency.num_wrong:,}"),
    ("Prevalence %", lambda group: _percent(group.nodes.consistency.prevalence)),
)
_CLASSES_WITHOUT_FINAL: Final[tuple[Count, ...]] = (
    ("Right", lambda group: f"{group.nodes_without_final.consistency.num_right:,}"),
    ("Wrong", lambda group: f"{group.nodes_without_final.consistency.num_wrong:,}"),
    ("Prevalence %", lambda group: _percent(group.nodes_without_final.consistency.prevalence)),
)
_MATCHES: Final[tuple[Count, ...]] = (
    ("No match", lambda group: f"{group.nodes.num_without_match:,}"),
)


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables: results, NCR against Acc with and without final nodes, and lengths."""
    results = (ACC, *pass_figures(evaluation.settings.ks), NCR, NCR_WITHOUT_FINAL)
    without = "NCR against Acc, without the nodes that state the final answer"
    lengths = LENGTHS if evaluation.overall.tokens.count else (CHARS,)
    sizes = (*_SIZES, *_POPULATIONS) if evaluation.overall.has_populations else _SIZES
    every = list(_sections(evaluation, crossed=True))
    main = list(_sections(evaluation, crossed=not _is_long(evaluation)))
    return [
        _table(every, "Answers and nodes", sizes, results),
        _table(main, "NCR against Acc", _CLASSES, CONSISTENCY),
        _table(main, without, _CLASSES_WITHOUT_FINAL, CONSISTENCY_WITHOUT_FINAL),
        _table(main, "Tokens per node, and length", _MATCHES, lengths),
    ]


def _is_long(evaluation: Evaluation) -> bool:
    return sum(len(one.groups) for one in evaluation.breakdowns) > MAX_ROWS


def evaluation_notes(evaluation: Evaluation) -> list[str]:
    """Return what a reader must know beside the tables, one sentence or count each."""
    notes = [*_about_rollouts(evaluation), *_about_figures(evaluation)]
    if _is_long(evaluation):
        notes.append("groups of two dimensions are in the first table, in --json and in --csv")
    return notes


def _table(
    sections: Sequence[Sequence[Group]],
    title: str,
    counts: Sequence[Count],
    figures: Sequence[Figure],
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("Group", no_wrap=True, overflow="fold")
    for heading, _ in counts:
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_column(figure.heading, justify="right")
    for groups in sections:
        for group in groups:
            table.add_row(
                Text(_label(group), style="" if group.key else "bold"),
                *[count(group) for _, count in counts],
                *[_cell(figure, group) for figure in figures],
            )
        table.add_section()
    return table


def _sections(evaluation: Evaluation, crossed: bool) -> Iterator[tuple[Group, ...]]:
    yield (evaluation.overall,)
    for breakdown in evaluation.breakdowns:
        if crossed or len(breakdown.by) == 1:
            yield breakdown.groups


def _label(group: Group) -> str:
    return " · ".join(one_line(label) for label in group.key.values()) or ALL


def _cell(figure: Figure, group: Group) -> Text:
    value, interval = figure.with_interval(group)
    text = Text(value)
    if interval:
        text.append(f" {interval}", style="dim")
    return text


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f}"


def _about_rollouts(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    for status, count in overall.statuses.items():
        message = evaluation.messages.get(status)
        if status != Status.OK:
            first = f"  (the first: {one_line(message, 200)})" if message else ""
            yield f"{status} {count:,}{first}"
    if overall.num_undecided:
        limit = overall.acc_if_undecided_were_right
        by_load = overall.num_undecided_by_load
        load = f", {by_load:,} of them because the machine was busy," if by_load else ""
        yield (
            f"{overall.num_undecided:,} answers stayed undecided{load} and count as wrong; "
            f"were all of them right, Acc would be {_percent(limit)} %"
        )
    unjudged = overall.num_rollouts - overall.acc.count
    if unjudged:
        yield f"{unjudged:,} rollouts have no Acc and are in no mean of it: their status says why"
    with_nodes = overall.nodes.ncr.count
    if with_nodes < overall.acc.count:
        yield (
            f"Acc is over {overall.acc.count:,} rollouts, NCR over the {with_nodes:,} whose "
            "problems have nodes"
        )
    if evaluation.skipped_rows:
        yield f"{evaluation.skipped_rows:,} bad rows skipped"
    if evaluation.num_problems_without_rollouts:
        yield (
            f"{evaluation.num_problems_without_rollouts:,} problems of the dataset have no "
            "rollout and are in no figure"
        )
    if evaluation.num_stored:
        yield f"{evaluation.num_stored:,} rollouts brought their scores and were not scored again"


def _about_figures(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    # Where models are told apart, samples of one model are what pass@k is about.
    models = evaluation.breakdown("model")
    for group in (overall,) if models is None else (overall, *models.groups):
        for one in group.pass_at:
            if one.num_left_out:
                named = ", ".join(one_line(problem_id) for problem_id in one.left_out[:3])
                yield (
                    f"pass@{one.k} of {_label(group)} leaves out {one.num_left_out:,} of "
                    f"{group.num_problems:,} problems, which have fewer than {one.k} samples: "
                    + named
                    + (", …" if one.num_left_out > 3 else "")
                )
    if overall.tokens.count < overall.num_rollouts:
        missing = overall.num_rollouts - overall.tokens.count
        yield (
            f"{missing:,} rollouts have no length in tokens: give --tokenizer, or num_tokens in "
            "the rollouts"
        )
    level = f"{100 * evaluation.settings.confidence:g} %"
    if overall.acc.no_interval == ONE_PROBLEM:
        yield "no intervals: a single problem says nothing about others"
    else:
        yield f"in brackets: {level} intervals, clustered by problem"
        reason = overall.nodes.consistency.auroc.no_interval
        if reason and reason != ONE_CLASS:
            yield f"AUROC of {ALL} has no interval: {reason}"


# MERGED An evaluation as LaTeX tables, in the shape of the paper's.
#
# Models are rows.  There is a table of Acc, pass@k, NCR and TPN, one of D_NCR, AUROC and AUCPR,
# and where rollouts are grouped so, one by source and one by difficulty whose columns are the
# groups and whose blocks are the measures.  The best value of a column is bold where there are
# several models; of TPN the least, as in the paper.  Intervals are in the JSON and CSV forms.

_HEADINGS: Final = {
    "d_ncr": r"$D_\text{NCR}$",
    "tokens": "Response Length (tokens)",
    "chars": "Response Length (characters)",
}
_LEAST_IS_BEST: Final = frozenset(("tpn",))
_NONE_IS_BEST: Final = frozenset(("tokens", "chars"))


def write_latex(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write the tables of an evaluation; the file appears complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_file(path) as stream:
        stream.write(latex_of(evaluation).encode("utf-8", "replace"))


def latex_of(evaluation: Evaluation) -> str:
    """Return the tables of an evaluation as LaTeX that needs ``booktabs`` and ``amsmath``."""
    by_model = evaluation.breakdown("model")
    groups = (evaluation.overall,) if by_model is None else by_model.groups
    results = (ACC, *pass_figures(evaluation.settings.ks), NCR, TPN)
    tables = [
        _latex_table("Acc, pass@k and NCR in percent, and tokens per node.", groups, results),
        _latex_table("Consistency metrics between Acc and NCR, in percent.", groups, CONSISTENCY),
    ]
    length = TOKENS if evaluation.overall.tokens.count else CHARS
    for breakdown in evaluation.breakdowns:
        dimension = breakdown.by[-1]
        if dimension != "model":
            caption = f"Results by {dimension}, in percent."
            tables.append(_blocks(caption, breakdown, dimension, (ACC, NCR, length)))
    return "% needs \\usepackage{booktabs,amsmath}\n\n" + "\n".join(tables)


def _latex_table(caption: str, groups: Sequence[Group], figures: Sequence[Figure]) -> str:
    heading = " & ".join(["Model", *map(_heading, figures)]) + r" \\"
    columns = [_column(figure, groups) for figure in figures]
    lines = [
        " & ".join([escaped(_model(group)), *[column[at] for column in columns]]) + r" \\"
        for at, group in enumerate(groups)
    ]
    return _float(caption, len(figures), [heading, r"\midrule", *lines])


def _blocks(caption: str, breakdown: Breakdown, dimension: str, figures: Sequence[Figure]) -> str:
    """Return a table of models by groups, one block of rows for each measure."""
    labels = sorted({group.key[dimension] for group in breakdown.groups}, key=label_order)
    # By their own names: two that are shown alike, cut or cleaned, are two rows.
    models = list(dict.fromkeys(map(_model, breakdown.groups)))
    cell = {(_model(group), group.key[dimension]): group for group in breakdown.groups}
    lines = [" & ".join(["Model", *map(escaped, labels)]) + r" \\"]
    for figure in figures:
        lines += [
            r"\midrule",
            rf"\multicolumn{{{len(labels) + 1}}}{{c}}{{{_heading(figure)}}} \\",
        ]
        columns = []
        for label in labels:
            there = [model for model in models if (model, label) in cell]
            shown = _column(figure, [cell[model, label] for model in there])
            columns.append(dict(zip(there, shown, strict=True)))
        lines += [
            " & ".join([escaped(model), *[column.get(model, "--") for column in columns]]) + r" \\"
            for model in models
        ]
    return _float(caption, len(labels), lines)


def _float(caption: str, columns: int, lines: Sequence[str]) -> str:
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'c' * columns}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _column(figure: Figure, groups: Sequence[Group]) -> list[str]:
    """Return the values of a column, the best of several bold; equal ones as they are shown."""
    decimals = 2 if figure.name == "tpn" else figure.decimals
    values = [figure.pick(group).value for group in groups]
    shown = ["--" if v is None else f"{figure.scale * v:.{decimals}f}" for v in values]
    known = [value for value in values if value is not None]
    if len(known) < 2 or figure.name in _NONE_IS_BEST:
        return shown
    best = min(known) if figure.name in _LEAST_IS_BEST else max(known)
    best_shown = f"{figure.scale * best:.{decimals}f}"
    return [rf"\textbf{{{text}}}" if text == best_shown else text for text in shown]


def _model(group: Group) -> str:
    return group.key.get("model", ALL)


def _heading(figure: Figure) -> str:
    return _HEADINGS.get(figure.name, escaped(figure.heading.removesuffix(" %")))


# MERGED An evaluation as one CSV file: a row for each group, fractions as in the JSON form.


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
