"""The files of a load test, and what stands in them and on the terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from consensuspr.errors import InputError
from consensuspr.loadtest.load import Pool, Target
from consensuspr.loadtest.processes import RunProgress, RunResult
from consensuspr.loadtest.report import check_outputs, render_page, report_of, write_output
from consensuspr.loadtest.result import LoadTest, ScoreCheck, ScoreDifference
from consensuspr.loadtest.saturation import RateStep, Search
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.loadtest.stats import LoadTally
from consensuspr.loadtest.terminal import live_table, print_result
from consensuspr.scoring.types import Rollout, ScoreOptions
from consensuspr.web.figures import PageReport, document
from consensuspr.wire.server_info import DatasetInfo, ServerInfo
from tests.web.kept import kept_documents

HOSTILE = "<script>alert(1)</script>\x1b[2J'\""

SERVER = ServerInfo(
    server_version="1",
    protocol_version=1,
    normal_form_version="1",
    answer_version="1",
    core_backend="native",
    datasets=(DatasetInfo("default", "sha256:0", 1, 1, 1, 0, 0),),
    max_response_bytes=1,
    max_message_bytes=1,
    max_rollouts=1,
    max_inline_nodes=1,
    max_expressions_per_node=1,
    max_expression_bytes=1,
    max_inline_bytes=1,
)


def tally_of(answered: int, failed: int = 0, shed: int = 0) -> LoadTally:
    tally = LoadTally()
    tally.sent = answered + failed + shed
    tally.answered, tally.failed, tally.shed = answered, failed, shed
    tally.rollouts, tally.num_bytes = 3 * answered, 300 * answered
    tally.codes.update({"OK": answered, "UNAVAILABLE": failed, "RESOURCE_EXHAUSTED": shed})
    tally.codes = +tally.codes
    tally.statuses["OK"] = 3 * answered
    if answered:
        tally.digests["sha256:0"] = answered
    if failed:
        tally.examples["UNAVAILABLE"] = HOSTILE
    for number in range(answered):
        its = tally.timeline.at(number / 10)
        its.due += 1
        its.answered += 1
        its.rollouts += 3
        its.latency.record(0.001 * (1 + number % 7))
        tally.latency.record(0.001 * (1 + number % 7))
    return tally


def scored_as(**statuses: int) -> LoadTally:
    tally = tally_of(9)
    tally.statuses = Counter(statuses)
    return tally


EQUAL = ScoreCheck(compared=5)


TARGET = Target("127.0.0.1:1", SERVER, "problems.jsonl", ScoreOptions())


def a_test(tally: LoadTally, checked: ScoreCheck | None = EQUAL, **given: Any) -> LoadTest:
    """Return a load test; what is not one of its attributes is a setting, or of its result."""
    result = RunResult(
        tally, given.pop("elapsed_s", 10.0), cpu_shares=given.pop("cpu_shares", [0.1])
    )
    result.interrupted = given.pop("interrupted", False)
    parts: dict[str, Any] = {
        "target": TARGET,
        "pool": Pool((Rollout("p", "text"),), "1 rollout"),
        "machine": {"processor": HOSTILE, "cores": 2},
        "began_at": "2025-01-01T00:00:00+00:00",
        "result": result,
        "checked": checked,
    }
    parts |= {name: given.pop(name) for name in ("pool", "search", "target") if name in given}
    return LoadTest(settings=LoadSettings(**(given or {"rate": 10})), **parts)


ANOTHER = replace(
    TARGET, info=replace(SERVER, datasets=(replace(SERVER.datasets[0], digest="sha256:1"),))
)

STEPS = [
    RateStep(10, 10, 30, 0.01, 0.02, 0, 0, stable=True, sustained=True),
    RateStep(20, 12, 36, 0.5, 0.9, 0.2, 0, stable=False, sustained=False, why=f"bad {HOSTILE}"),
    RateStep(15, 0, 0, None, None, 1.0, 0, stable=False, sustained=False, why="nothing"),
]
LATE = RateStep(40, 40, 99, 0.7, 0.8, 0, 0.0456, stable=True, sustained=None, why="p99 is 800.0 ms")

WRONG = ScoreCheck(5, 2, first=ScoreDifference(HOSTILE, "reward", "1.0", "0.5"))


@pytest.mark.parametrize(
    ("test", "faults"),
    [
        (a_test(tally_of(100)), []),
        (a_test(tally_of(100, failed=1)), []),
        (a_test(tally_of(97, failed=3)), [r"^3\.00% .* more than the allowed 1\.00%; .*UNAVAIL"]),
        (a_test(tally_of(10, shed=90)), []),
        (a_test(tally_of(0, failed=4)), [r"^none of 4 requests was answered; most often UNAVAIL"]),
        (a_test(tally_of(0, shed=4)), [r"^none of 4 requests was answered"]),
        (a_test(tally_of(0)), [r"^no request ended"]),
        (a_test(tally_of(0), interrupted=True), []),
        (a_test(tally_of(9), checked=WRONG), [r"^2 of 5 compared scores are wrong; .*reward=1\.0"]),
        (a_test(tally_of(9), target=ANOTHER), [r"^9 replies were scored with another dataset"]),
        (a_test(tally_of(50, failed=50), search=Search(STEPS)), []),
        (a_test(tally_of(50), search=Search(STEPS[1:])), [r"^no rate was sustained"]),
        (a_test(tally_of(50), search=Search([LATE, LATE])), [r"^no rate could be judged: .* late"]),
        (a_test(tally_of(50, failed=50), max_error_rate=0.5), []),
        (a_test(tally_of(9), checked=ScoreCheck(280, undecided=280, unanswered=14)), []),
        (
            a_test(tally_of(9), checked=ScoreCheck(280, undecided=280, unanswered=280)),
            [r"^100\.00% .*\(280 of 280\) .* server left undecided .* allowed 5\.00%"],
        ),
        (a_test(scored_as(UNKNOWN_PROBLEM=27)), [r"^none of 27 .* scored: 27 UNKNOWN_PROBLEM$"]),
        (a_test(scored_as(UNKNOWN_PROBLEM=26, NO_NODES=1)), []),
    ],
)
def test_what_fails_a_test(test: LoadTest, faults: list[str]) -> None:
    found = test.faults()
    assert len(found) == len(faults)
    for fault, wanted in zip(found, faults, strict=True):
        assert re.search(wanted, fault)


def late(seconds: float) -> LoadTally:
    tally = tally_of(100)
    for _ in range(100):
        tally.lag.record(seconds)
    return tally


@pytest.mark.parametrize(
    ("test", "limits"),
    [
        (a_test(late(0.0001)), []),
        (a_test(late(0.004)), []),
        (a_test(late(0.02)), ["left 20."]),
        (a_test(tally_of(100), cpu_shares=[0.2, 0.97]), ["97% of a core"]),
        (a_test(late(0.02), concurrency=8), []),
        (a_test(late(0.02), search=Search(STEPS)), []),
        (a_test(late(0.02), search=Search([*STEPS, LATE, LATE])), ["at 40.0 requests a second"]),
    ],
)
def test_says_when_the_generator_was_the_limit(test: LoadTest, limits: list[str]) -> None:
    found = test.client_limits()
    assert len(found) == len(limits)
    assert all(wanted in said for said, wanted in zip(found, limits, strict=True))


@pytest.mark.parametrize(
    ("settings", "elapsed_s", "measured_s"),
    [
        ({"rate": 1, "duration": 2}, 1.01, 2),
        ({"rate": 10, "duration": 2}, 9.5, 9.5),
        ({"rate": 10, "duration": 3600, "requests": 20}, 1.91, 2),
        ({"rate": 10, "requests": 20}, 1.91, 2),
        ({"rate": 10, "duration": 1, "requests": 20}, 0.91, 1),
        ({"rate": 10, "duration": 99, "requests": 20, "arrivals": "poisson"}, 1.5, 1.5),
        ({"duration": 3600, "requests": 20}, 0.5, 0.5),
    ],
)
def test_throughput_is_not_above_what_was_offered(
    settings: dict[str, Any], elapsed_s: float, measured_s: float
) -> None:
    test = a_test(tally_of(20), elapsed_s=elapsed_s, **settings)
    assert test.measured_s == pytest.approx(measured_s)
    assert test.request_rate == pytest.approx(20 / measured_s)
    assert test.to_json()["elapsed_s"] == test.measured_s
    ended = a_test(tally_of(20), elapsed_s=elapsed_s, interrupted=True, **settings)
    assert ended.measured_s == elapsed_s


def test_a_late_step_that_was_made_twice_is_drawn_once_and_undecided() -> None:
    report = report_of(a_test(tally_of(50), search=Search([STEPS[0], LATE, LATE])))
    [chart] = report.sections[0].scopes[0].charts
    p50, p99 = chart.series
    assert (p50.x, p50.y, p99.y) == ([10, 40], [10, 700], [20, 800])
    assert p50.hollow == [1]
    text = text_of(report)
    assert text.count("undecided: p99 is 800.0 ms, but the load generator was late itself") == 2
    assert "Late ms" in text and "45.60" in text


def text_of(report: PageReport) -> str:
    return json.dumps(document(report), ensure_ascii=False)


PAGES = {
    "passed": a_test(tally_of(100)),
    "failed": a_test(tally_of(90, failed=10), checked=WRONG, interrupted=True),
    "undecided": a_test(tally_of(5), checked=ScoreCheck(5, undecided=5)),
    "nothing": a_test(tally_of(0, failed=3), checked=None),
    "search": a_test(tally_of(50), search=Search(STEPS)),
    "hostile": a_test(tally_of(5), pool=Pool((Rollout("p", "x"),), HOSTILE)),
}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("passed", ["Passed", "5 scores compared", "all equal", "Latency over time", "rollouts/s"]),
        ("undecided", ["Passed", "0 in full, 5 nodes only; no difference"]),
        ("failed", ["Failed", "2 of 5 compared scores are wrong", "UNAVAILABLE", "ended early"]),
        ("nothing", ["none of 3 requests was answered", "nothing to draw"]),
        ("search", ["Latency against load", "requests/s sustained", "Steps of the search"]),
        ("hostile", ["<script>alert(1)</script>"]),
    ],
)
def test_what_stands_in_a_page(name: str, says: list[str]) -> None:
    text = text_of(report_of(PAGES[name]))
    assert [said for said in says if said not in text] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_its_report_and_nothing_of_it_as_markup(name: str) -> None:
    page = render_page(PAGES[name])
    assert kept_documents(page) == {"report": document(report_of(PAGES[name]))}
    assert "alert(1)" not in page


@pytest.mark.parametrize("name", PAGES)
def test_json_and_csv_hold_the_figures(tmp_path: Path, name: str) -> None:
    test = PAGES[name]
    write_output(tmp_path / "a.json", test)
    figures = json.loads((tmp_path / "a.json").read_text())
    assert figures["passed"] == (not test.faults())
    assert figures["requests"]["answered"] == test.tally.answered
    assert figures["address"] == "127.0.0.1:1"
    assert figures["server"]["datasets"][0]["digest"] == "sha256:0"
    write_output(tmp_path / "a.csv", test)
    with (tmp_path / "a.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    if test.search is not None:
        assert [row["rate"] for row in rows] == ["10", "20", "15"]
        assert figures["search"]["sustained"]["rate"] == 10
    else:
        assert sum(int(row["answered"]) for row in rows) == test.tally.answered
        assert len(rows) == len(figures["timeline"])


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a.pdf"], r"must end in one of \.html, \.json, \.csv, got '.*a\.pdf'"),
        (["a"], "must end in one of"),
        (["a.json", "a.json"], "twice"),
        (["gone/a.json"], "there is no folder"),
    ],
)
def test_files_that_could_not_be_written_are_refused(
    tmp_path: Path, names: list[str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        check_outputs([tmp_path / name for name in names])


def test_what_was_not_answered_is_a_gap() -> None:
    tally = tally_of(3)
    tally.timeline.at(5.0).due += 1
    latency = report_of(a_test(tally)).sections[0].scopes[0].charts[0]
    p50 = latency.series[0]
    assert p50.y[0] is not None and None in p50.y


def shown(test: LoadTest) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    print_result(test, console)
    return console.export_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("passed", ["Rollouts/s", "p99.9", "request OK", "rollout OK", "5 scores compared"]),
        ("failed", ["request UNAVAILABLE", "2 WRONG", "note: ended early by Ctrl-C"]),
        ("undecided", ["0 in full, 5 nodes only"]),
        ("nothing", ["… failed", "note: no score was compared"]),
        ("search", ["Offered/s", "no: bad", "(unstable)", "highest sustained rate: 10.0 requests"]),
    ],
)
def test_the_terminal_says_the_same(name: str, says: list[str]) -> None:
    text = shown(PAGES[name])
    assert [said for said in says if said not in text] == []
    assert "\x1b[2J" not in text


def test_the_terminal_tells_when_the_generator_was_the_limit() -> None:
    assert "the load generator was the limit: 1 % of the requests left 20." in shown(
        a_test(late(0.02))
    )


def test_a_terminal_is_repainted_with_the_last_seconds() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(live_table(RunProgress(-0.5, LoadTally(), 0)))
    console.print(live_table(RunProgress(9.99, tally_of(100, failed=3, shed=2), 7)))
    warming, table = console.export_text().split("warming up")
    assert "Time" in warming
    for cell in ("10 s", "10.0", "30", "7", "100", "2", "3"):  # ten requests of three a second
        assert f" {cell} " in table.replace("\n", " ") + " "
