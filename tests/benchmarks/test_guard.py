"""The guard: what it lets pass, what it fails for, and what it says then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.guard import __main__ as command
from benchmarks.guard import baseline, counting, probes, ratios
from benchmarks.guard.baseline import (
    TRIES,
    Counts,
    Facts,
    Measure,
    RatioCheck,
    Verdict,
    compare,
    judge,
    sentences,
)
from benchmarks.guard.probes import REFERENCE, Kind
from benchmarks.harness.machine import Moment
from benchmarks.harness.measure import REPOSITORY
from consensuspr.core import BACKEND

FACTS = Facts(
    processor="x86_64", vectors="avx2", core="GCC 12", python="CPython 3.11.7", protobuf="7.36.2"
)
CORE, PYTHON = "match: prose", "score a batch"


def counts(
    core: float = 40.0, python: float = 1000.0, reference: float = 500.0, **facts: str
) -> Counts:
    """Return a run of one core probe, one Python probe and the reference.

    ``facts`` are those of FACTS to change; ``core_`` and ``python_`` are core and python.
    """
    changed = {name.rstrip("_"): value for name, value in facts.items()}
    measures = {
        CORE: Measure(kind=Kind.CORE, unit="byte", instructions=core),
        PYTHON: Measure(kind=Kind.PYTHON, unit="rollout", instructions=python),
        REFERENCE: Measure(kind=Kind.REFERENCE, unit="loop", instructions=reference),
    }
    return Counts(facts=FACTS.model_copy(update=changed), inputs="abc", measures=measures)


KEPT, MORE, LESS = Verdict.KEPT, Verdict.COSTS_MORE, Verdict.COSTS_LESS


@pytest.mark.parametrize(
    ("found", "core", "python", "failing"),
    [
        (counts(), KEPT, KEPT, []),
        # Built alike: 10 % for the core, 15 % for Python.
        (counts(core=43.9), KEPT, KEPT, []),
        (counts(core=44.1), MORE, KEPT, [CORE]),
        (counts(core=48.0), MORE, KEPT, [CORE]),
        (counts(python=1149), KEPT, KEPT, []),
        (counts(python=1151), KEPT, MORE, [PYTHON]),
        (counts(core=80, python=2000), MORE, MORE, [CORE, PYTHON]),
        # A gain has to be kept, or it is room for a loss.
        (counts(core=36.5), KEPT, KEPT, []),
        (counts(core=36.0), LESS, KEPT, [CORE]),
        # Another compiler: the core has wide room, and what it gains says nothing.
        (counts(core=51.9, core_="GCC 14"), KEPT, KEPT, []),
        (counts(core=52.1, core_="GCC 14"), MORE, KEPT, [CORE]),
        (counts(core=20, core_="GCC 14"), LESS, KEPT, []),
        (counts(core=51.9, vectors="sse4_2"), KEPT, KEPT, []),
        # Another Python: the core's room stays small, Python is scaled by the reference.
        (counts(core=44.1, python_="CPython 3.12.1"), MORE, KEPT, [CORE]),
        (counts(python=2500, reference=1000, python_="CPython 3.12.1"), KEPT, KEPT, []),
        (counts(python=2700, reference=1000, python_="CPython 3.12.1"), KEPT, MORE, [PYTHON]),
        (counts(python=1000, reference=250, python_="CPython 3.12.1"), KEPT, MORE, [PYTHON]),
        (counts(python=1250, protobuf="8.0"), KEPT, KEPT, []),
        # The same release, built otherwise: the reference tells.
        (counts(python=800, reference=400), KEPT, KEPT, []),
        (counts(python=1100, reference=400), KEPT, MORE, [PYTHON]),
    ],
)
def test_counts_against_the_baseline(
    found: Counts, core: Verdict, python: Verdict, failing: list[str]
) -> None:
    judged = compare(counts(), found)
    assert {one.name: one.verdict for one in judged} == {CORE: core, PYTHON: python}
    assert [one.name for one in judged if one.fails] == failing


def test_what_costs_more_is_told_in_one_sentence() -> None:
    before, now = counts(), counts(core=50)
    assert sentences(before, now, compare(before, now)) == [
        "match: prose takes 50 instructions a byte, baseline 40, limit 44; if that is meant, "
        "accept it with `python -m benchmarks.guard --update`."
    ]


def test_probes_and_inputs_that_the_baseline_does_not_know_fail() -> None:
    before, now = counts(), counts()
    now.measures["new"] = now.measures.pop(CORE)
    now.inputs = "def"
    told = sentences(before, now, compare(before, now))
    assert [sentence.split(" ", 2)[:2] for sentence in told] == [
        ["new", "has"],
        ["match:", "prose"],
        ["The", "fixed"],
    ]
    assert all(baseline.UPDATE in sentence for sentence in told)


def test_another_kind_of_processor_is_not_compared() -> None:
    now = counts(processor="aarch64")
    assert baseline.incomparable(counts(), now) == (
        "the baseline was counted on x86_64, this is aarch64"
    )
    with pytest.raises(ValueError, match="this is aarch64"):
        compare(counts(), now)


def test_a_baseline_reads_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    baseline.save(counts(core=38.64159265), path)
    assert baseline.load(path) == counts(core=38.6416)


@pytest.mark.parametrize(
    ("at_most", "measured", "ratios", "holds"),
    [
        (True, [1.0], [1.0], True),
        (True, [2.0], [2.0], True),
        (True, [2.1, 1.9], [2.1, 1.9], True),
        (True, [2.1, 2.2, 2.3, 1.0], [2.1, 2.2, 2.3], False),
        (False, [2.5], [2.5], True),
        (False, [1.0, 1.9, 2.0], [1.0, 1.9, 2.0], True),
        (False, [1.0, 1.9, 1.5, 9.0], [1.0, 1.9, 1.5], False),
    ],
)
def test_a_ratio_has_three_tries(
    at_most: bool, measured: list[float], ratios: list[float], holds: bool
) -> None:
    given = iter(measured)
    outcome = judge(RatioCheck("server", "a batch over an echo", 2.0, at_most, lambda: next(given)))
    assert (outcome.ratios, outcome.holds) == (ratios, holds)
    assert len(outcome.ratios) <= TRIES


def test_a_missed_ratio_is_told_in_one_sentence() -> None:
    given = iter([2.5, 3.25, 2.75])
    outcome = judge(RatioCheck("server", "a batch over an echo", 2.0, True, lambda: next(given)))
    assert outcome.sentence() == (
        "server: a batch over an echo is 2.5x at best, and has to be at most 2x "
        "(tried 3 times: 2.5x, 3.25x, 2.75x)."
    )


@pytest.mark.parametrize(
    ("cores", "others", "left_out"),
    [
        (1, 0.0, ["Two threads are not checked: there is one core."]),
        (2, 0.0, []),
        (2, 0.1, []),
        (2, 0.5, ["Two threads are not checked: other programs take 50% of the 2 cores."]),
        (16, 0.5, []),
    ],
)
def test_two_threads_are_checked_where_two_cores_are_free(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    others: float,
    left_out: list[str],
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr(Moment, "others_since", lambda *_: others)
    monkeypatch.setattr(ratios, "_LOOK_S", 0.0)
    checks, said = ratios.checks(tmp_path)
    assert said == left_out
    assert ("two threads" in {check.name for check in checks}) == (left_out == [])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Counts]]:
    """Let the command see the runs that the test puts here, and a baseline of its own."""
    runs: list[Counts] = []
    monkeypatch.setattr(counting, "missing", lambda: None)
    monkeypatch.setattr(counting, "count", lambda: runs.pop(0))
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.json")
    yield runs
    assert runs == []


def run(*options: str) -> tuple[int, str]:
    """Run the command without its timed part; return exit code and output in one line."""
    result = CliRunner().invoke(command.app, ["--no-ratios", *options])
    return result.exit_code, " ".join(result.output.split())


def test_a_change_that_costs_fails_until_it_is_accepted(counted: list[Counts]) -> None:
    counted += [counts(), counts(), counts(core=48), counts(core=48), counts(core=48)]
    assert run("--update")[0] == 0
    assert run()[0] == 0
    code, output = run()
    assert code == 1
    assert "match: prose takes 48 instructions a byte, baseline 40, limit 44" in output
    assert "+20.0%" in run("--update")[1]
    assert run()[0] == 0


def test_without_valgrind_the_guard_says_that_it_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, output = run()
    assert code == 1  # the ratios are left out too
    assert "Instruction counts are skipped: valgrind is not installed." in output
    assert "Nothing was checked" in output
    assert "Nothing costs more" not in output
    assert run("--require")[0] == 1
    assert run("--update")[0] == 1


def test_a_failed_count_ends_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, counted: list[Counts]
) -> None:
    def fail() -> Counts:
        raise counting.CountingError("callgrind wrote 3 counts where 59 were expected")

    monkeypatch.setattr(counting, "count", fail)
    assert run() == (1, "Nothing was counted: callgrind wrote 3 counts where 59 were expected.")


@pytest.fixture
def valgrind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Let ``valgrind`` be a script: dumps go to ``$out`` with a number, the result to ``$last``.

    There is nothing to count, so that no inputs are made.
    """
    monkeypatch.setattr(probes, "build", lambda: probes.Inputs([], [], [], [], []))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(script: str) -> None:
        find = "for last; do case $last in --callgrind-out-file=*) out=${last#*=};; esac; done"
        program = tmp_path / "valgrind"
        program.write_text(f"#!/bin/sh\n{find}\n{script}\n", encoding="utf-8")
        program.chmod(0o755)

    return install


RESULT = """echo '[{"name": "a", "kind": "core", "unit": "byte", "units": 10},
{"name": "b", "kind": "python", "unit": "answer", "units": 4}]' >$last
"""


def test_a_probe_is_what_was_executed_between_its_two_marks(
    valgrind: Callable[[str], None],
) -> None:
    valgrind(
        RESULT + 'at=0; for total in 999 7 100 8 60; do at=$((at + 1)); echo "totals: $total" '
        ">$out.$at; done; echo totals: 5 >$out"
    )
    found = counting.count()
    assert found.measures == {
        "a": Measure(kind=Kind.CORE, unit="byte", instructions=10.0),
        "b": Measure(kind=Kind.PYTHON, unit="answer", instructions=15.0),
    }
    assert found.facts == baseline.facts()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (RESULT + "echo totals: 1 >$out.1", "callgrind wrote 1 counts where 5 were expected"),
        ("echo starting >&2; echo no memory >&2; exit 3", "ended with code 3: no memory"),
        ("exit 1", "ended with code 1: it said nothing"),
        (
            RESULT + "for at in 1 2 3 4 5; do echo >$out.$at; done",
            "callgrind wrote no total into callgrind.out.3",
        ),
    ],
)
def test_a_run_that_counted_nothing_is_no_run(
    valgrind: Callable[[str], None], script: str, reason: str
) -> None:
    valgrind(script)
    with pytest.raises(counting.CountingError, match=reason):
        counting.count()


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "native", reason="the guard counts the compiled core")
def test_the_baseline_has_every_probe_and_every_probe_is_right(tmp_path: Path) -> None:
    """Run the counted process itself, uncounted: it checks each result before it goes on."""
    digest = probes.write(probes.build(), tmp_path / "inputs.json")
    (tmp_path / "scratch").mkdir()
    words = [str(tmp_path / name) for name in ("inputs.json", "scratch", "result.json")]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.guard.probes", *words], check=True, cwd=REPOSITORY
    )
    done = json.loads((tmp_path / "result.json").read_bytes())
    committed = baseline.load(baseline.BASELINE)
    assert {probe["name"]: (probe["kind"], probe["unit"]) for probe in done} == {
        name: (one.kind, one.unit) for name, one in committed.measures.items()
    }
    assert committed.inputs == digest
