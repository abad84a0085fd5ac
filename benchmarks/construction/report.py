"""Tables of the figures, as they stand in ``docs/quality.md``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.construction.measure import Figures, WholeFigures
from consensusbench.evaluation.estimates import Estimate

_HEADINGS = (
    "set", "nodes made from", "problems", "nodes (final)", "held out: right, wrong",
    "NCR right / wrong", "D_NCR", "AUROC", "AUCPR (chance)", "without final: D_NCR", "AUROC",
    "chance NCR",
)  # fmt: skip


def figures_table(rows: Iterable[tuple[str, str, Figures]]) -> str:
    """Return a row for each set and variant."""
    lines = [_row(_HEADINGS), _row(["---", "---", *["---:"] * (len(_HEADINGS) - 2)])]
    for name, variant, one in rows:
        every, inner = one.every, one.inner
        lines.append(
            _row(
                [
                    name,
                    variant,
                    f"{one.problems} of {one.all_problems}",
                    f"{one.nodes:.2f} ({one.finals:.2f})",
                    f"{every.num_right:,}, {every.num_wrong:,}",
                    f"{_share(every.ncr_right)} / {_share(every.ncr_wrong)}",
                    _share(every.d_ncr.value),
                    f"**{_share(every.auroc.value)}**{_interval(every.auroc)}",
                    f"{_share(every.aucpr.value)} ({_share(every.prevalence)})",
                    _share(inner.d_ncr.value),
                    f"**{_share(inner.auroc.value)}**{_interval(inner.auroc)}",
                    "–" if one.chance is None else f"{one.chance:.2%}",
                ]
            )
        )
    return "\n".join(lines)


def attacks_table(figures: Sequence[WholeFigures]) -> str:
    """Return a row for each attack: the NCR that it earns."""
    lines = [
        _row(["text", *(one.variant.name for one in figures)]),
        _row(["---", *["---:"] * len(figures)]),
    ]
    for index, attack in enumerate(figures[0].probes.attacks):
        earned = [one.probes.attacks[index].overall.ncr for one in figures]
        lines.append(_row([attack.description, *(f"{ncr:.1%}" for ncr in earned)]))
    return "\n".join(lines)


def agreement_table(figures: Sequence[WholeFigures]) -> str:
    """Return a row for each variant: consistency, recall and precision."""
    lines = [
        _row(["nodes made from", "problems", "consistency", "recall", "precision"]),
        _row(["---", *["---:"] * 4]),
    ]
    for one in figures:
        shares = (one.agreement.consistency, one.agreement.recall, one.agreement.precision)
        cells = [f"{_share(share.value)}{_interval(share)}" for share in shares]
        lines.append(_row([one.variant.name, f"{len(one.agreement.problems)}", *cells]))
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({_share(estimate.low)}–{_share(estimate.high)})"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
