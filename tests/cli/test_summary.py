"""Means are over what is known; nothing is counted silently."""

from __future__ import annotations

import math

from rich.console import Console

from consensuspr.cli.score import status_lines, summary_table
from consensuspr.client.files import Mean, Summary
from consensuspr.scoring.types import Score, Status

RIGHT = Score(Status.OK, reward=1.0, acc=1.0, ncr=1.0, num_nodes=2, num_matched=2, tpn=50.0)
HALF = Score(Status.OK, reward=0.25, acc=0.0, ncr=0.5, num_nodes=2, num_matched=1, tpn=100.0)
UNKNOWN = Score(Status.UNKNOWN_PROBLEM, message="no problem 'x'")
NO_NODES = Score(Status.NO_NODES, acc=1.0)


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


def test_the_table_says_over_how_many_a_mean_is() -> None:
    summary = Summary()
    for score in (RIGHT, HALF, UNKNOWN, NO_NODES):
        summary.add("math", score)
    table = render(summary)
    assert "66.7 % (of 3)" in table  # acc of RIGHT, HALF, NO_NODES
    assert "75.0 % (of 2)" in table  # ncr of RIGHT, HALF
    assert "75.0 (of 2)" in table  # tpn


def test_the_name_of_a_source_cannot_steer_the_terminal() -> None:
    summary = Summary()
    summary.add("\x1b[2J[red]", RIGHT)
    assert "\\x1b[2J[red]" in render(summary)


def test_every_status_is_counted_and_shown_with_a_reason() -> None:
    summary = Summary()
    for score in (UNKNOWN, RIGHT, HALF, Score(Status.UNKNOWN_PROBLEM, message="no problem 'y'")):
        summary.add("math", score)
    assert status_lines(summary.overall) == [
        "OK 2",
        "UNKNOWN_PROBLEM 2  (the first: no problem 'x')",
    ]
