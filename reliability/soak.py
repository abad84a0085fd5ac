"""A server under load for long, with small accidents: nothing lost, nothing wrong, no growth.

Clients score without a pause and check every score.  Every half minute one accident of many
happens: a worker is killed, frames that no client sends arrive, a request needs much memory, the
datasets are read again.  Memory is looked at all the time.

    python -m reliability.soak [--minutes 60]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.markdown import table
from reliability import chaos
from reliability.load import Load, Server, machine, resident_mb, serving

EVERY_S = 30.0
# From the first tenth of the time to the last, median of all processes together.
MAX_GROWTH = 0.2

_ACCIDENTS: dict[str, Callable[[Server, Load], None]] = {
    "a worker killed": lambda server, _: os.kill(server.workers()[-1], signal.SIGKILL),
    "frames that no client sends": chaos.hand_made_frames,
    "small requests that are large in memory": chaos.memory_bombs,
    "datasets read again": lambda server, _: os.kill(server.pid, signal.SIGHUP),
}


def soak(minutes: float) -> tuple[str, list[str]]:
    """Run for so long; return the table of what happened, and the harm."""
    dice, happened, memory = random.Random(11), Counter[str](), []
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        serving(Path(folder), settings={"log_level": "warning"}) as server,
        Load(server.address) as load,
    ):
        begin = time.monotonic()
        next_accident = begin + EVERY_S
        while (now := time.monotonic()) < begin + 60 * minutes:
            if now >= next_accident:
                name = dice.choice([*_ACCIDENTS])
                _ACCIDENTS[name](server, load)
                happened[name] += 1
                next_accident = time.monotonic() + EVERY_S
                print(f"{now - begin:.0f} s: {load.right:,} scored; {name}", file=sys.stderr)
            memory.append(sum(map(resident_mb, [server.pid, *server.workers()])))
            time.sleep(1)
        load.wait_for_rollouts(600)
    tenth = max(1, len(memory) // 10)
    first, last = (statistics.median(part) for part in (memory[tenth : 2 * tenth], memory[-tenth:]))
    harm = load.harm()
    if last > first * (1 + MAX_GROWTH):
        harm.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    rows = [
        ["time", f"{minutes:g} min"],
        ["rollouts scored and checked", f"{load.right:,}"],
        ["lost, wrong", f"{load.lost.total()}, {load.wrong}"],
        ["longest call", f"{load.longest_s:.1f} s"],
        ["longest pause of all clients", f"{load.pause_s(begin):.1f} s"],
        ["memory of all processes at first", f"{first:.0f} MB"],
        ["memory of all processes at the end", f"{last:.0f} MB"],
        *([name, f"{number} times"] for name, number in sorted(happened.items())),
    ]
    return f"On {machine()}.\n\n" + table(["", "figure"], rows, words=1), harm


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak a server; return 1 if it did harm."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: 60)")
    chosen = parser.parse_args(arguments)
    text, harm = soak(chosen.minutes)
    print(text)
    print(*harm, sep="\n", file=sys.stderr)
    return int(bool(harm))


if __name__ == "__main__":
    sys.exit(main())
