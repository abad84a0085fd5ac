"""The page that is written of a results file, and the table of the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from benchmarks.harness import page, results
from benchmarks.harness.results import TARGETS, Check, Run


def rendered(run: Run) -> str:
    """Return the page of ``run`` after a way through JSON."""
    return page.render(Run.model_validate_json(run.model_dump_json()))


def row_of(text: str, what: str) -> list[str]:
    """Return the cells of the first table row that begins with ``what``."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {what} |"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_the_page_begins_with_every_target(run: Run) -> None:
    text = rendered(run)
    first = text[: text.index("## Ratios")]
    for target in TARGETS.values():
        assert f"| {target.what} |" in first


@pytest.mark.parametrize(
    ("key", "cells"),
    [
        ("second_core", ["≥ 1.8x", "≥ 1.95x", "1.5x", "**MISSED**"]),
        ("cost_by_length", ["≤ 1.3x", "≤ 1.1x", "1.05x", "aim met"]),
        ("whole_step", ["≥ 15x", "≥ 30x", "–", "not measured"]),
    ],
)
def test_target_figure_and_verdict_stand_side_by_side(run: Run, key: str, cells: list[str]) -> None:
    assert row_of(rendered(run), TARGETS[key].what)[1:] == cells


def test_a_miss_stands_with_its_reason(run: Run) -> None:
    assert "(MISSED): memory is the limit; where both spend" in rendered(run)


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("core_vs_re_pyahocorasick", 14.0, "(MISSED): core 170 MB/s; half of the core's time is"),
        ("whole_step", 5.0, "(MISSED): core 170 MB/s; bounded by the core, and by what verl"),
        ("core_vs_re_pyahocorasick", 40.0, "(met): core 170 MB/s\n"),
        ("million_resident_bytes", None, "(not measured): core 170 MB/s\n"),
    ],
)
def test_a_miss_that_was_looked_into_says_what_bounds_it(
    run: Run, key: str, value: float | None, note: str
) -> None:
    run.suites[0].checks = [Check(target=key, value=value, note="core 170 MB/s")]
    assert note in rendered(run) + "\n"


def test_a_check_without_a_note_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        Check(target="second_core", value=1.5, note="")


def test_each_suite_has_the_state_it_was_measured_in(run: Run) -> None:
    text = rendered(run)
    assert row_of(text, "core")[1:] == [
        *["2026-01-01 00:00 UTC", "0123456789ab with changes", "3", "0.1", "1.5", "2%"]
    ]
    assert row_of(text, "broken")[1:3] == ["2026-01-01 00:01 UTC", "0123456789ab"]


def test_the_page_says_how_and_where_it_was_measured(run: Run) -> None:
    text = rendered(run)
    for part in (
        "a processor, 2 cores, 4.0 GiB",
        "commit 0123456789ab with changes",
        "`python -m benchmarks --only core`",
        "**Warning**: the checkout differed",
        "One note of the suite.",
        "![Speed by length](images/performance/core-speed-by-length.svg)",
    ):
        assert part in text


def test_figures_of_the_same_parameters_are_one_table(run: Run) -> None:
    text = rendered(run)
    assert (
        "| what | text bytes | figure |\n| --- | --- | --- |\n| speed | 200 | 512 MB/s |\n" in text
    )
    assert "| speed | 10,000 | 1,234 MB/s |" in text
    assert row_of(text, "The core") == ["The core", r"gain \| loss", "threads 2", "1.5x", ""]


def test_a_suite_that_failed_is_on_the_page(run: Run) -> None:
    assert "## broken\n\nThis suite failed in this run: exit code 1: error: it broke." in rendered(
        run
    )


def test_a_skipped_suite_says_why(run: Run) -> None:
    run.suites[0].skipped = "verl is not installed"
    assert "Not measured in this run: verl is not installed." in rendered(run)


def test_the_terminal_shows_the_same_verdicts(run: Run) -> None:
    run.suites[0].checks.append(Check(target="overload_p99", value=2.5, note="best of three"))
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(results.terminal(run))
    lines = console.export_text().splitlines()
    for what, cells in {
        "second_core": ["≥ 1.8x", "≥ 1.95x", "1.5x", "MISSED"],
        "overload_p99": ["≤ 3x", "–", "2.5x", "met"],
    }.items():
        (line,) = [line for line in lines if TARGETS[what].what in line]
        assert re.split(r"\s{2,}", line.strip())[1:] == cells
    assert [note.rpartition("(")[2] for note in results.notes(run)] == [
        "MISSED): memory is the limit; where both spend the same processor time, the second "
        "core was not free",
        "aim met): dearest at 1 KB",
        "met): best of three",
    ]
