"""Faults do no harm, and a wrong score is harm."""

from __future__ import annotations

import pytest

from consensuspr.client import Score
from reliability import chaos, load
from reliability.load import Load, Server


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["kill-a-worker", "kill-the-server", "hand-made-frames", "memory-bombs"]
)
def test_a_fault_does_no_harm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "AROUND", 64)
    row, harm = chaos.run(name)
    assert harm == []
    assert int(row[2].replace(",", "")) > 100


@pytest.mark.slow
def test_a_wrong_score_is_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(server: Server, load: Load) -> None:
        """Do nothing."""

    monkeypatch.setitem(chaos.FAULTS, "nothing", nothing)
    figures = load._figures

    def odd(score: Score) -> tuple[object, ...]:
        return (*figures(score), id(score) if score.reward == 1.0 else 0)

    monkeypatch.setattr(chaos, "AROUND", 64)
    monkeypatch.setattr(load, "_figures", odd)
    assert chaos.run("nothing")[1][0].startswith("lost {}, wrong")
