"""What a run says about the machine, and what it must not say."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest

from benchmarks.harness import machine
from benchmarks.harness.machine import Moment
from consensuspr import core


def test_machine_and_build_are_described(repository: Path) -> None:
    about = machine.describe()
    assert about.cores >= 1
    assert about.memory_bytes > 1 << 28
    assert about.python.endswith(platform.python_version())
    assert about.backend == core.BACKEND
    assert about.normal_form == core.NORMAL_FORM_VERSION
    assert {"numpy", "grpcio"} <= set(about.libraries)
    assert about.commit


def test_nothing_names_the_host_or_a_folder(repository: Path) -> None:
    text = machine.describe().model_dump_json()
    assert str(repository) not in text
    assert str(Path.home()) + "/" not in text


@pytest.mark.parametrize(
    ("busy", "own", "share"), [(10.0, 10.0, 0.0), (10.0, 5.0, 0.5), (3.0, 5.0, 0.0)]
)
def test_what_others_took_is_what_was_not_ours(
    monkeypatch: pytest.MonkeyPatch, busy: float, own: float, share: float
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = Moment(wall=100.0, busy=50.0, own=7.0, load=0.0)
    after = Moment(wall=105.0, busy=50.0 + busy, own=7.0 + own, load=1.0)
    assert after.others_since(before) == pytest.approx(share)


def test_own_work_is_in_the_clocks() -> None:
    before = Moment.now()
    while time.process_time() < before.own + 0.05:
        sum(range(10_000))
    after = Moment.now()
    assert after.own >= before.own + 0.04
    assert after.busy >= before.busy
    assert 0 <= after.others_since(before) <= 1
