"""Means are over what is known; nothing is counted silently."""

from __future__ import annotations

import math

from rich.console import Console

from consensuspr.cli.score import summary_table
from consensuspr.client.files import Mean, Summary
from consensuspr.scoring.types import Score, Status

RIGHT = Score(Status.OK, reward=1.0, acc=1.0, ncr=1.0, num_nodes=2, num_matched=2, tpn=50.0)


def render(summary: Summary) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(summary_table(summary, "reward"))
    return captured.get()


def test_a_mean_does_not_depend_on_the_order_of_its_values() -> None:
    values = [1 / 3, 0.75, 1.0, 2 / 3, 0.1] * 60
    for order in (values, sorted(values), sorted(values, reverse=True)):
        mean = Mean()
        for value in order:
            mean.add(value)
        assert mean.value == math.fsum(values) / len(values)


def test_the_name_of_a_source_cannot_steer_the_terminal() -> None:
    summary = Summary()
    summary.add("\x1b[2J[red]", RIGHT)
    assert "\\x1b[2J[red]" in render(summary)
