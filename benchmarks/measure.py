"""How the benchmarks measure: answers before times, contenders in turn.

On a shared machine a time alone means little.  So contenders run in turn, once a round, in an order
that turns by one each round; the ratio of the best rounds holds.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from timeit import Timer
from typing import NamedTuple

from benchmarks.markdown import REPOSITORY as REPOSITORY
from benchmarks.markdown import cell, shared_folder, table

ROUNDS = 5
# A shorter timed part would measure the clock and the loop around it.
SHORTEST_S = 0.005


class Row(NamedTuple):
    """One figure; ``note`` names its conditions."""

    benchmark: str
    quantity: str
    figure: str
    note: str = ""


HEADER = table(Row._fields, ())


class WrongAnswerError(Exception):
    """A contender's answer is not the known one; the text names both."""


def require(
    contender: str, found: Sequence[Sequence[bool]], expected: Sequence[Sequence[bool]]
) -> None:
    """Demand that ``contender`` found the known nodes: one row a text with one flag a node.

    Raises:
        WrongAnswerError: it names the first text that differs.
    """
    for index, (row, known) in enumerate(zip(found, expected, strict=True)):
        if list(row) != list(known):
            nodes, right = ([at for at, flag in enumerate(one) if flag] for one in (row, known))
            raise WrongAnswerError(
                f"{contender} found nodes {nodes} in text {index}, which reaches {right}"
            )


def fastest(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the seconds of one call of each contender in its best round.

    The order turns by one each round.  A call that takes less than ``SHORTEST_S`` is repeated.
    ``clock`` is ``time.process_time`` for work of one thread.
    """
    names = list(contenders)
    timers = {name: Timer(contenders[name], timer=clock) for name in names}
    loops, best = {}, dict.fromkeys(names, float("inf"))
    for name, timer in timers.items():
        timer.timeit(1)  # fills caches
        loops[name] = math.ceil(SHORTEST_S / max(timer.timeit(1), 1e-7))
    for round_ in range(rounds):
        gc.collect()
        for at in range(len(names)):
            name = names[(round_ + at) % len(names)]
            # timeit switches the garbage collector off.
            best[name] = min(best[name], timers[name].timeit(loops[name]) / loops[name])
    return best


def data_folder() -> Path | None:
    """Return $CONSENSUSPR_SHARED/data, else ../shared/data; None without real rollouts there."""
    folder = shared_folder() / "data"
    return folder if (folder / "rollouts").is_dir() else None


def report(rows: Iterable[Row]) -> None:
    """Print rows as a Markdown table, each when it is measured."""
    print(HEADER, flush=True)
    for row in rows:
        print("| " + " | ".join(map(cell, row)) + " |", flush=True)
