"""The probes of a dataset as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.cli.console import one_line

if TYPE_CHECKING:  # at run time these would load the core
    from consensusbench.probes import AttackFigures, ProbeReport

ALL = "all"


def print_probes(console: Console, report: ProbeReport) -> None:
    """Print attacks by source, what real rollouts earn, and where attacks earn most."""
    console.print(_attacks(report))
    if report.density:
        console.print()
        console.print(_density(report))
    for tried in report.attacks:
        for worst in tried.worst[:1]:
            console.print(
                Text(
                    f"{tried.attack.value} earns most of problem {one_line(worst.problem_id)!r}: "
                    f"NCR {100 * worst.ncr:.1f} % by {one_line(', '.join(worst.node_ids), 80)}",
                    style="dim",
                ),
                soft_wrap=True,
            )


def _attacks(report: ProbeReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Attack")
    table.add_column("Data source")
    for heading in ("Problems", "NCR", "without final", "≥ 50 %", "Hits / 1,000 chars"):
        table.add_column(heading, justify="right")
    for tried in report.attacks:
        groups = list(tried.by_source.items())
        if len(groups) > 1:
            groups.append((ALL, tried.overall))
        for source, figures in groups:
            table.add_row(tried.attack.value, Text(one_line(source)), *_cells(figures))
    return table


def _cells(figures: AttackFigures) -> tuple[str, ...]:
    without = figures.ncr_without_final
    return (
        f"{figures.problems:,}",
        f"{100 * figures.ncr:.2f} %",
        "–" if without is None else f"{100 * without:.2f} %",
        f"{100 * figures.share_reached:.1f} %",
        f"{figures.hits_per_1000_chars:.2f}",
    )


def _density(report: ProbeReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Real rollouts of")
    for heading in ("Rollouts", "NCR", "Chars", "Hits / 1,000 chars", "99th percentile"):
        table.add_column(heading, justify="right")
    for heading in ("Hits / 1,000 tokens", "99th percentile"):
        table.add_column(heading, justify="right")
    for source, figures in report.density.items():
        table.add_row(
            Text(one_line(source)),
            f"{figures.rollouts:,}",
            f"{100 * figures.ncr:.2f} %",
            f"{figures.median_chars:,.0f}",
            f"{figures.median_per_1000_chars:.2f}",
            f"{figures.p99_per_1000_chars:.2f}",
            *(
                "–" if value is None else f"{value:.2f}"
                for value in (figures.median_per_1000_tokens, figures.p99_per_1000_tokens)
            ),
        )
    return table
