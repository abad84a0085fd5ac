"""The page of a large run: how soon it shows something, what each view takes, how much it holds.

One log of many samples, the real command, real HTTP.  Times are those of who waits, and beside them
the processor's, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.logs import NEEDLE, write_large_log
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.measure import Context, WrongAnswerError
from benchmarks.processes import listening, processor_seconds

QUICK, FULL = 100_000, 1_000_000
# What is asked first, before the log is read.
FIRST = ("state", "curves?split=train", "samples")
# Each view at its most expensive; none of these reads texts but the search.
VIEWS = {
    "state": "state",
    "curves": "curves?split=train",
    "newest samples": "samples",
    "suspicious samples": "samples?kind=suspicious",
    "a page in the middle, sorted": "samples?sort=ncr&offset={middle}",
    "a group": "group/0?group=g77",
    "problems": "problems?sort=change",
    "a problem": "problem/0/problem-0",
    "two sides": "compare?a=0&a_step=..300&b=0&b_step=700..",
}
_NOTES = [
    "The log is drawn, not scored; its texts have 400 characters. A view is asked with everything "
    "else read; `problems` adds all samples up, and is kept until more come.",
    "A search for text reads the segments, a second at a time: what is told is how many texts it "
    "got through in that second.",
]


def run(context: Context) -> SuiteResult:
    """Measure the page on a hundred thousand samples, or a million."""
    return measure(context, FULL if context.full else QUICK)


def measure(context: Context, rows: int) -> SuiteResult:
    """Measure the page on a log of so many samples."""
    found = SuiteResult(suite="watch", title="The page of a large run", notes=list(_NOTES))
    log = context.scratch / "run"
    context.say(f"a log of {rows:,} samples")
    write_large_log(log, rows, seed=context.seed)
    command = [sys.executable, "-m", "consensuspr.cli", "watch", str(log)]
    command += ["--address", "127.0.0.1:0"]
    with listening(command, context.scratch, says="watching on ") as (url, pid):
        of: Parameters = {"samples": rows}

        def ask(path: str) -> tuple[float, float, Any]:
            before, start = processor_seconds(pid), time.perf_counter()
            with urllib.request.urlopen(f"{url}/api/{path}", timeout=600) as reply:
                body = reply.read()
            took_s = time.perf_counter() - start
            return took_s, processor_seconds(pid) - before, json.loads(body)

        context.say("the first view")
        first_s = sum(ask(path)[0] for path in FIRST)
        found.add("first view, while the log is read", first_s, "s", of)
        context.say("reading")
        start = time.perf_counter()
        while ask("state")[2]["runs"][0]["read"] < 1:
            time.sleep(0.2)
        found.add("log read", time.perf_counter() - start, "s", of)
        found.add("... processor", processor_seconds(pid), "s", of)
        slowest_s = _views(ask, rows, found, context.rounds)
        searched = ask(f"samples?q={NEEDLE.split()[1]}+list")[2]["search"]["searched"]
        found.add("texts searched in a second", searched, "texts", of)
        peak_mb = _peak_mb(pid)
        found.add("memory at most", peak_mb, "MB", of)
    is_full = rows >= FULL
    note = f"{rows:,} samples" + ("" if is_full else ": needs --full")
    for target, value in (
        ("watch_first_s", first_s), ("watch_view_s", slowest_s), ("watch_mb", peak_mb),
    ):  # fmt: skip
        found.check(
            target, value if is_full else None, note if is_full else f"{note}: needs --full"
        )
    return found


def _views(
    ask: Callable[[str], tuple[float, float, Any]], rows: int, found: SuiteResult, rounds: int
) -> float:
    """Ask for every view, and return what the slowest one took at best."""
    if (total := ask("samples")[2]["total"]) != rows:
        raise WrongAnswerError(f"the page counts {total} samples, and there are {rows}")
    slowest_s = 0.0
    for name, path in VIEWS.items():
        asked = [ask(path.format(middle=rows // 2)) for _ in range(rounds)]
        best_s = min(took_s for took_s, _, _ in asked)
        slowest_s = max(slowest_s, best_s)
        parameters: Parameters = {"view": name, "samples": rows}
        found.add("a view", best_s, "s", parameters)
        found.add("... processor, the first time", asked[0][1], "s", parameters)
    return slowest_s


def _peak_mb(pid: int) -> float:
    told = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(told.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
