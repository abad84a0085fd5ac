"""Clocks and memory: how a time or a number of bytes is taken.

On a machine that others use too, a time alone says little.  What is compared is therefore
measured alternately: in each round every contender runs once, in an order that turns by one, so
that a slow moment hits all of them.  Ratios of the best (or the median) rounds are what holds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# A shorter timed part would measure the clock and the loop around it.
SHORTEST_S = 0.005
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timing:
    """The seconds that one call took, in each round."""

    all: tuple[float, ...]

    @property
    def best(self) -> float:
        """Seconds of the fastest round."""
        return min(self.all)

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.all)


@dataclass(frozen=True)
class Memory:
    """Resident bytes of this process before and after a call, and the most during it."""

    before: int
    after: int
    peak: int


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    shortest_s: float = SHORTEST_S,
) -> dict[str, Timing]:
    """Time every contender once a round, in an order that turns by one each round.

    A first call of each, not counted, warms it up and tells how often it has to be repeated for
    a timed part of at least ``shortest_s``; the times returned are those of one call.  The
    garbage collector rests while the clock runs.  ``clock`` is ``time.process_time`` for work
    of one thread and ``time.perf_counter`` for what users wait for.

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
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def peak_memory(function: Callable[[], object]) -> Memory:
    """Call ``function`` and return what this process held before, after and at most.

    The result of the call is still held when ``after`` is read.  The kernel keeps the peak, so
    that short ones and those of threads count too.  Raises OSError where it does not (Linux
    alone has it).
    """
    gc.collect()
    _CLEAR_REFS.write_text("5", encoding="ascii")
    before = _status_bytes("VmRSS")
    held = function()
    after, peak = _status_bytes("VmRSS"), _status_bytes("VmHWM")
    del held
    return Memory(before, after, max(peak, before, after))


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


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"{_STATUS} has no {field}: peak memory cannot be read on this system")
