"""The tables of results: every figure with its interval, by model, source and difficulty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from consensusbench.report.page import Section
from consensusbench.report.table import Cell, Column, Table, count, number, percent, text

if TYPE_CHECKING:
    from consensusbench.evaluation.estimates import Estimate
    from consensusbench.evaluation.evaluating import Evaluation
    from consensusbench.evaluation.measuring import Group

_NAMES = {"model": "model", "source": "source", "difficulty": "difficulty"}


def results_section(evaluation: Evaluation) -> Section:
    """Return the headline table, the breakdowns and how NCR and Acc go together."""
    models = evaluation.breakdown("model")
    groups = list(models.groups) if models else []
    if len(groups) != 1:
        groups.append(evaluation.overall)
    tables = [_figures("Results by model", ("model",), groups, evaluation), _consistency(groups)]
    for dimension in ("source", "difficulty"):
        for by in ((dimension,), ("model", dimension)):
            breakdown = evaluation.breakdown(*by)
            if breakdown is not None and _tells_apart(breakdown.groups, dimension):
                caption = f"Results by {' and '.join(_NAMES[name] for name in by)}"
                tables.append(_figures(caption, by, breakdown.groups, evaluation))
    apart = evaluation.overall.has_populations
    confidence = f"{100 * evaluation.settings.confidence:g} %"
    return Section(
        "results",
        "Results",
        (
            f"Small figures are {confidence} confidence intervals, clustered by problem; "
            f"a dash is a value that nothing is known of.{_POPULATIONS if apart else ''}",
        ),
        tables=tuple(tables),
        notes=(_legend(with_tpn=evaluation.overall.nodes.tpn.value is not None),),
    )


_POPULATIONS = (
    " Acc is over the rollouts with Acc, those whose answer could be judged; NCR over those with "
    "NCR, whose problem has nodes."
)


def _legend(*, with_tpn: bool) -> str:
    tpn = (
        "TPN: mean number of tokens for each node reached, over rollouts that reach one. "
        if with_tpn
        else ""
    )
    return (
        "Acc: share of right answers. NCR: mean share of a problem's nodes that a rollout "
        f"reaches; without final: without the nodes that state the answer. {tpn}D_NCR: mean NCR "
        "of right minus that of wrong rollouts. AUROC: how often a right rollout has the higher "
        "NCR of a right and a wrong one (50 % is chance). AUCPR: average precision (chance: the "
        "share of right rollouts)."
    )


def _tells_apart(groups: Sequence[Group], dimension: str) -> bool:
    return len({group.key[dimension] for group in groups}) > 1


def _figures(
    caption: str, by: Sequence[str], groups: Iterable[Group], evaluation: Evaluation
) -> Table:
    apart = evaluation.overall.has_populations
    with_acc = Column("with Acc", hint="rollouts whose answer could be judged: what Acc is over")
    with_ncr = Column("with NCR", hint="rollouts whose problem has nodes: what NCR is over")
    columns = (
        *(Column(_NAMES[name], numeric=False) for name in by),
        Column("rollouts"),
        Column("problems"),
        *((with_acc,) if apart else ()),
        Column("Acc, %"),
        *(Column(f"pass@{k}, %") for k in evaluation.settings.ks),
        *((with_ncr,) if apart else ()),
        Column("NCR, %"),
        Column("NCR without final, %"),
        Column("TPN"),
        Column("TPN, median"),
        Column("tokens"),
        Column("characters"),
    )
    rows = tuple((*_names(group, by), *_cells(group, apart)) for group in groups)
    return Table(caption, columns, rows, sortable=len(rows) > 2).without_empty_columns()


def _names(group: Group, by: Sequence[str]) -> list[Cell]:
    return [text(group.key.get(name, "all")) for name in by]


def _cells(group: Group, apart: bool) -> list[Cell]:
    return [
        count(group.num_rollouts),
        count(group.num_problems),
        *([count(group.acc.count)] if apart else []),
        _share(group.acc),
        *(_share(one.estimate) for one in group.pass_at),
        *([count(group.nodes.ncr.count)] if apart else []),
        _share(group.nodes.ncr),
        _share(group.nodes_without_final.ncr),
        _number(group.nodes.tpn, 1),
        _number(group.nodes.tpn_median, 1),
        _number(group.tokens, 0),
        _number(group.chars, 0),
    ]


def _consistency(groups: Sequence[Group]) -> Table:
    columns = (
        Column("model", numeric=False),
        Column("nodes", numeric=False),
        Column("right"),
        Column("wrong"),
        Column("NCR right, %"),
        Column("NCR wrong, %"),
        Column("D_NCR, %"),
        Column("AUROC, %"),
        Column("AUCPR, %"),
        Column("share right, %"),
    )
    rows = tuple(
        (
            text(group.key.get("model", "all")),
            text(nodes),
            count(found.num_right),
            count(found.num_wrong),
            percent(found.ncr_right),
            percent(found.ncr_wrong),
            _share(found.d_ncr),
            _share(found.auroc),
            _share(found.aucpr),
            percent(found.prevalence),
        )
        for group in groups
        for nodes, found in (
            ("all", group.nodes.consistency),
            ("without final", group.nodes_without_final.consistency),
        )
    )
    return Table("Does NCR tell right rollouts from wrong ones?", columns, rows)


def _share(estimate: Estimate) -> Cell:
    low, high = estimate.low, estimate.high
    note = "" if low is None or high is None else f"{100 * low:.1f} – {100 * high:.1f}"
    return percent(estimate.value, note)


def _number(estimate: Estimate, decimals: int) -> Cell:
    low, high = estimate.low, estimate.high
    note = "" if low is None or high is None else f"{low:,.{decimals}f} – {high:,.{decimals}f}"
    return number(estimate.value, decimals, note)
