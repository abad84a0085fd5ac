"""An evaluation as LaTeX tables, in the shape of the paper's.

Models are rows.  There is a table of Acc, pass@k, NCR and TPN, one of D_NCR, AUROC and AUCPR,
and where rollouts are grouped so, one by source and one by difficulty whose columns are the
groups and whose blocks are the measures.  The best value of a column is bold where there are
several models; of TPN the least, as in the paper.  Intervals are in the JSON and CSV forms.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from consensusbench.evaluation.columns import label_order
from consensusbench.evaluation.evaluating import Breakdown, Evaluation
from consensusbench.evaluation.figures import (
    ACC,
    ALL,
    CHARS,
    CONSISTENCY,
    NCR,
    TOKENS,
    TPN,
    Figure,
    pass_figures,
)
from consensusbench.evaluation.measuring import Group
from consensusbench.latex import escaped
from consensuspr.data import atomic_file

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
        _table("Acc, pass@k and NCR in percent, and tokens per node.", groups, results),
        _table("Consistency metrics between Acc and NCR, in percent.", groups, CONSISTENCY),
    ]
    length = TOKENS if evaluation.overall.tokens.count else CHARS
    for breakdown in evaluation.breakdowns:
        dimension = breakdown.by[-1]
        if dimension != "model":
            caption = f"Results by {dimension}, in percent."
            tables.append(_blocks(caption, breakdown, dimension, (ACC, NCR, length)))
    return "% needs \\usepackage{booktabs,amsmath}\n\n" + "\n".join(tables)


def _table(caption: str, groups: Sequence[Group], figures: Sequence[Figure]) -> str:
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
