"""The command killed, interrupted and run twice at once.

Where it is not killed, it runs in this process and gets its signals from a thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from consensusbench.store import Journal
from consensuspr.data import read_rollouts
from tests.consensusbench.conftest import journal_records
from tests.consensusbench.openai_server import Asked, Behaviour, Say
from tests.consensusbench.sampling.conftest import SampleBench, environment_of, right
from tests.processes import wait_for

pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")

Start = Callable[..., subprocess.Popen[str]]
CONCURRENCY = 4
PROBLEMS = 8


def respond(asked: Asked) -> Behaviour:
    """Take a while; be wrong at times, depending on what is asked and on nothing else."""
    wrong = (asked.seed or 0) % 3 == 1
    return Say("Answer: 7" if wrong else right(asked), after_s=0.05)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the command; what still runs when the test ends is killed."""
    processes: list[subprocess.Popen[str]] = []

    def run(
        problems: Path, models: Path, *arguments: str, **settings: object
    ) -> subprocess.Popen[str]:
        output = problems.parent / "rollouts.jsonl"
        command = [sys.executable, "-m", "consensusbench.cli", "sample", str(problems)]
        command += ["--models", str(models), "--output", str(output)]
        command += ["--no-progress", *arguments]
        environment = {**os.environ, **environment_of({"seed": 0, **settings})}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return processes[-1]

    yield run
    for process in processes:
        if process.stdout is not None and not process.stdout.closed:
            process.kill()
            process.communicate()


def question(asked: Asked) -> tuple[str, str, int | None]:
    return asked.model, asked.prompt, asked.seed


def recorded(problems: Path) -> set[tuple[str, str, int]]:
    """Return model, problem and number of every reply in the journal."""
    return {
        (record["model"], record["problem_id"], int(key[33:]))
        for key, record in journal_records(problems.parent / "rollouts.jsonl.journal").items()
        if "reply" in record
    }


def test_killed_nothing_is_paid_twice_and_nothing_lost(bench: SampleBench, start: Start) -> None:
    bench.server.respond = respond
    problems = bench.problems(PROBLEMS)
    models = bench.models("a", "b", more=f"concurrency = {CONCURRENCY // 2}")
    lost: Counter[tuple[str, str, int | None]] = Counter()
    process = start(problems, models)
    wait_for(lambda: len(bench.server.asked) > 8, process, 60)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    while bench.server.at_once:  # until the server has noticed what was cut
        time.sleep(0.01)
    kept = recorded(problems)
    for asked in bench.server.asked:
        number = asked.prompt.partition("What is ")[2].partition(" ")[0]
        if (asked.model, f"p{number}", asked.seed) not in kept:
            lost[question(asked)] += 1
    # Only what was in flight is lost.
    assert sum(lost.values()) <= CONCURRENCY
    process = start(problems, models)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    # Everything that was asked more than once had been lost by a kill.
    asked_often = Counter(map(question, bench.server.asked))
    assert {q: n - 1 for q, n in asked_often.items() if n > 1} == dict(lost)
    rows = list(read_rollouts(problems.parent / "rollouts.jsonl"))
    assert len(rows) == len(asked_often)
    correct = Counter(row["problem_id"] for row in rows if row["correct"])
    assert correct == {f"p{number}": 5 for number in range(PROBLEMS)}


@contextmanager
def signals(numbers: Sequence[signal.Signals], condition: Callable[[], bool]) -> Iterator[None]:
    """Send signals to this process, one every half second, once a condition holds."""

    def send() -> None:
        until = time.monotonic() + 60
        while not condition() and time.monotonic() < until:
            time.sleep(0.005)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


CTRL_C, SIGTERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(("number", "code"), [(CTRL_C, 130), (SIGTERM, 143)])
def test_a_signal_lets_what_is_in_flight_finish(
    bench: SampleBench, number: signal.Signals, code: int
) -> None:
    bench.server.respond = lambda asked: Say(right(asked), after_s=0.3)
    problems = bench.problems(PROBLEMS)
    arguments = (problems, "--concurrency", CONCURRENCY)
    with signals([number], lambda: len(bench.server.delivered) >= 6):
        assert bench.sample(*arguments, seed=0) == code
    [sentence] = bench.errors().splitlines()
    assert sentence.startswith(f"consensusbench: stopped by {number.name}: ")
    assert f"of {PROBLEMS} problems are finished; run the same command again to go on" in sentence
    # Nothing was cut off, and all of it is in the journal.
    assert len(bench.server.asked) == len(bench.server.delivered) == len(recorded(problems))
    assert not (problems.parent / "rollouts.jsonl").exists()
    bench.server.respond = lambda asked: Say(right(asked))
    assert bench.sample(*arguments, seed=0) == 0
    assert set(Counter(map(question, bench.server.asked)).values()) == {1}
    assert len(bench.server.asked) == 5 * PROBLEMS


@pytest.mark.parametrize(("numbers", "grace"), [([CTRL_C, CTRL_C], 600), ([CTRL_C], 0.3)])
def test_a_silent_server_cannot_hold_up_the_end(
    bench: SampleBench, numbers: Sequence[signal.Signals], grace: float
) -> None:
    bench.server.respond = lambda asked: Say("x", after_s=600)
    with signals(numbers, lambda: len(bench.server.asked) >= 3):
        assert bench.sample(bench.problems(3), grace=grace) == 130
    assert "0 of 3 problems are finished" in bench.errors()


def test_an_output_that_another_run_holds_is_left_to_it(bench: SampleBench) -> None:
    with Journal(bench.journal, "rollouts"):
        assert bench.sample(bench.problems(1)) == 2
    assert "rollouts.jsonl.journal is in use by another run" in bench.errors()
    assert not bench.server.asked
