"""The results of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from benchmarks.harness.results import Run


@pytest.fixture
def run() -> Run:
    """One suite that missed a target, met another and drew a plot; one that failed."""
    from benchmarks.harness.machine import Machine
    from benchmarks.harness.results import Check, Figure, Run, Series, State, SuiteResult

    return Run(
        command="python -m benchmarks --seed 1 --rounds 2",
        started="2026-01-01 00:00 UTC",
        full=False,
        seed=1,
        rounds=2,
        data=False,
        machine=Machine(
            cpu="a processor",
            cores=2,
            memory_bytes=4 << 30,
            kernel="Linux 6.1 x86_64",
            python="CPython 3.11.0",
            backend="native",
            compiler="GCC 12",
            normal_form="1",
            libraries={"numpy": "2.0"},
            commit="0123456789ab",
            dirty=True,
        ),
        states={
            "core": State(
                started="2026-01-01 00:00 UTC",
                commit="0123456789ab",
                dirty=True,
                seconds=3.0,
                load_start=0.1,
                load_end=1.5,
                others=0.02,
            ),
            "broken": State(
                started="2026-01-01 00:01 UTC",
                commit="0123456789ab",
                dirty=False,
                seconds=0.5,
                load_start=1.5,
                load_end=1.25,
                others=0.0,
            ),
        },
        suites=[
            SuiteResult(
                suite="core",
                title="The core",
                figures=[
                    Figure(name="speed", value=512.3, unit="MB/s", parameters={"text bytes": 200}),
                    Figure(
                        name="speed", value=1234.5, unit="MB/s", parameters={"text bytes": 10_000}
                    ),
                    Figure(name="gain | loss", value=1.5, unit="x", parameters={"threads": 2}),
                ],
                checks=[
                    Check(target="second_core", value=1.5, note="memory is the limit"),
                    Check(target="cost_by_length", value=1.05, note="dearest at 1 KB"),
                ],
                series=[
                    Series(
                        name="Speed by length",
                        x_label="bytes",
                        y_label="MB/s",
                        log_x=True,
                        log_y=True,
                        lines={"core": [(200, 512.3), (10_000, 1234.5)]},
                    )
                ],
                notes=["One note of the suite."],
            )
        ],
        failures={"broken": "exit code 1: error: it broke"},
        warnings=["the checkout differed from commit 0123456789ab"],
    )
