"""A server under load for long, with small accidents: nothing lost, nothing wrong, no growth.

Clients score without a pause and check every score.  Every half minute an accident happens.

    python -m reliability.soak [--minutes 60]
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reliability import chaos
from reliability.load import Load, Server, resident_mb, serving

EVERY_S = 30.0
# From the first tenth of the time to the last, median of all processes together.
MAX_GROWTH = 0.2

ACCIDENTS: dict[str, Callable[[Server, Load], None]] = {
    "a worker killed": lambda server, _: server.workers()[-1].kill(),
    "frames that no client sends": chaos.hand_made_frames,
    "small requests that are large in memory": chaos.memory_bombs,
    "datasets read again": lambda server, _: server.supervisor.send_signal(signal.SIGHUP),
}


def main() -> int:
    """Soak a server; return 1 if something was lost, wrong, or grew."""
    parser = argparse.ArgumentParser(prog="python -m reliability.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: 60)")
    minutes: float = parser.parse_args().minutes
    dice, memory = random.Random(11), []
    quiet = {"CONSENSUSPR_LOG_LEVEL": "warning"}
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        serving(Path(folder), environment=quiet) as server,
        Load(server.address) as load,
    ):
        begin = time.monotonic()
        next_accident = begin + EVERY_S
        while (now := time.monotonic()) < begin + 60 * minutes:
            if now >= next_accident:
                name = dice.choice([*ACCIDENTS])
                ACCIDENTS[name](server, load)
                next_accident = time.monotonic() + EVERY_S
                print(f"{now - begin:.0f} s: {load.right:,} scored; {name}", file=sys.stderr)
            memory.append(sum(map(resident_mb, [server.supervisor, *server.workers()])))
            time.sleep(1)
        load.wait_for_rollouts(600)
    tenth = max(1, len(memory) // 10)
    first, last = (statistics.median(part) for part in (memory[tenth : 2 * tenth], memory[-tenth:]))
    print(
        f"{minutes:g} minutes: {load.right:,} rollouts scored, {load.lost.total()} lost,"
        f" {load.wrong} wrong; longest call {load.longest_s:.1f} s, longest pause"
        f" {load.pause_s(begin):.1f} s; memory {first:.0f} MB at first, {last:.0f} MB at the end"
    )
    harm = load.harm()
    if last > first * (1 + MAX_GROWTH):
        harm.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    print(*harm, sep="\n", file=sys.stderr)
    return int(bool(harm))


if __name__ == "__main__":
    sys.exit(main())
