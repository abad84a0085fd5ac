"""The committed baseline and what a run may differ from it, and ratios with their bounds.

Counts are those of one compiler and one interpreter.  Where a run has both in common with the
baseline, the room is small.  Elsewhere it is wide, and what runs in the interpreter is first
scaled by the reference probe: plain Python that this project does not change, counted in both
runs.  Another kind of processor executes other instructions; there is nothing to compare then.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from benchmarks.guard.probes import REFERENCE, Kind
from benchmarks.harness import machine

BASELINE = Path(__file__).with_name("baseline.json")
UPDATE = "python -m benchmarks.guard --update"

# How much more than its baseline a probe may take.  Built alike, counts repeat to a few
# thousandths, so that the room is for changes that are meant; built otherwise, it is for
# compilers and interpreters, which docs/performance.md has figures of.
ROOM_ALIKE: dict[Kind, float] = {Kind.CORE: 0.10, Kind.PYTHON: 0.15}
ROOM_OTHERWISE: dict[Kind, float] = {Kind.CORE: 0.30, Kind.PYTHON: 0.30}

# One build executes the reference alike to a thousandth; two builds differ by more than this.
_SAME_BUILD = 0.02


class Record(BaseModel):
    """A part of the baseline file."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Facts(Record):
    """What counts depend on beside the code.

    ``vectors`` is the widest instruction set that valgrind shows to the core and to libc,
    ``core`` the compiler that wrote the compiled core.
    """

    processor: str
    vectors: str
    core: str
    python: str
    protobuf: str


class Measure(Record):
    """Instructions for one unit (a byte, a rollout, …)."""

    kind: Kind
    unit: str
    instructions: float


class Counts(Record):
    """One counted run; ``inputs`` is the digest of its fixed inputs."""

    facts: Facts
    inputs: str
    measures: dict[str, Measure]


class Verdict(StrEnum):
    """What a measure is against its baseline."""

    KEPT = "kept"
    COSTS_MORE = "costs more"
    COSTS_LESS = "costs less"
    NEW = "new"
    GONE = "gone"


class Judgement(NamedTuple):
    """One measure beside its baseline; None where one of both is not there.

    ``expected`` is the baseline, scaled where the interpreter is another one; ``room`` is the
    share of it that the measure may take more.  ``fails`` says whether the guard fails for it.
    """

    name: str
    unit: str
    found: float | None
    expected: float | None
    room: float
    verdict: Verdict
    fails: bool

    @property
    def change(self) -> float | None:
        """Return the change as a share of what was expected."""
        if self.found is None or self.expected is None:
            return None
        return self.found / self.expected - 1

    def sentence(self) -> str:
        """Say in one sentence what is wrong, and what to do about it."""
        if self.verdict is Verdict.NEW:
            return f"{self.name} has no baseline; write one with `{UPDATE}`."
        if self.verdict is Verdict.GONE:
            return f"{self.name} is in the baseline but was not counted; drop it with `{UPDATE}`."
        assert self.found is not None and self.expected is not None
        limit = self.expected * (1 + self.room)
        what = (
            f"{self.name} takes {number(self.found)} instructions a {self.unit}, "
            f"baseline {number(self.expected)}"
        )
        if self.verdict is Verdict.COSTS_MORE:
            return f"{what}, limit {number(limit)}; if that is meant, accept it with `{UPDATE}`."
        lost = 1 - 1 / (1 + self.room)
        return (
            f"{what}: more than {lost:.0%} less, which a later change could lose unseen; "
            f"keep it with `{UPDATE}`."
        )


def facts() -> Facts:
    """Return what counts of this installation on this machine depend on."""
    return Facts(
        processor=platform.machine(),
        vectors=_vectors(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        core=machine.describe().compiler,
        python=(
            f"{platform.python_implementation()} {platform.python_version()}, "
            f"{platform.python_compiler()}"
        ),
        protobuf=version("protobuf"),
    )


def load(path: Path) -> Counts:
    """Read a baseline."""
    return Counts.model_validate_json(path.read_bytes())


def save(counts: Counts, path: Path) -> None:
    """Write a baseline, its numbers to six digits."""
    rounded = counts.model_copy(
        update={
            "measures": {
                name: one.model_copy(update={"instructions": float(f"{one.instructions:.6g}")})
                for name, one in counts.measures.items()
            }
        }
    )
    path.write_text(rounded.model_dump_json(indent=2) + "\n", encoding="utf-8")


def incomparable(baseline: Counts, found: Counts) -> str | None:
    """Return why the two have nothing to compare; None where they have."""
    then, now = baseline.facts.processor, found.facts.processor
    if then != now:
        return f"the baseline was counted on {then}, this is {now}"
    return None


def built_alike(baseline: Counts, found: Counts, kind: Kind) -> bool:
    """Say whether both runs have in common all that a kind of probe depends on.

    One release of Python is built in many ways; that both execute the reference alike says that
    they are of one build.
    """
    then, now = baseline.facts, found.facts
    if kind is Kind.CORE:
        return (then.core, then.vectors) == (now.core, now.vectors)
    return then == now and abs(_scale(baseline, found) - 1) <= _SAME_BUILD


def compare(baseline: Counts, found: Counts) -> list[Judgement]:
    """Judge every measure of either; the reference measures nothing of this project.

    Raises:
        ValueError: the two were counted on different kinds of processors, or one of them
            without the reference.
    """
    why = incomparable(baseline, found)
    if why is not None:
        raise ValueError(why)
    names = [*found.measures, *(name for name in baseline.measures if name not in found.measures)]
    return [_judge(name, baseline, found) for name in names if name != REFERENCE]


def sentences(baseline: Counts, found: Counts, judged: Sequence[Judgement]) -> list[str]:
    """Return one sentence for each thing that fails."""
    failed = [one.sentence() for one in judged if one.fails]
    if baseline.inputs != found.inputs:
        failed.append(
            f"The fixed inputs are others ({found.inputs}) than the baseline's "
            f"({baseline.inputs}), so that counts may differ for that alone: `{UPDATE}`."
        )
    return failed


def number(value: float) -> str:
    """Write a count: three digits at least, thousands grouped."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _judge(name: str, baseline: Counts, found: Counts) -> Judgement:
    before, now = baseline.measures.get(name), found.measures.get(name)
    if before is None or now is None:
        either = now or before
        assert either is not None
        return Judgement(
            name,
            either.unit,
            None if now is None else now.instructions,
            None if before is None else before.instructions,
            0.0,
            Verdict.NEW if before is None else Verdict.GONE,
            True,
        )
    alike = built_alike(baseline, found, now.kind)
    room = (ROOM_ALIKE if alike else ROOM_OTHERWISE)[now.kind]
    expected = before.instructions
    if now.kind is Kind.PYTHON and not alike:
        expected *= _scale(baseline, found)
    if now.instructions > expected * (1 + room):
        verdict = Verdict.COSTS_MORE
    elif now.instructions * (1 + room) < expected:
        verdict = Verdict.COSTS_LESS
    else:
        verdict = Verdict.KEPT
    # A gain that the baseline does not know is room for a loss; built otherwise it says nothing.
    fails = verdict is Verdict.COSTS_MORE or (verdict is Verdict.COSTS_LESS and alike)
    return Judgement(name, now.unit, now.instructions, expected, room, verdict, fails)


def _scale(baseline: Counts, found: Counts) -> float:
    """Return the reference's instructions over those that it had in the baseline."""
    try:
        then, now = (counts.measures[REFERENCE].instructions for counts in (baseline, found))
    except KeyError:
        raise ValueError(f"a baseline and a run both need {REFERENCE!r}") from None
    return now / then


def _vectors(cpuinfo: str) -> str:
    """Return the widest vectors that valgrind passes on: it knows none beyond AVX2."""
    flags: set[str] = set()
    for line in cpuinfo.splitlines():
        if line.partition(":")[0].strip() in ("flags", "Features"):
            flags.update(line.partition(":")[2].split())
    return next((name for name in ("avx2", "avx", "sse4_2", "asimd") if name in flags), "none")


# Of a ratio of times; the best counts.  A neighbour's load makes a ratio worse in one try and
# hardly in three; a change that costs a factor makes all of them worse.
TRIES = 3


class RatioCheck(NamedTuple):
    """``measure()`` gives a ratio; ``what`` continues the sentence "… is 1.4x …"."""

    name: str
    what: str
    limit: float
    at_most: bool
    measure: Callable[[], float]

    def holds(self, ratio: float) -> bool:
        """Say whether a ratio keeps the limit; to reach it exactly does."""
        return ratio <= self.limit if self.at_most else ratio >= self.limit


class Outcome(NamedTuple):
    """A check and the ratios of its tries, the last of which decided."""

    check: RatioCheck
    ratios: list[float]

    @property
    def holds(self) -> bool:
        """Say whether one of the tries kept the limit."""
        return self.check.holds(self.ratios[-1])

    def sentence(self) -> str:
        """Say in one sentence what was measured and what the limit is."""
        side = "at most" if self.check.at_most else "at least"
        best = (min if self.check.at_most else max)(self.ratios)
        tries = ", ".join(f"{ratio:.3g}x" for ratio in self.ratios)
        return (
            f"{self.check.name}: {self.check.what} is {best:.3g}x at best, and has to be "
            f"{side} {self.check.limit:g}x (tried {len(self.ratios)} times: {tries})."
        )


def judge(check: RatioCheck) -> Outcome:
    """Measure until a try keeps the limit, three times at most."""
    ratios: list[float] = []
    while len(ratios) < TRIES:
        ratios.append(check.measure())
        if check.holds(ratios[-1]):
            break
    return Outcome(check, ratios)
