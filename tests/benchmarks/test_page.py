"""The page of a results file, its plots, its section about scale, and the table of the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.harness import page, results
from benchmarks.harness.results import TARGETS, Check, Figure, Run, SuiteResult


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
    assert page.targets_block(run) in first
    assert page.targets_block(run).count("commit 0123456789ab with changes, 2026-01-01") == 1


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
        ("core_vs_peer_gsm8k", 14.0, "(MISSED): core 170 MB/s; half of the core's time is"),
        ("whole_step", 5.0, "(MISSED): core 170 MB/s; bounded by the core, and by what verl"),
        ("core_vs_peer_gsm8k", 40.0, "(met): core 170 MB/s\n"),
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
        "![Speed by length](./core-speed-by-length.svg)",
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


def test_the_same_data_gives_the_same_file(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = page.draw(run, tmp_path / "a")
    second = page.draw(run, tmp_path / "b")
    assert [path.name for path in first] == ["core-speed-by-length.svg"]
    assert first[0].read_bytes() == second[0].read_bytes()
    assert first[0].read_bytes().startswith(b"<?xml")


def test_other_data_gives_another_file(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (first,) = page.draw(run, tmp_path / "a")
    run.suites[0].series[0].lines["peer"] = [(200, 20.0), (10_000, 21.0)]
    (second,) = page.draw(run, tmp_path / "b")
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize(
    ("value", "text"), [(200, "200"), (1e3, "1k"), (1e6, "1M"), (2.5e9, "2.5G"), (0.05, "0.05")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert page.short(value) == text


def test_a_training_step_says_what_it_waits_and_what_a_core_feeds(run: Run) -> None:
    found = SuiteResult(suite="step", title="Steps")
    decoded = {"cores": "all on one core", "texts": "real"}
    for side, cost in (("consensuspr's manager", 250.0), ("reward of nothing", 750.0)):
        for how, factor in (("tokens decoded", 1.0), ("texts given", 0.1)):
            of = {**decoded, "side": f"{side}, {how}"}
            found.add("verl's worker, a rollout", cost * factor, "us", of)
    found.add("one sample at 40/s, p99", 20.0, "ms", {"reward": "consensuspr", "workers": 2})
    text = page.step_block(run.model_copy(update={"suites": [found]}))
    # 2,048 × 4,096 tokens of 4 bytes, 250 µs for each 10 KB: 40 MB/s.
    assert "33.6 MB of text: rewards take 0.84 s of one core" in text
    assert "A reward of nothing takes 2.5 s there" in text
    assert "**One core feeds** 1,000 GPUs that write 10,000 tokens/s, or 10,000 that write" in text
    # 8 GPUs of 1,000 tokens/s: 1,747.6 s.
    assert row_of(text, "8")[1:] == [
        "1.75e+03 s – 175 s",
        "< 0.01 % – 0.011 %",
        "0.048 % – 0.48 %",
        "< 0.01 % – 0.06 %",
    ]


def test_without_verl_the_training_step_was_not_measured(run: Run) -> None:
    assert "not measured in this run (suite `step`" in page.step_block(run)


def section(run: Run, *suites: SuiteResult) -> str:
    """Return the section about scale of a run of these suites."""
    return page.scale_section(run.model_copy(update={"suites": list(suites)}))


def service(microseconds: float, singles: float, batches: float) -> SuiteResult:
    """Return the service's figures for batches of 256, beside others that do not count."""
    rows: list[tuple[str, float, str, int, str]] = [
        ("server, RewardClient", 999.0, "1", 64, ""),
        ("server, RewardClient", microseconds, "1", 256, ""),
        ("server, RewardClient", 555.0, "all", 256, "in Ray's interpreter, a run of its own"),
        ("server, RewardClient", batches, "all", 256, ""),
        ("server, single samples at once", singles, "all", 256, ""),
        ("reply on the wire", 100.0, "1", 256, ""),
    ]
    return SuiteResult(
        suite="service",
        title="",
        figures=[
            Figure(
                name=name,
                value=value,
                unit="µs a rollout",
                parameters={"rollouts": rollouts, "cores": cores},
                note=note,
            )
            for name, value, cores, rollouts, note in rows
        ],
    )


def ray_calls() -> SuiteResult:
    """Return hops of 2 and 3 ms, and a batch of many requests that takes twice as long."""
    rows = [("Serve adds", 3.0, 64), ("Serve adds", 2.0, 1), ("Serve adds", 500.0, 1024)]
    rows += [("Serve against plain", 9.0, 1), ("Serve against plain", 2.0, 1024)]
    return SuiteResult(
        suite="ray_calls",
        title="",
        figures=[
            Figure(name=name, value=value, unit="ms", parameters={"rollouts": rollouts})
            for name, value, rollouts in rows
        ],
    )


def checks() -> SuiteResult:
    """Return the checks that the section reads."""
    return SuiteResult(
        suite="core",
        title="",
        checks=[
            Check(target="second_core", value=1.5, note="two threads"),
            Check(target="million_resident_bytes", value=2_000, note="mapped"),
        ],
    )


# 50 us for 10 kB: 200 MB/s.  A GPU writes 4 to 40 kB/s.
FULL = (service(50, singles=400, batches=80), ray_calls(), checks())
FOUND = page.Constants(
    core_bytes_per_s=200e6,
    singles=5.0,
    second_core=1.5,
    problem_bytes=2_000,
    serve_hops=((1, 2.0), (64, 3.0)),
    serve_rate=0.5,
    reply_bytes=100.0,
)


def test_constants_are_those_of_the_run(run: Run) -> None:
    assert page.constants(run.model_copy(update={"suites": list(FULL)})) == FOUND
    assert FOUND.gpus_per_core == (5_000, 50_000)


@pytest.mark.parametrize(
    "row",
    [
        "8 | 32 kB/s – 320 kB/s | 3.2 – 32 | 0.256 Mbit/s – 2.56 Mbit/s | 1 | 1",
        "512 | 2.05 MB/s – 20.5 MB/s | 200 – 2,000 | 16.4 Mbit/s – 164 Mbit/s | 1 | 1",
        # 163.84 MB/s of text are 0.82 of a core, or 4.1 where samples cost five times as much.
        "4,096 | 16.4 MB/s – 164 MB/s | 1,600 – 16,000 | 131 Mbit/s – 1.31 Gbit/s | 1 | 1 – 5",
        # 400 MB/s are two cores and no more; a GPU more is a third.
        "10,000 | 40 MB/s – 400 MB/s | 4,000 – 40,000 | 320 Mbit/s – 3.2 Gbit/s | 1 – 2 | 1 – 10",
        "10,001 | 40 MB/s – 400 MB/s | 4,000 – 40,000 | 320 Mbit/s – 3.2 Gbit/s | 1 – 3 | 2 – 11",
    ],
)
def test_a_cluster_by_hand(row: str) -> None:
    cells = row.split(" | ")
    assert page.cluster_row(int(cells[0].replace(",", "")), FOUND) == cells


@pytest.mark.parametrize(
    "sentence",
    [
        "**One core** scores 200 MB/s of text in batches of 256",
        "keep pace with 5,000 GPUs that write 10,000 tokens/s, or 50,000 that write 1,000",
        "a rollout sent as a single sample takes 5x as long as in a batch",
        # 1 % of the step, over 60 % of it in which text is written: a sixtieth.
        "a core serves 83 to 830 GPUs",
        # 64 cores, of which each adds 3/4 of one: 48 cores.
        "by its cores at 240,000 to 2,400,000 GPUs",
        # 25 Gbit/s are 3.125 GB/s.
        "its link is full at 78,000 GPUs of 10,000 tokens/s and 780,000 of 1,000",
        "one at a time: +2 ms with 1 rollout, +3 ms with 64 rollouts; with several under way it "
        "carries 50% of what the plain server does",
        "4 kB/s to 40 kB/s of text into the server for each GPU that generates, and 40 bytes/s to "
        "400 bytes/s of scores back (100 bytes a rollout)",
        "| 4,096 | 16.4 MB/s – 164 MB/s | 1,600 – 16,000 | 131 Mbit/s – 1.31 Gbit/s | 1 | 1 – 5 |",
        "| 1,000,000 | 2 GB |",
    ],
)
def test_the_section_says_it(run: Run, sentence: str) -> None:
    assert sentence in section(run, *FULL)


def test_what_was_not_measured_is_said_and_not_made_up(run: Run) -> None:
    text = section(run)
    assert text.count(page.MISSING) == 6
    assert "| 8 | 32 kB/s – 320 kB/s | 3.2 – 32 | 0.256 Mbit/s – 2.56 Mbit/s | – | – |" in text
    assert "nan" not in text
    assert section(run, *FULL).count(page.MISSING) == 0


def test_a_figure_of_fewer_problems_is_not_taken_for_a_million(run: Run) -> None:
    quick = SuiteResult(
        suite="problems",
        title="",
        checks=[Check(target="million_resident_bytes", value=None, note="1,900 bytes of 100,000")],
    )
    text = section(run, quick)
    assert "Memory of large datasets: not measured in this run" in text
    assert "1,900" not in text


def test_a_part_of_the_run_gives_a_part_of_the_section(run: Run) -> None:
    text = section(run, FULL[0])
    assert "scores 200 MB/s" in text
    assert text.count(page.MISSING) == 3
