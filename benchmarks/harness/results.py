"""The results of suites and of a run, the targets that figures are judged by, and their table.

Results are written to ``results.json`` and read back; the table, each target with its figure and
verdict side by side, is what all is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from rich import box
from rich.table import Table
from rich.text import Text

from benchmarks.harness.machine import Machine

# The row of a table that a figure stands in.
Parameters: TypeAlias = Mapping[str, str | int | float]


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
    """A figure that a target asks for: ``target`` is a key of ``TARGETS``.

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

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        parameters: Parameters | None = None,
        note: str = "",
    ) -> None:
        """Add a figure."""
        of = dict(parameters or {})
        self.figures.append(Figure(name=name, value=value, unit=unit, parameters=of, note=note))

    def check(self, target: str, value: float | None, note: str) -> None:
        """Add the figure that a target asks for."""
        self.checks.append(Check(target=target, value=value, note=note))

    def plot(
        self,
        name: str,
        x_label: str,
        y_label: str,
        lines: Mapping[str, Sequence[tuple[float, float]]],
        log_y: bool = True,
    ) -> None:
        """Add a plot over a logarithmic axis."""
        of = {line: list(points) for line, points in lines.items()}
        plot = Series(
            name=name, x_label=x_label, y_label=y_label, log_y=log_y, log_x=True, lines=of
        )
        self.series.append(plot)


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
    states: dict[str, State] = {}
    suites: list[SuiteResult] = []
    failures: dict[str, str] = {}
    warnings: list[str] = []


class Verdict(StrEnum):
    """How a figure stands to its target."""

    AIM_MET = "aim met"
    MET = "met"
    MISSED = "MISSED"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Target:
    """One promise.

    ``at_least`` is the figure that must be reached (None: only an aim is set), ``aim`` the one
    hoped for (None: no further aim that is a number).  ``higher_is_better`` says on which side
    of them a figure has to be; reaching one exactly is enough.  ``bounded_by`` says what a miss
    is due to wherever it was looked into.
    """

    what: str
    at_least: float | None
    aim: float | None
    unit: str
    higher_is_better: bool
    bounded_by: str = ""

    def verdict(self, value: float | None) -> Verdict:
        """Judge ``value``, in this target's unit; None where it was not measured.

        Where only an aim is set, a figure short of it is MISSED.
        """
        if value is None:
            return Verdict.NOT_MEASURED
        if self.aim is not None and self._reaches(value, self.aim):
            return Verdict.AIM_MET
        if self.at_least is not None and self._reaches(value, self.at_least):
            return Verdict.MET
        return Verdict.MISSED

    def bound(self, value: float | None) -> str:
        """Write a bound with its sign and unit: ``≥ 30x``; ``–`` where there is none."""
        if value is None:
            return "–"
        return f"{'≥' if self.higher_is_better else '≤'} {self.number(value)}"

    def number(self, value: float) -> str:
        """Write a value with this target's unit."""
        digits = f"{value:,.0f}" if abs(value) >= 100 and self.unit != "%" else f"{value:.4g}"
        return f"{digits}{self.unit}" if self.unit in ("x", "%") else f"{digits} {self.unit}"

    def _reaches(self, value: float, bound: float) -> bool:
        return value >= bound if self.higher_is_better else value <= bound


_BRANCHES = (
    "half of the core's time is mispredicted branches, on text that cannot be foreseen "
    '(docs/design/core.md, "Where the time goes")'
)

TARGETS: dict[str, Target] = {
    "core_vs_memcpy_gsm8k": Target(
        "memcpy's bandwidth over the core's, statements and guard on, GSM8K rollouts",
        55,
        30,
        "x",
        False,
        _BRANCHES,
    ),
    "core_vs_memcpy_r1": Target(
        "memcpy's bandwidth over the core's, R1 rollouts of 11 KB", 75, 40, "x", False, _BRANCHES
    ),
    "core_vs_peer_gsm8k": Target(
        "core against `re` + `pyahocorasick` with eight rules, GSM8K rollouts",
        38,
        70,
        "x",
        True,
        _BRANCHES,
    ),
    "core_vs_peer_r1": Target(
        "core against `re` + `pyahocorasick`, R1 rollouts of 11 KB", 30, 50, "x", True, _BRANCHES
    ),
    "nested_patterns": Target(
        "64 patterns inside one another, against ordinary text", 3, 1.5, "x", False
    ),
    "hostile_text": Target("other hostile text, against ordinary text", 1.5, 1, "x", False),
    "second_core": Target(
        "speed of two threads against one",
        1.8,
        1.95,
        "x",
        True,
        "where both spend the same processor time, the second core was not free",
    ),
    "cost_by_length": Target("cost per byte, 1 KB to 1 MB rollouts", 1.3, 1.1, "x", False),
    "cost_by_nodes": Target("cost per byte, 5 to 500 nodes", 1.3, 1.1, "x", False),
    "server_vs_echo_plus_scoring": Target(
        "server against empty echo + in-process scoring, batches of 64–256 × 10 KB",
        1.3,
        1.1,
        "x",
        False,
    ),
    "server_overlapped": Target(
        "the same, several batches under way, on two cores", None, 1.0, "x", False
    ),
    "own_share_us": Target(
        "what client and server add to scoring and an empty echo, a rollout of 10 KB",
        12,
        8,
        "µs",
        False,
    ),
    "score_log": Target(
        "server that logs every rollout of 10 KB with its text, against one that logs nothing",
        1.5,
        1.25,
        "x",
        False,
        "half of it is the packing of the texts, which no request waits for",
    ),
    "whole_step": Target(
        "whole step, 2,048 × 10 KB, against plain Python in verl's naive manager",
        15,
        30,
        "x",
        True,
        "bounded by the core, and by what verl itself does for each sample whatever the reward",
    ),
    "verl_step": Target(
        "step of 10 KB rollouts in verl's own worker, against a reward of nothing",
        1.2,
        1.1,
        "x",
        False,
    ),
    "answers_gsm8k": Target("answers decided without SymPy, GSM8K", 99.5, 99.9, "%", True),
    "answers_math": Target("answers decided without SymPy, MATH", 98.5, 99.5, "%", True),
    "answer_median_us": Target("an answer, median", 15, 3, "µs", False),
    "ready_5577_s": Target("dataset of 5,577 problems: ready to score", 1, 0.2, "s", False),
    "ready_5577_mb": Target("dataset of 5,577 problems: memory", 60, 20, "MB", False),
    "million_resident_bytes": Target(
        "a million problems: resident bytes of each", 2048, None, "bytes", False
    ),
    "watch_first_s": Target("page of a million samples: first view", 1, None, "s", False),
    "watch_view_s": Target("page of a million samples: slowest view", 0.3, None, "s", False),
    "watch_mb": Target("page of a million samples: memory", 500, None, "MB", False),
    "overload_p99": Target(
        "p99 at twice the capacity (of what is accepted), over p99 at 80 % load",
        3,
        None,
        "x",
        False,
    ),
}


_COLOURS = {
    Verdict.AIM_MET: "green",
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NOT_MEASURED: "dim",
}


@dataclass(frozen=True)
class Row:
    """One target as it is shown."""

    key: str
    what: str
    at_least: str
    aim: str
    figure: str
    verdict: Verdict
    note: str


def rows(run: Run) -> list[Row]:
    """Judge every target, in the order of ``TARGETS``; the last check of one counts."""
    checks: dict[str, Check] = {
        check.target: check for suite in run.suites for check in suite.checks
    }
    table = []
    for key, target in TARGETS.items():
        check = checks.get(key)
        value = None if check is None else check.value
        verdict = target.verdict(value)
        said = [check.note] if check else []
        if verdict is Verdict.MISSED and target.bounded_by:
            said.append(target.bounded_by)
        table.append(
            Row(
                key=key,
                what=target.what,
                at_least=target.bound(target.at_least),
                aim=target.bound(target.aim),
                figure="–" if value is None else target.number(value),
                verdict=verdict,
                note="; ".join(said),
            )
        )
    return table


def terminal(run: Run) -> Table:
    """Return the table for a terminal; the notes stand below it, see ``notes``."""
    table = Table(title="targets", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", ratio=1)
    for name in ("at least", "aim", "figure"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows(run):
        table.add_row(
            row.what, row.at_least, row.aim, row.figure, Text(row.verdict, _COLOURS[row.verdict])
        )
    return table


def notes(run: Run) -> list[str]:
    """Return what is to be said of figures, misses first, each with its target and verdict."""
    noted = [row for row in rows(run) if row.note]
    noted.sort(key=lambda row: row.verdict is not Verdict.MISSED)
    return [f"{row.what} ({row.verdict}): {row.note}" for row in noted]
