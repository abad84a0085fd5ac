"""Faults are made, and harm is noticed."""

from __future__ import annotations

import pytest

from consensuspr.client import Score
from reliability import chaos, load
from reliability.load import Load, Server


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Score little around a fault."""
    monkeypatch.setattr(chaos, "AROUND", 64)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "SCENARIOS", {})


@pytest.mark.usefixtures("few")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["kill-a-worker", "kill-the-server", "hand-made-frames", "memory-bombs"]
)
def test_a_fault_does_no_harm(name: str) -> None:
    row, harm = chaos.run(name)
    assert harm == []
    assert int(row[2].replace(",", "")) > 100


@pytest.mark.usefixtures("few", "registered")
def test_a_wrong_score_is_harm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @chaos.scenario()
    def nothing(server: Server, load: Load) -> None:
        """Do nothing."""

    figures = load._figures

    def odd(score: Score) -> tuple[object, ...]:
        return (*figures(score), id(score) if score.reward == 1.0 else 0)

    monkeypatch.setattr(load, "_figures", odd)
    assert chaos.main(["nothing"]) == 1
    printed = capsys.readouterr()
    assert "nothing: lost {}, wrong" in printed.err
    assert "| `nothing` | Do nothing |" in printed.out


@pytest.mark.usefixtures("few", "registered")
def test_what_cannot_be_made_here_is_skipped_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(*_: object) -> dict[str, str]:
        raise chaos.Skipped("it needs a moon")

    @chaos.scenario(prepare=prepare)
    def tides(server: Server, load: Load) -> None:
        """Wait for the flood."""

    assert chaos.main([]) == 0
    assert "`tides` was skipped: it needs a moon." in capsys.readouterr().out
