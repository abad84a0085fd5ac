"""How a suite measures: answers before times, contenders in turn, memory as the kernel counts it.

A contender that is wrong is not measured.  On a machine that others use too, a time alone says
little: what is compared is therefore measured alternately, in each round every contender once, in
an order that turns by one, so that a slow moment hits all of them.  Ratios of the best (or the
median) rounds are what holds.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_PROC = Path("/proc")
# A shorter timed part would measure the clock and the loop around it.
SHORTEST_S = 0.005


class WrongAnswerError(Exception):
    """A contender's answer is not the known one; the text names both."""


def require(
    contender: str, found: Sequence[Sequence[bool]], expected: Sequence[Sequence[bool]]
) -> None:
    """Demand that ``contender`` found just the nodes that each text is known to reach.

    ``found`` and ``expected`` hold one row a text with one flag a node.  Raises
    WrongAnswerError, which names the first text that differs.
    """
    if len(found) != len(expected):
        raise WrongAnswerError(
            f"{contender} answered for {len(found)} texts, and there are {len(expected)}"
        )
    for index, (row, known) in enumerate(zip(found, expected, strict=True)):
        if list(row) != list(known):
            raise WrongAnswerError(
                f"{contender} found nodes {_indexes(row)} in text {index}, which reaches "
                f"{_indexes(known)} of {len(known)}"
            )


def _indexes(row: Sequence[bool]) -> list[int]:
    return [index for index, flag in enumerate(row) if flag]


@dataclass(frozen=True)
class Settings:
    """What all suites of a run are told.

    ``data`` is the folder that holds ``rollouts/`` and ``problems/``, None where there is none:
    generated text stands in.
    """

    full: bool
    seed: int
    rounds: int
    data: Path | None

    def words(self) -> list[str]:
        """Return them as options of ``python -m benchmarks.suites``."""
        words = ["--seed", str(self.seed), "--rounds", str(self.rounds)]
        words += ["--full"] if self.full else []
        return words + (["--data", str(self.data.resolve())] if self.data else [])


@dataclass(frozen=True)
class Context(Settings):
    """The settings of one suite, whose ``scratch`` exists, is empty and is removed afterwards."""

    scratch: Path

    def say(self, text: str) -> None:
        """Write one line of progress to standard error."""
        print(f"  {text}", file=sys.stderr, flush=True)


def fastest(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the seconds of each contender's best round, see :func:`interleaved`."""
    return {name: min(every) for name, every in interleaved(contenders, rounds, clock).items()}


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    shortest_s: float = SHORTEST_S,
) -> dict[str, list[float]]:
    """Time every contender once a round, in an order that turns by one each round.

    A first call of each, not counted, warms it up and tells how often it has to be repeated for
    a timed part of at least ``shortest_s``; the times returned, one a round, are the seconds of
    one call.  The garbage collector rests while the clock runs.  ``clock`` is
    ``time.process_time`` for work of one thread and ``time.perf_counter`` for what users wait for.

    Raises ValueError where there is nothing to measure.
    """
    if rounds < 1 or not contenders:
        raise ValueError(f"needs rounds >= 1 and a contender, got {rounds} and {len(contenders)}")
    names = list(contenders)
    loops = {name: _loops(contenders[name], clock, shortest_s) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        turn = round_ % len(names)
        gc.collect()
        for name in names[turn:] + names[:turn]:
            seconds[name].append(_time(contenders[name], loops[name], clock))
    return seconds


def _loops(function: Callable[[], object], clock: Callable[[], float], shortest_s: float) -> int:
    loops = 1
    function()
    while (spent := loops * _time(function, loops, clock)) < shortest_s:
        # Aim a little past the goal, and never more than 100 times on from one look.
        loops = max(loops + 1, min(loops * 100, int(1.2 * loops * shortest_s / max(spent, 1e-9))))
    return loops


def _time(function: Callable[[], object], loops: int, clock: Callable[[], float]) -> float:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        if loops == 1:
            start = clock()
            function()
            return clock() - start
        repeats = range(loops)
        start = clock()
        for _ in repeats:
            function()
        return (clock() - start) / loops
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of one process, or of several added up.

    Attributes:
        rss: all that is resident.
        anonymous: of it, what is of no file: the process's own, never given back to a file.
        mapped: of it, pages of files, which are shared by all that map them.
        pss: resident, each shared page divided by the number of processes that have it; added
            up over processes, no page counts twice.
    """

    rss: int = 0
    anonymous: int = 0
    mapped: int = 0
    pss: int = 0


def resident(*pids: int) -> Resident:
    """Return what processes hold now, added up; without any, what this one does.

    Raises OSError where a process is gone or the kernel does not tell (Linux alone does).
    """
    rss = anonymous = pss = 0
    for pid in pids or ("self",):
        sizes = _kilobytes(_PROC / str(pid) / "smaps_rollup")
        rss += sizes["Rss"]
        anonymous += sizes["Anonymous"]
        pss += sizes["Pss"]
    return Resident(rss=rss, anonymous=anonymous, mapped=rss - anonymous, pss=pss)


@dataclass(frozen=True)
class Memory:
    """Resident bytes of this process before and after a call, and the most during it."""

    before: int
    after: int
    peak: int


def peak_memory(function: Callable[[], object]) -> Memory:
    """Call ``function`` and return what this process held before, after and at most.

    The result of the call is still held when ``after`` is read.  The kernel keeps the peak, so
    that short ones and those of threads count too.  Raises OSError where it does not (Linux
    alone has it).
    """
    gc.collect()
    forget_peak()
    before = _status_bytes("VmRSS")
    held = function()
    after, most = _status_bytes("VmRSS"), peak()
    del held
    return Memory(before, after, max(most, before, after))


def forget_peak() -> None:
    """Begin anew with the peak of this process."""
    (_PROC / "self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the most bytes that were resident since :func:`forget_peak`."""
    return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int:
    sizes = _kilobytes(_PROC / "self/status")
    if field not in sizes:
        raise OSError(f"the kernel does not tell {field} of a process: Linux alone does")
    return sizes[field]


def _kilobytes(path: Path) -> dict[str, int]:
    """Return the sizes in a file of ``/proc``, in bytes, by their names."""
    lines = path.read_text(encoding="ascii").splitlines()
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB"))
    return {name: int(size.split()[0]) * 1024 for name, size in pairs}
