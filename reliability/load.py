"""Servers as their users start them, and clients that score what they know the score of."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.measure import REPOSITORY
from benchmarks.processes import family, listening
from consensuspr.client import LocalClient, RewardClient, Rollout, Score
from consensuspr.errors import ConsensusPRError

SAMPLE = REPOSITORY / "examples/sample"
# A trainer's step waits so long before it gives up.
PATIENCE_S = 60.0
BATCH = 16


@dataclass
class Server:
    """A server under attack.

    Attributes:
        address: of gRPC.
        pid: of the supervisor; where it was replaced, of its successor.
        scratch: its folder of temporary files, and its log.
    """

    address: str
    pid: int
    scratch: Path
    _ends: ExitStack = field(default_factory=ExitStack)

    @property
    def port(self) -> int:
        """The port of gRPC."""
        return int(self.address.rpartition(":")[2])

    def workers(self) -> list[int]:
        """Return the processes that the supervisor has started and that live."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(pid) for task in tasks for pid in task.read_text("ascii").split()]

    def below_workers(self) -> list[int]:
        """Return the answer processes."""
        return [pid for worker in self.workers() for pid in family(worker)[1:]]

    def log(self) -> str:
        """Return what it has logged."""
        return next(self.scratch.glob("*.log")).read_text("utf-8", "replace")

    def replace(self) -> None:
        """Start another server at its address, which ends when this one does."""
        folder = self.scratch / "successor"
        folder.mkdir()
        successor = self._ends.enter_context(serving(folder, address=self.address))
        self.pid = successor.pid

    def alive(self) -> bool:
        """Say whether its supervisor lives."""
        return is_running(self.pid)


def is_running(pid: int) -> bool:
    """Say whether a process lives; one that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def resident_mb(pid: int, what: str = "VmRSS") -> float:
    """Return the memory of a process, 0 where it has ended; ``VmHWM`` for its peak."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0.0
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith(what + ":")]
    return int(kilobytes[0]) / 1024 if kilobytes else 0.0


@contextmanager
def serving(
    scratch: Path,
    *,
    address: str = "127.0.0.1:0",
    dataset: Path = SAMPLE / "dataset.jsonl",
    settings: Mapping[str, str | int | float] | None = None,
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server with two workers.

    Args:
        scratch: gets its temporary files and its log.
        address: where it listens.
        dataset: what it serves.
        settings: beside the defaults, by name.
        within: a command that runs it, such as ``prlimit`` and its options.
        environment: variables beside those of this process.
    """
    chosen = {"workers": 2, "log_level": "info", **(settings or {})}
    variables = {f"CONSENSUSPR_{name.upper()}": str(value) for name, value in chosen.items()}
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [*within, sys.executable, "-m", "consensuspr.cli", "serve"]
    command += ["--address", address, "--dataset", str(dataset)]
    variables = {"TMPDIR": str(temporary), **variables, **(environment or {})}
    with listening(command, scratch, variables) as (where, pid), ExitStack() as ends:
        yield Server(where, pid, scratch, ends)


def sample_rollouts() -> list[Rollout]:
    """Return the rollouts of the sample."""
    with (SAMPLE / "rollouts.jsonl").open(encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [Rollout(row["problem_id"], row["response"]) for row in rows]


def _told(score: Score) -> tuple[object, ...]:
    return score.status, score.reward, score.acc, score.ncr, score.matched


@dataclass
class Outcome:
    """What became of the rollouts of a load.

    Attributes:
        right: scored as they have to be.
        wrong: scored otherwise.
        lost: whose call ended in an error, by the error's name.
        longest_s: of all calls.
        calls: when each began and ended, with how many rollouts were scored.
        examples: of what was wrong or lost.
    """

    right: int = 0
    wrong: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    calls: list[tuple[float, float, int]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def pause_s(self, since: float) -> float:
        """Return the longest time after ``since`` in which no call ended well."""
        ends = sorted(end for _, end, number in self.calls if number and end >= since)
        return max((b - a for a, b in itertools.pairwise([since, *ends])), default=0.0)


class Load:
    """Clients that score the sample's rollouts without a pause, and check every score.

    Args:
        address: of the server, or several.
        clients: each a connection of its own, in a thread.
        timeout_s: of each call, retries included.
    """

    def __init__(self, address: str, clients: int = 4, timeout_s: float = PATIENCE_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._rollouts = sample_rollouts()
        with LocalClient(dataset=SAMPLE / "dataset.jsonl") as client:
            self._expected = [_told(score) for score in client.score(self._rollouts)]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcome = Outcome()
        self._calls = [0] * clients  # that have ended
        self._threads = [
            threading.Thread(target=self._score, args=(number,), daemon=True)
            for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(self._timeout_s + 30)
            if thread.is_alive():
                self.outcome.lost["a client that hangs"] += BATCH

    def wait_for_rollouts(self, number: int, most_s: float = 120.0) -> None:
        """Return when so many more were scored.

        Raises:
            TimeoutError: that did not come true.
        """
        until, goal = time.monotonic() + most_s, self.outcome.right + number
        while self.outcome.right < goal:
            if time.monotonic() > until:
                raise TimeoutError(f"{number} rollouts were not scored within {most_s:g} s")
            time.sleep(0.05)

    def wait_for_calls(self, most_s: float = 120.0) -> None:
        """Return when all calls have ended that are under way now.

        Raises:
            TimeoutError: that did not come true.
        """
        until, before = time.monotonic() + most_s, [*self._calls]
        while any(now == then for now, then in zip(self._calls, before, strict=True)):
            if time.monotonic() > until:
                raise TimeoutError(f"a call did not end within {most_s:g} s")
            time.sleep(0.05)

    def _score(self, number: int) -> None:
        at = number * 37
        count = len(self._rollouts)
        with RewardClient(self._address, timeout_s=self._timeout_s) as client:
            while not self._stop.is_set():
                at = (at + BATCH) % count
                chosen = [(at + one) % count for one in range(BATCH)]
                start = time.monotonic()
                try:
                    scores = client.score([self._rollouts[one] for one in chosen])
                except ConsensusPRError as error:
                    self._count(start, Counter({type(error).__name__: BATCH}), str(error))
                    self._calls[number] += 1
                    continue
                wrong = [
                    f"{self._rollouts[one].problem_id}: {_told(score)}, not {self._expected[one]}"
                    for one, score in zip(chosen, scores, strict=True)
                    if _told(score) != self._expected[one]
                ]
                self._count(start, Counter(), *wrong)
                self._calls[number] += 1

    def _count(self, start: float, lost: Counter[str], *examples: str) -> None:
        end = time.monotonic()
        wrong = 0 if lost else len(examples)
        right = 0 if lost else BATCH - wrong
        with self._lock:
            outcome = self.outcome
            outcome.right += right
            outcome.wrong += wrong
            outcome.lost += lost
            outcome.longest_s = max(outcome.longest_s, end - start)
            outcome.calls.append((start, end, right))
            outcome.examples += examples[: max(0, 5 - len(outcome.examples))]


def machine() -> str:
    """Say in a few words what a run ran on."""
    return f"{len(os.sched_getaffinity(0))} shared cores"
