"""The core suite, run for real on little text, and with a contender that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, WrongAnswerError
from benchmarks.suites import core
from benchmarks.suites.core import Contender, Corpus, Sizes, Workload, plant
from consensuspr.core import Matcher

TINY = Sizes(
    corpus_bytes=120_000,
    peer_bytes=30_000,
    twin_bytes=10_000,
    thread_bytes=200_000,
    memcpy_bytes=1 << 20,
    hostile_bytes=2_000,
    lengths=(200, 1_000, 10_000),
    nodes=(1, 5, 20),
)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """One round on generated text."""
    return Context(full=False, seed=1, rounds=1, data=None, scratch=tmp_path)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    """The suite's result on little text."""
    scratch = tmp_path_factory.mktemp("scratch")
    return core.measure(Context(False, 1, 1, None, scratch), TINY)


@pytest.mark.parametrize(
    "target",
    [
        "core_vs_memcpy_gsm8k",
        "core_vs_peer_gsm8k",
        "nested_patterns",
        "hostile_text",
        "cost_by_length",
        "cost_by_nodes",
    ],
)
def test_every_target_of_the_core_gets_its_figure(result: SuiteResult, target: str) -> None:
    (check,) = [check for check in result.checks if check.target == target]
    assert (check.value or 0.0) > 0


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("length in bytes", {200, 1_000, 10_000}),
        ("nodes", {1, 5, 20}),
        ("threads", {1, 2}),
        ("contender", {"consensuspr core", "re + pyahocorasick", "re + in", "pure-Python twin"}),
    ],
)
def test_figures_cover_what_they_are_by(
    result: SuiteResult, parameter: str, values: set[object]
) -> None:
    found = {
        figure.parameters[parameter] for figure in result.figures if parameter in figure.parameters
    }
    assert values <= found


def test_plots_have_the_core_and_a_peer(result: SuiteResult) -> None:
    assert [len(series.lines) for series in result.series] == [2, 2]
    for series in result.series:
        assert {len(points) for points in series.lines.values()} == {3}


@pytest.mark.parametrize("size", [200, 1_000, 10_000])
def test_the_same_bytes_whatever_the_length(size: int) -> None:
    corpus = Corpus(None, 1, 120_000)
    cut = corpus.lengths(size)
    assert cut.size == pytest.approx(corpus.lengths(5_000).size, rel=0.1)
    assert not any(row[-1] for row in cut.expected)
    assert any(any(row) for row in cut.expected)


def test_one_node_of_each_problem_is_in_no_text() -> None:
    work = Corpus(None, 1, 120_000).planted(1_000)
    assert not any(row[-1] for row in work.expected)
    assert len(work.problems) == -(-len(work.texts) // work.group)


def test_repeats_keep_texts_and_matchers_together() -> None:
    work = plant(["some text\nand more\n"] * 20, seed=1).repeated(4_000)
    flags = [m.match(text) for m, text in zip(work.matchers, work.texts, strict=True)]
    assert flags == work.expected
    assert len(work.texts) % work.group == 0


@pytest.mark.parametrize(
    "make", [core.core, core.twin, core.re_pyahocorasick, core.re_in], ids=lambda m: m.__name__
)
def test_contenders_find_what_is_planted(make: Callable[[Workload], Contender]) -> None:
    work = Corpus(None, 2, 60_000).planted(3_000)
    assert make(work).rows() == work.expected


def test_ahocorasick_rs_finds_what_is_planted() -> None:
    pytest.importorskip("ahocorasick_rs")
    work = Corpus(None, 2, 60_000).planted(3_000)
    assert core.re_ahocorasick_rs(work).rows() == work.expected


def test_a_wrong_contender_is_refused_before_it_is_timed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def blind(work: Workload) -> Contender:
        rows = [[False] * len(row) for row in work.expected]
        return Contender(lambda: ran.append("timed"), lambda: rows, work)

    monkeypatch.setattr(core, "re_in", blind)
    found = SuiteResult(suite="core", title="The core")
    with pytest.raises(WrongAnswerError, match=r"re \+ in found nodes \[\] in text"):
        core.against_peers(context, TINY, Corpus(None, 1, 60_000), found)
    assert ran == []
    assert found.figures == []


def test_a_core_that_misses_a_node_is_refused(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blind(Workload):
        @property
        def matchers(self) -> list[Matcher]:
            return [Matcher([["0=1"]] * len(row)) for row in self.expected]

    work = Corpus(None, 1, 60_000).planted(10_000)
    blind = Blind(work.texts, work.problems, work.group, work.expected)
    monkeypatch.setattr(Corpus, "planted", lambda *_: blind)
    found = SuiteResult(suite="core", title="The core")
    with pytest.raises(WrongAnswerError, match="match, bytes found nodes"):
        core.against_memcpy(context, TINY, Corpus(None, 1, 60_000), found)
    assert found.figures == []


def test_real_rollouts_are_grouped_by_problem_and_judged_by_the_whole_pass() -> None:
    nodes = {"a": [["2*3=6"], ["6+1=7"]], "b": [["x=9"]], "none": []}
    rows = [
        {"problem_id": name, "response": response}
        for name, response in (
            ("a", "2*3=6"),
            ("b", "so x = 9"),
            ("a", "nothing"),
            ("none", "x=9"),
            ("b", "y = 9"),
            ("a", "6 + 1 = 7"),
        )
    ]
    work = core.real_work(rows, nodes)
    assert work.group == 3  # of 3 and 2 rollouts a problem the first that is as frequent
    assert work.texts == [b"2*3=6", b"nothing", b"6 + 1 = 7"]
    assert work.expected == [[True, False], [False, False], [False, True]]
    assert core.core(work, whole=True).rows() == work.expected


def test_a_peer_that_does_another_job_is_not_timed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(work: Workload) -> Contender:
        rows = [[not flag for flag in row] for row in core.core(work).rows()]
        return Contender(lambda: None, lambda: rows, work)

    monkeypatch.setattr(core, "re_pyahocorasick", blind)
    found = SuiteResult(suite="core", title="The core")
    corpus = Corpus(None, 1, TINY.corpus_bytes)
    with pytest.raises(WrongAnswerError, match="the peer agrees on 0% of the nodes of gsm8k alone"):
        core.on_real_problems(context, TINY, corpus, found)
    assert not found.figures
