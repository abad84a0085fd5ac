"""Servers as users start them, and clients that check every score."""

from __future__ import annotations

import itertools
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from benchmarks.measure import REPOSITORY
from benchmarks.processes import listening
from consensuspr.client import LocalClient, RewardClient, Rollout, Score
from consensuspr.data import read_rollouts
from consensuspr.errors import ConsensusPRError

SAMPLE = REPOSITORY / "examples/sample"
# A trainer's step waits so long before it gives up.
PATIENCE_S = 60.0
BATCH = 16


@dataclass
class Server:
    """A server under attack: its address, its supervisor, and its folder of files."""

    address: str
    supervisor: psutil.Process
    scratch: Path
    _ends: ExitStack = field(default_factory=ExitStack)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def workers(self) -> list[psutil.Process]:
        """Return the workers that run."""
        try:
            return [child for child in self.supervisor.children() if is_running(child)]
        except psutil.NoSuchProcess:
            return []

    def wait_for_workers(self) -> None:
        """Return when both workers run."""
        wait_until(lambda: len(self.workers()) == 2, "a worker did not start again", 90)

    def log(self) -> str:
        return next(self.scratch.glob("*.log")).read_text("utf-8", "replace")

    def replace(self) -> None:
        """Start another server at the same address, which ends when this one does."""
        folder = self.scratch / "successor"
        folder.mkdir()
        successor = self._ends.enter_context(serving(folder, address=self.address))
        self.supervisor = successor.supervisor


def is_running(process: psutil.Process) -> bool:
    """Return whether a process lives; one that nobody has collected does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def resident_mb(process: psutil.Process, peak: bool = False) -> float:
    """Return the memory of a process, or its peak; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    sizes = dict(line.split(":", 1) for line in status.splitlines())
    return int(sizes.get("VmHWM" if peak else "VmRSS", "0").split()[0]) / 1024


@contextmanager
def serving(
    scratch: Path,
    *,
    address: str = "127.0.0.1:0",
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server with two workers and a copy of the sample, with all its files in ``scratch``.

    Args:
        within: a command that runs it, such as ``prlimit`` and its options.
        environment: variables of the server.
    """
    dataset = shutil.copy(SAMPLE / "dataset.jsonl", scratch)
    temporary = scratch / "tmp"
    temporary.mkdir()
    command = [*within, sys.executable, "-m", "consensuspr.cli", "serve", "--workers", "2"]
    command += ["--address", address, "--dataset", str(dataset)]
    variables = {"TMPDIR": str(temporary), **(environment or {})}
    with listening(command, scratch, variables) as (where, pid), ExitStack() as ends:
        yield Server(where, psutil.Process(pid), scratch, ends)


def _figures(score: Score) -> tuple[object, ...]:
    return score.status, score.reward, score.acc, score.ncr, score.matched


class Load:
    """Clients that score the sample's rollouts without a pause, and check every score.

    Attributes:
        right, wrong: rollouts by whether the score was the expected one.
        lost: rollouts whose call raised an error, by the error's name.
        longest_s: duration of the longest call.
    """

    def __init__(self, address: str, clients: int = 4) -> None:
        self.right = self.wrong = 0
        self.lost: Counter[str] = Counter()
        self.longest_s = 0.0
        self._examples: list[str] = []
        # When calls ended that scored something.
        self._ends: list[float] = []
        self._address = address
        rows = read_rollouts(SAMPLE / "rollouts.jsonl")
        self._rollouts = [Rollout(row["problem_id"], row["response"]) for row in rows]
        with LocalClient(dataset=SAMPLE / "dataset.jsonl") as client:
            self._expected = [_figures(score) for score in client.score(self._rollouts)]
        self._stop = threading.Event()
        self._lock = threading.Lock()
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
            thread.join(PATIENCE_S + 30)
            if thread.is_alive():
                self.lost["a client that hangs"] += BATCH

    def wait_for_rollouts(self, number: int) -> None:
        """Return when so many more rollouts were scored."""
        goal = self.right + number
        wait_until(lambda: self.right >= goal, f"{number} rollouts were not scored", 120)

    def pause_s(self, since: float) -> float:
        """Return the longest time after ``since`` in which no call scored anything."""
        ends = sorted(end for end in self._ends if end >= since)
        return max((b - a for a, b in itertools.pairwise([since, *ends])), default=0.0)

    def harm(self) -> list[str]:
        """Return a sentence on lost and wrong rollouts, if there are any."""
        if not self.lost and not self.wrong:
            return []
        return [f"lost {dict(self.lost)}, wrong {self.wrong}: {self._examples}"]

    def _score(self, number: int) -> None:
        at, count = number * 37, len(self._rollouts)
        with RewardClient(self._address, timeout_s=PATIENCE_S) as client:
            while not self._stop.is_set():
                at = (at + BATCH) % count
                chosen = [index % count for index in range(at, at + BATCH)]
                start = time.monotonic()
                try:
                    scores = client.score([self._rollouts[index] for index in chosen])
                except ConsensusPRError as error:
                    with self._lock:
                        self.lost[type(error).__name__] += BATCH
                        self._examples.append(str(error))
                else:
                    wrong = [
                        f"rollout {index}: {figures}, not {self._expected[index]}"
                        for index, figures in zip(chosen, map(_figures, scores), strict=True)
                        if figures != self._expected[index]
                    ]
                    with self._lock:
                        self.right += BATCH - len(wrong)
                        self.wrong += len(wrong)
                        self._examples += wrong[: 5 - len(self._examples)]
                        self._ends.append(time.monotonic())
                self.longest_s = max(self.longest_s, time.monotonic() - start)


def wait_until(condition: Callable[[], bool], failure: str, most_s: float = 60) -> None:
    """Return when a condition holds.

    Raises:
        TimeoutError: it does not hold in time; the text begins with ``failure``.
    """
    until = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{failure} within {most_s:g} s")
        time.sleep(0.05)
