"""The service suite: every contender's answers, the sizes it compares, and what it refuses."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("consensuspr.loadtest")

from benchmarks.children.peers import check
from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, WrongAnswerError
from benchmarks.processes import listening
from benchmarks.suites import service
from benchmarks.suites.service import ASYNC, ECHO, OVERLAPPED, SCORING, SINGLES, SYNC, Field, Work
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.loadtest.stats import LoadTally

COUNT = 8


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return Context(
        full=False, seed=3, rounds=1, data=None, scratch=tmp_path_factory.mktemp("scratch")
    )


@pytest.fixture(scope="module")
def work(context: Context) -> Iterator[Work]:
    with service.prepared(context, COUNT) as made:
        yield made


@pytest.fixture(scope="module")
def field(context: Context, work: Work) -> Iterator[Field]:
    with service.running(work, context.scratch) as started:
        yield started


def test_rollouts_are_of_the_size_that_the_target_names(work: Work) -> None:
    assert len(work.rollouts) == COUNT
    assert all(9_000 < len(rollout.response) < 11_000 for rollout in work.rollouts)


def test_every_way_to_ask_a_real_server_gives_the_right_scores(field: Field, work: Work) -> None:
    ways = field.ways(COUNT)
    expected = work.score(COUNT)[0]
    for name in (SYNC, ASYNC, SINGLES):
        assert ways[name]() == expected, name
    assert ways[OVERLAPPED]() == [expected] * service.UNDER_WAY


def test_a_server_that_scores_otherwise_is_not_timed(
    field: Field, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, identity = work.score(COUNT)
    scores[3].reward = 0.123
    monkeypatch.setattr(Work, "score", lambda self, count: (scores, identity))
    with pytest.raises(WrongAnswerError, match="does not give the scores"):
        field.ways(COUNT)


def test_the_echo_carries_as_much_both_ways(field: Field) -> None:
    reply = field.ways(COUNT)[ECHO]()
    assert isinstance(reply, bytes)
    assert COUNT * 20 < len(reply) < COUNT * 500


@pytest.mark.skipif(bool(service.missing_for_json()), reason="FastAPI is not installed")
def test_http_with_json_gives_the_right_scores(context: Context, work: Work) -> None:
    with service.json_server(work, context.scratch) as way:
        found = way(COUNT)()
    assert isinstance(found, list)
    assert [one["reward"] for one in found] == [score.reward for score in work.score(COUNT)[0]]


def test_scores_that_differ_are_refused(work: Work) -> None:
    scores = work.score(COUNT)[0]
    check("same", scores, list(scores))
    with pytest.raises(WrongAnswerError, match="short does not give"):
        check("short", scores[:-1], scores)


def test_a_process_that_does_not_listen_is_told_of_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such dataset')"]
    with pytest.raises(RuntimeError, match="no such dataset"), listening(command, tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "seconds", "ratio"),
    [(SYNC, 0.55, 1.1), (OVERLAPPED, 1.8, 0.9)],
)
def test_the_ratio_is_of_one_batch_over_echo_and_scoring(
    name: str, seconds: float, ratio: float
) -> None:
    found = service.a_rollout({ECHO: 0.1, SCORING: 0.4, name: seconds}, COUNT)
    assert found[SCORING] == pytest.approx(0.4e6 / COUNT)
    assert service.over_floor(found, name) == pytest.approx(ratio)


def test_the_overload_target_is_the_median_of_the_ratios_of_percentiles() -> None:
    pairs = [
        (service.Load(80.0, 0.0, 0.05), service.Load(95.0, shed, 0.05 * ratio))
        for shed, ratio in ((0.4, 2.5), (0.5, 2.0), (0.6, 1.5))
    ]
    result = SuiteResult(suite="service", title="")
    service.report_overload(100.0, pairs, result)
    (check,) = result.checks
    assert check.target == "overload_p99"
    assert check.value == pytest.approx(2.0)
    assert check.note.startswith("median of 1.5, 2.0, 2.5; 50 % refused")
    assert {figure.name: figure.value for figure in result.figures}["refused at 200 %"] == 50.0


def test_a_server_that_gets_no_core_is_no_failure_of_the_suite(
    context: Context, work: Work, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was due after the warm-up is refused, as long as the requests before it wait."""
    refused = LoadTally()
    refused.sent = refused.shed = 50
    monkeypatch.setattr(service, "perform", lambda *_: SimpleNamespace(tally=refused, checked=None))
    starved = service._load(field.address, LoadSettings(rate=9.0), work)
    assert starved == service.Load(0.0, 1.0, math.inf)

    alone = service.Load(100.0, 0.0, 0.05)
    monkeypatch.setattr(service, "_reward_server", lambda *_: nullcontext((field.address, 1)))
    monkeypatch.setattr(service, "_load", lambda _, how, __: starved if how.rate else alone)
    result = SuiteResult(suite="service", title="")
    service.overload(context, work, result)
    assert result.checks == []
    assert result.notes == ["overload: not measured, other programs took the server's core"]


def test_goodput_says_where_the_load_generator_was_the_limit(
    context: Context, work: Work, field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: str, how: LoadSettings, *__: Any, **___: Any) -> service.Load:
        return service.Load(100.0, 0.0, 0.05, how.rate == 300.0)

    monkeypatch.setattr(service, "_reward_server", lambda *_: nullcontext((field.address, 1)))
    monkeypatch.setattr(service, "_load", load)
    result = SuiteResult(suite="service", title="")
    service.goodput(context, work, result)
    notes = {figure.name: figure.note for figure in result.figures}
    same = "of 3 runs: 100, 100, 100"
    assert notes == {
        "done at 100 %": same,
        "done at 200 %": same,
        "done at 300 %": f"{same}; in 3 of them the load generator was the limit",
    }


def test_the_http_endpoints_reading_is_measured(context: Context) -> None:
    result = SuiteResult(suite="service", title="")
    service.http_reading(context, result)
    names = [figure.name for figure in result.figures]
    assert "json.loads" in names
    assert "naming a prompt's problem" in names


def test_a_score_log_is_compared_on_what_it_has_written(
    context: Context, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "COUNTS", (COUNT,))
    monkeypatch.setattr(service, "LOGGED_BATCHES", 50)
    result = SuiteResult(suite="service", title="")
    service.logged(context, work, result)
    [check] = result.checks
    assert (check.target, "10 KB with its text" in check.note) == ("score_log", True)
    assert check.value is not None
    assert check.value > 0
    monkeypatch.setattr(service, "LogReader", lambda *_: SimpleNamespace(read=list))
    with pytest.raises(WrongAnswerError, match="the score log has 0 texts of 408 rollouts"):
        service.logged(context, work, result)
