"""A server under load for long, with small accidents: nothing lost, nothing wrong, no growth.

Clients score without a pause and check every score.  Every half minute one accident of many
happens: a worker is killed, clients vanish in the middle of a request, a large request comes, the
datasets are read again.  Memory is looked at all the time.

    python -m reliability.soak [--minutes 60] [--write docs/reliability.md]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.markdown import publish, table
from reliability import chaos
from reliability.load import SAMPLE, Load, Server, machine, resident_mb, serving

EVERY_S = 30.0
# From the first tenth of the time to the last, median of all processes together.
MAX_GROWTH = 0.2

_ACCIDENTS: tuple[tuple[str, Callable[[Server, Load], None]], ...] = (
    ("a worker killed", lambda server, _: os.kill(server.workers()[-1], signal.SIGKILL)),
    ("500 clients vanished", chaos.vanished_clients),
    ("frames that no client sends", chaos.hand_made_frames),
    ("small requests that are large in memory", chaos.memory_bombs),
    ("datasets read again", lambda server, _: os.kill(server.pid, signal.SIGHUP)),
)


def soak(minutes: float, console: Console) -> tuple[str, list[str]]:
    """Run for so long; return the table of what happened, and what must not have happened."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        scratch = Path(folder)
        dataset = scratch / "dataset.jsonl"
        shutil.copy(SAMPLE / "dataset.jsonl", dataset)
        dice = random.Random(11)
        happened: dict[str, int] = {}
        memory: list[float] = []
        with (
            serving(scratch, dataset=dataset, settings={"log_level": "warning"}) as server,
            Load(server.address) as load,
        ):
            begin = time.monotonic()
            next_accident = begin + EVERY_S
            while (now := time.monotonic()) < begin + 60 * minutes:
                if now >= next_accident:
                    name, accident = dice.choice(_ACCIDENTS)
                    accident(server, load)
                    happened[name] = happened.get(name, 0) + 1
                    next_accident = time.monotonic() + EVERY_S
                    console.print(
                        f"{(now - begin) / 60:.1f} min: {load.outcome.right:,} scored,"
                        f" {memory[-1]:.0f} MB; {name}"
                    )
                memory.append(sum(map(resident_mb, [server.pid, *server.workers()])))
                time.sleep(1)
            load.wait_for_rollouts(600)
            log = server.log()
        outcome = load.outcome
    tenth = max(1, len(memory) // 10)
    first, last = (statistics.median(part) for part in (memory[tenth : 2 * tenth], memory[-tenth:]))
    faults = []
    if outcome.lost or outcome.wrong:
        faults.append(f"lost {dict(outcome.lost)}, wrong {outcome.wrong}: {outcome.examples}")
    if last > first * (1 + MAX_GROWTH):
        faults.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    rows = [
        ["time", f"{minutes:g} min"],
        ["rollouts scored and checked", f"{outcome.right:,}"],
        ["lost", str(sum(outcome.lost.values()))],
        ["wrong", str(outcome.wrong)],
        ["longest call", f"{outcome.longest_s:.1f} s"],
        ["longest pause of all clients", f"{outcome.pause_s(begin):.1f} s"],
        [
            "memory of all processes, second tenth of the time and last",
            f"{first:.0f}, {last:.0f} MB",
        ],
        ["highest", f"{max(memory):.0f} MB"],
        ["log", f"{len(log):,} bytes"],
        *([name, f"{number} times"] for name, number in sorted(happened.items())),
    ]
    return f"On {machine()}.\n\n" + table(["what", "figure"], rows, words=1), faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak a server; return 1 where something was lost, wrong, or grew."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="bring its table up to date")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)
    text, faults = soak(chosen.minutes, console)
    publish({"soak": text}, chosen.write)
    for fault in faults:
        console.print(f"[red]harm[/]: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
