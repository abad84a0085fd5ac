"""Scores counted up by data source, for the table and for ``--json``.

A mean is over the rollouts where the value is known, and says over how many: a rollout
without nodes has no NCR, and counting it as 0 would be a lie.  Mean TPN is the mean of
equation 2 over rollouts that have it (a length in tokens and at least one node).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from consensuspr.cli.console import one_line
from consensuspr.scoring.types import Score, Status

NO_SOURCE = "(none)"
MEASURES = ("acc", "ncr", "tpn", "reward")


@dataclass(slots=True)
class Mean:
    """A running mean of the values that are known."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        """Count a value; None is left out."""
        if value is not None:
            self.total += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """The mean, None without a single value."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Group:
    """What the rollouts of one data source scored."""

    rollouts: int = 0
    acc: Mean = field(default_factory=Mean)
    ncr: Mean = field(default_factory=Mean)
    tpn: Mean = field(default_factory=Mean)
    reward: Mean = field(default_factory=Mean)
    statuses: Counter[Status] = field(default_factory=Counter)
    # What the first rollout of each status was told.
    messages: dict[Status, str] = field(default_factory=dict)

    def add(self, score: Score) -> None:
        """Count one score."""
        self.rollouts += 1
        self.statuses[score.status] += 1
        if score.message:
            self.messages.setdefault(score.status, score.message)
        for measure in MEASURES:
            getattr(self, measure).add(getattr(score, measure))

    def to_json(self) -> dict[str, object]:
        """Return means with their counts, and the count of each status met."""
        means: dict[str, object] = {}
        for measure in MEASURES:
            mean: Mean = getattr(self, measure)
            means[measure] = mean.value
            means[f"{measure}_count"] = mean.count
        return {
            "rollouts": self.rollouts,
            **means,
            "statuses": {status.value: count for status, count in self.statuses.items()},
        }


class Summary:
    """All scores of a run, by data source in the order of first appearance, and overall."""

    def __init__(self) -> None:
        self.overall = Group()
        self._by_source: dict[str, Group] = {}

    def add(self, data_source: str | None, score: Score) -> None:
        """Count one score."""
        self._by_source.setdefault(data_source or NO_SOURCE, Group()).add(score)
        self.overall.add(score)

    def __iter__(self) -> Iterator[tuple[str, Group]]:
        return iter(self._by_source.items())

    def __getitem__(self, data_source: str) -> Group:
        return self._by_source[data_source]

    def to_json(self) -> dict[str, object]:
        """Return everything counted, ready for ``json.dumps``."""
        return {
            "overall": self.overall.to_json(),
            "by_data_source": {source: group.to_json() for source, group in self},
        }


def percent(mean: Mean, rollouts: int) -> str:
    """Return a mean of values in [0, 1] in percent, with its count where some are unknown."""
    if mean.value is None:
        return "–"
    return f"{100 * mean.value:.1f} %" + _of(mean, rollouts)


def number(mean: Mean, rollouts: int, decimals: int) -> str:
    """Return a mean with so many decimals, and with its count where some are unknown."""
    if mean.value is None:
        return "–"
    return f"{mean.value:,.{decimals}f}" + _of(mean, rollouts)


def _of(mean: Mean, rollouts: int) -> str:
    return "" if mean.count == rollouts else f" (of {mean.count:,})"


def summary_table(summary: Summary, reward: str) -> Table:
    """Return the table of a run.

    Args:
        summary: the counts.
        reward: heading of the reward's column.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Data source")
    for heading in ("Rollouts", "Acc", "NCR", "TPN", reward):
        table.add_column(heading, justify="right")
    rows = list(summary)
    for source, group in rows:
        table.add_row(Text(one_line(source)), *_cells(group))
    if len(rows) > 1:
        table.add_section()
        table.add_row(Text("all"), *_cells(summary.overall), style="bold")
    return table


def _cells(group: Group) -> list[str]:
    return [
        f"{group.rollouts:,}",
        percent(group.acc, group.rollouts),
        percent(group.ncr, group.rollouts),
        number(group.tpn, group.rollouts, 1),
        number(group.reward, group.rollouts, 3),
    ]


def status_lines(group: Group) -> list[str]:
    """Return the count of every status met, OK first, with the first reason of each."""
    met = sorted(group.statuses.items(), key=lambda item: (item[0] is not Status.OK, item[0]))
    return [f"{status} {count:,}" + _example(group.messages.get(status)) for status, count in met]


def _example(message: str | None) -> str:
    return f"  (the first: {one_line(message, 200)})" if message else ""
