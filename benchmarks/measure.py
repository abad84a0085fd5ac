"""How the benchmarks measure: answers before times, contenders in turn.

On a machine that others use too, a time alone means little.  So whatever is compared runs in turn,
once a round, in an order that turns by one each round; the ratio of the best rounds holds.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.markdown import REPOSITORY as REPOSITORY
from benchmarks.markdown import cell, table

ROUNDS = 5
# A shorter timed part would measure the clock and the loop around it.
SHORTEST_S = 0.005


class Row(NamedTuple):
    """One figure; ``note`` holds what it depends on."""

    benchmark: str
    what: str
    figure: str
    note: str = ""


HEADER = table(Row._fields, ())


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


def fastest(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the seconds of each contender's best round, see :func:`interleaved`."""
    return {name: min(every) for name, every in interleaved(contenders, rounds, clock).items()}


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
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


def data_folder() -> Path | None:
    """Return $CONSENSUSPR_SHARED/data, else ../shared/data; None without real rollouts there."""
    folder = Path(os.environ.get("CONSENSUSPR_SHARED", REPOSITORY.parent / "shared")) / "data"
    return folder if (folder / "rollouts").is_dir() else None


def report(rows: Iterable[Row]) -> None:
    """Print rows as a Markdown table, each when it is measured."""
    print(HEADER, flush=True)
    for row in rows:
        print("| " + " | ".join(map(cell, row)) + " |", flush=True)
