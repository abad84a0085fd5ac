"""The results of suites and of a run: what is written to ``results.json`` and read back."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.harness.machine import Machine


class Result(BaseModel):
    """A part of the results file: what it does not know is an error, not a number."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Figure(Result):
    """One measured number; ``parameters`` are the row of the table that it stands in."""

    name: str
    value: float
    unit: str
    parameters: dict[str, str | int | float] = {}
    note: str = ""


class Check(Result):
    """A figure that a target asks for: ``target`` is a key of ``targets.TARGETS``.

    ``value`` is None where it was not measured.  ``note`` says how it was measured or what
    bounds it, and is never empty: any check may turn out a miss, and a miss has to be explained.
    """

    target: str
    value: float | None
    note: str = Field(min_length=1)


class Series(Result):
    """One plot: named lines of (x, y)."""

    name: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    lines: dict[str, list[tuple[float, float]]]


class SuiteResult(Result):
    """All that one suite found; ``skipped`` says why it found nothing."""

    suite: str
    title: str
    figures: list[Figure] = []
    checks: list[Check] = []
    series: list[Series] = []
    notes: list[str] = []
    skipped: str | None = None


class State(Result):
    """What a suite ran on, and what happened on the machine meanwhile.

    ``seconds`` is how long the suite took; ``load_start`` and ``load_end`` are the 1-minute load
    averages before and after; ``others`` is the share of the machine's processor time that other
    programs took meanwhile, 0 to 1.  ``dirty`` says whether the checkout differed from ``commit``.
    """

    started: str
    commit: str
    dirty: bool
    seconds: float
    load_start: float
    load_end: float
    others: float


class Run(Result):
    """One run of ``python -m benchmarks``: its settings, the machine, every suite's result.

    ``failures`` maps a suite that failed to the last line of its error, ``states`` each suite to
    the state it ran in.  Suites that were merged from an earlier run keep their own states.
    """

    command: str
    started: str
    full: bool
    seed: int
    rounds: int
    data: bool
    machine: Machine
    states: dict[str, State]
    suites: list[SuiteResult]
    failures: dict[str, str]
    warnings: list[str]
