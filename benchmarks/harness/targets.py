"""What the project promises about its speed, and how a figure is judged by it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    "core_vs_memcpy": Target(
        "memcpy's bandwidth over that of normalise + match, 10 KB rollouts",
        30,
        15,
        "x",
        False,
        _BRANCHES,
    ),
    "core_vs_re_pyahocorasick": Target(
        "normalise + match against `re` + `pyahocorasick`, 10 KB rollouts",
        30,
        60,
        "x",
        True,
        _BRANCHES,
    ),
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
    "whole_step": Target(
        "whole step, 2,048 × 10 KB, against plain Python in verl's naive manager",
        15,
        30,
        "x",
        True,
        "bounded by the core, and by what verl itself does for each sample whatever the reward",
    ),
    "answers_gsm8k": Target("answers decided without SymPy, GSM8K", 99.5, 99.9, "%", True),
    "answers_math": Target("answers decided without SymPy, MATH", 98.5, 99.5, "%", True),
    "answer_median_us": Target("an answer, median", 15, 3, "µs", False),
    "ready_5577_s": Target("dataset of 5,577 problems: ready to score", 1, 0.2, "s", False),
    "ready_5577_mb": Target("dataset of 5,577 problems: memory", 60, 20, "MB", False),
    "million_resident_bytes": Target(
        "a million problems: resident bytes of each", 2048, None, "bytes", False
    ),
    "overload_p99": Target(
        "p99 at twice the capacity (of what is accepted), over p99 at 80 % load",
        3,
        None,
        "x",
        False,
    ),
}
