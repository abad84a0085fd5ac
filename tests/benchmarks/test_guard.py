"""The guard: which changes pass, which fail, and the sentences that it prints."""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import guard
from consensuspr import core

BUILD = {"processor": platform.machine(), "core": "GCC 12", "python": "3"}


def counts(core: float = 40.0, python: float = 1000.0, **build: str) -> dict[str, Any]:
    """Return a run of one probe of each kind; ``core_`` and ``python_`` change the build."""
    changed = {name.rstrip("_"): value for name, value in build.items()}
    return {"build": {**BUILD, **changed}, "core": {"match": core}, "python": {"score": python}}


@pytest.mark.parametrize(
    ("found", "failing"),
    [
        (counts(), []),
        (counts(core=43.9, python=1149), []),
        (counts(core=44.1), ["match"]),
        (counts(python=1151), ["score"]),
        (counts(core=80, python=2000), ["match", "score"]),
        # A gain must go into the baseline, or it hides a later loss.
        (counts(core=36.5), []),
        (counts(core=36.0), ["match"]),
        # Another compiler or interpreter gets more room, and its gains mean nothing.
        (counts(core=51.9, core_="GCC 14"), []),
        (counts(core=52.1, core_="GCC 14"), ["match"]),
        (counts(core=20, core_="GCC 14"), []),
        (counts(core=44.1, python_="3.12"), ["match"]),
        (counts(python=1299, python_="3.12"), []),
        (counts(python=1301, python_="3.12"), ["score"]),
    ],
)
def test_counts_against_the_baseline(found: dict[str, Any], failing: list[str]) -> None:
    rows, failures = guard.compare(counts(), found)
    assert [row[0] for row in rows] == ["match", "score"]
    assert [sentence.split()[0] for sentence in failures] == failing


def test_a_probe_without_baseline_fails() -> None:
    found = counts()
    found["core"] = {"new": 1.0}
    failures = guard.compare(counts(), found)[1]
    assert [sentence.split()[0] for sentence in failures] == ["new", "match"]
    assert all(guard.UPDATE in sentence for sentence in failures)


def test_a_change_that_costs_fails_until_it_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter([counts(), counts(), counts(core=48), counts(core=48), counts(core=48)])
    monkeypatch.setattr(guard, "BASELINE", tmp_path / "guard.json")
    monkeypatch.setattr(shutil, "which", lambda _: "valgrind")
    monkeypatch.setattr(core, "BACKEND", "native")
    monkeypatch.setattr(guard, "count", lambda: next(runs))
    assert [guard.main(words) for words in (["--update"], [], [])] == [0, 0, 1]
    assert "match takes 48 instructions, baseline 40: more than 10% more" in capsys.readouterr().out
    assert [guard.main(["--update"]), guard.main([])] == [0, 0]


def test_without_valgrind_the_guard_skips_and_require_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert [guard.main([]), guard.main(["--require"]), guard.main(["--update"])] == [0, 1, 1]
    assert "Instructions are not counted: valgrind is not installed." in capsys.readouterr().out


DONE = """for last; do case $last in --callgrind-out-file=*) out=${last#*=};; esac; done
echo '[["a", "core", 10], ["b", "python", 4]]' >$last/done.json
"""
DUMPS = (
    'at=0; for total in 999 7 100 8 60; do at=$((at + 1)); echo "totals: $total" >$out.$at; done'
)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (DONE + DUMPS, None),
        (DONE + "echo totals: 1 >$out.1", "callgrind wrote no total for a"),
        (DONE + "for at in 1 2 3 4 5; do echo >$out.$at; done", "callgrind wrote no total for a"),
        ("echo starting >&2; echo no memory >&2; exit 3", "ended with code 3: no memory"),
    ],
)
def test_a_count_is_what_ran_between_two_marks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str | None
) -> None:
    program = tmp_path / "valgrind"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(guard, "workloads", lambda: iter([]))
    if reason:
        with pytest.raises(guard.CountingError, match=reason):
            guard.count()
    else:
        found = guard.count()
        assert (found["core"], found["python"]) == ({"a": 10.0}, {"b": 15.0})
        assert found["build"]["python"] == sys.version


@pytest.mark.slow
@pytest.mark.skipif(core.BACKEND != "native", reason="the guard counts the compiled core")
def test_the_baseline_has_every_probe_and_every_probe_is_right(tmp_path: Path) -> None:
    (tmp_path / "workloads").write_bytes(pickle.dumps(list(guard.workloads())))
    guard.run_probes(tmp_path)
    ran = json.loads((tmp_path / "done.json").read_bytes())
    baseline = json.loads(guard.BASELINE.read_bytes())
    assert [name for name, _, _ in ran] == [*baseline["core"], *baseline["python"]]
    assert re.match(r"GCC|clang", baseline["build"]["core"])
