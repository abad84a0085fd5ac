"""Plots: one file for each series, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import page
from benchmarks.harness.results import Run

pytest.importorskip("matplotlib")


def test_the_same_data_gives_the_same_file(run: Run, tmp_path: Path) -> None:
    first = page.draw(run, tmp_path / "a")
    second = page.draw(run, tmp_path / "b")
    assert [path.name for path in first] == ["core-speed-by-length.svg"]
    assert first[0].read_bytes() == second[0].read_bytes()
    assert first[0].read_bytes().startswith(b"<?xml")


def test_other_data_gives_another_file(run: Run, tmp_path: Path) -> None:
    (first,) = page.draw(run, tmp_path / "a")
    run.suites[0].series[0].lines["peer"] = [(200, 20.0), (10_000, 21.0)]
    (second,) = page.draw(run, tmp_path / "b")
    assert first.read_bytes() != second.read_bytes()


def test_plots_of_earlier_runs_leave_a_page_s_own_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "core-gone.svg").write_text("<svg/>")
    (tmp_path / "read-me.txt").write_text("kept")
    page.draw_alone(run, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "core-speed-by-length.svg",
        "read-me.txt",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(200, "200"), (1e3, "1k"), (1e6, "1M"), (2.5e9, "2.5G"), (0.05, "0.05")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert page.short(value) == text
