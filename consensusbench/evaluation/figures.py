"""Figures as people read them: shares in percent with one decimal, as the paper's tables.

JSON and CSV keep fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from consensusbench.evaluation.estimates import Estimate
from consensusbench.evaluation.measuring import Group

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
