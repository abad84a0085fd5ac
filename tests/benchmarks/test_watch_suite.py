"""The suite of the page, run for real on little."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import Context
from benchmarks.suites import watch


def test_every_view_is_asked_for(tmp_path: Path) -> None:
    result = watch.measure(Context(False, 1, 1, None, tmp_path), 20_000)
    views = {f.parameters["view"] for f in result.figures if f.name == "a view"}
    assert views == set(watch.VIEWS)
    [searched] = [f.value for f in result.figures if f.name == "texts searched in a second"]
    assert 0 < searched <= 20_000
    assert [check.value for check in result.checks] == [None] * 3
