"""An evaluation for the terminal: three tables, and what a reader must know beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from rich.table import Table
from rich.text import Text

from consensusbench.evaluation.consistency import ONE_CLASS
from consensusbench.evaluation.estimates import ONE_PROBLEM
from consensusbench.evaluation.evaluating import Evaluation
from consensusbench.evaluation.figures import (
    ABSENT,
    ACC,
    ALL,
    CHARS,
    CONSISTENCY,
    CONSISTENCY_WITHOUT_FINAL,
    LENGTHS,
    NCR,
    NCR_WITHOUT_FINAL,
    Figure,
    pass_figures,
)
from consensusbench.evaluation.measuring import Group
from consensuspr.cli.console import one_line
from consensuspr.scoring.types import Status

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
