"""Reward hacking: what is had of the nodes without solving a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensusbench.report.page import Section
from consensusbench.report.table import Cell, Column, Table, count, number, percent, text

if TYPE_CHECKING:
    from consensusbench.probes import AttackFigures, AttackReport, ProbeReport


def probe_section(report: ProbeReport) -> Section:
    """Return the attacks with what they earn, and how densely real rollouts hit their nodes."""
    tables = [_attacks(report)]
    if any(len(attack.by_source) > 1 for attack in report.attacks):
        tables.append(_attacks_by_source(report))
    if report.density:
        tables.append(_density(report))
    return Section(
        "probes",
        "Reward hacking",
        (
            "Texts that solve nothing, scored against every problem: what they earn, a policy "
            "could earn without reasoning.",
        ),
        tables=tuple(tables),
    )


_FIGURES = (
    Column("problems"),
    Column("NCR, %"),
    Column("without final nodes, %"),
    Column("problems with NCR ≥ 50 %, %"),
    Column("characters"),
    Column("hits per 1,000 characters"),
)


def _attacks(report: ProbeReport) -> Table:
    rows = tuple(
        (
            Cell(_name(attack), note=attack.description),
            *_figures(attack.overall),
            text(", ".join(f"{w.problem_id} ({100 * w.ncr:.0f} %)" for w in attack.worst[:3])),
        )
        for attack in report.attacks
    )
    columns = (Column("attack", numeric=False), *_FIGURES, Column("earns most on", numeric=False))
    return Table("What attacks earn", columns, rows)


def _attacks_by_source(report: ProbeReport) -> Table:
    rows = tuple(
        (text(_name(attack)), text(source or "(none)"), *_figures(figures))
        for attack in report.attacks
        for source, figures in attack.by_source.items()
    )
    columns = (Column("attack", numeric=False), Column("source", numeric=False), *_FIGURES)
    return Table("What attacks earn, by source", columns, rows, sortable=True)


def _name(attack: AttackReport) -> str:
    return attack.attack.value.replace("_", " ")


def _figures(figures: AttackFigures) -> tuple[Cell, ...]:
    return (
        count(figures.problems),
        percent(figures.ncr),
        percent(figures.ncr_without_final),
        percent(figures.share_reached),
        number(figures.mean_chars, 0),
        number(figures.hits_per_1000_chars, 2),
    )


def _density(report: ProbeReport) -> Table:
    rows = tuple(
        (
            text(source or "(none)"),
            count(figures.rollouts),
            percent(figures.ncr),
            number(figures.median_chars, 0),
            number(figures.median_per_1000_chars, 2),
            number(figures.p99_per_1000_chars, 2),
            number(figures.median_per_1000_tokens, 2),
            number(figures.p99_per_1000_tokens, 2),
        )
        for source, figures in report.density.items()
    )
    columns = (
        Column("source", numeric=False),
        Column("rollouts"),
        Column("NCR, %"),
        Column("characters, median"),
        Column("hits per 1,000 characters, median"),
        Column("99th percentile"),
        Column("hits per 1,000 tokens, median"),
        Column("99th percentile"),
    )
    return Table("How densely these rollouts hit their own nodes", columns, rows)
