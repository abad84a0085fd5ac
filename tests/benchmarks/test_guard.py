"""The guard: which changes pass, which fail, and the sentences that it prints."""

from __future__ import annotations

import json
import pickle
import platform
import re
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


def test_without_valgrind_the_guard_skips_and_require_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert [guard.main([]), guard.main(["--require"]), guard.main(["--update"])] == [0, 1, 1]
    assert "Instructions are not counted: valgrind is not installed." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(core.BACKEND != "native", reason="the guard counts the compiled core")
def test_the_baseline_has_every_probe_and_every_probe_is_right(tmp_path: Path) -> None:
    (tmp_path / "workloads").write_bytes(pickle.dumps(list(guard.workloads())))
    guard.run_probes(tmp_path)
    ran = json.loads((tmp_path / "done.json").read_bytes())
    baseline = json.loads(guard.BASELINE.read_bytes())
    assert [name for name, _, _ in ran] == [*baseline["core"], *baseline["python"]]
    assert re.match(r"GCC|clang", baseline["build"]["core"])
