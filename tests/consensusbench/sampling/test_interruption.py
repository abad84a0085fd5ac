"""The command killed and interrupted; signals come from a thread of this process."""

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

from tests.consensusbench.conftest import journal_records
from tests.consensusbench.openai_server import Asked, Behaviour, Say
from tests.consensusbench.sampling.conftest import SampleBench, environment_of, right
from tests.processes import wait_for

pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")

CONCURRENCY = 4
PROBLEMS = 8


def respond(asked: Asked) -> Behaviour:
    """Take a while; be wrong at times, depending on what is asked and on nothing else."""
    wrong = (asked.seed or 0) % 3 == 1
    return Say("Answer: 7" if wrong else right(asked), after_s=0.05)


def question(asked: Asked) -> tuple[str, str, int | None]:
    return asked.model, asked.prompt, asked.seed


def recorded(problems: Path) -> set[tuple[str, str, int]]:
    """Return model, problem and number of every reply in the journal."""
    return {
        (record["model"], record["problem_id"], int(key[33:]))
        for key, record in journal_records(problems.parent / "rollouts.jsonl.journal").items()
        if "reply" in record
    }


def test_after_a_kill_no_reply_is_paid_twice(bench: SampleBench) -> None:
    bench.server.respond = respond
    problems = bench.problems(PROBLEMS)
    models = bench.models("a", "b", more=f"concurrency = {CONCURRENCY // 2}")
    command = [sys.executable, "-m", "consensusbench.cli", "sample", str(problems), "--models"]
    command += [str(models), "--output", str(bench.output), "--no-progress"]
    with subprocess.Popen(command, env={**os.environ, **environment_of({"seed": 0})}) as process:
        wait_for(lambda: len(bench.server.asked) > 8, process, 60)
        process.kill()
    while bench.server.at_once:  # until the server has noticed what was cut
        time.sleep(0.01)
    kept = recorded(problems)
    lost: Counter[tuple[str, str, int | None]] = Counter()
    for asked in bench.server.asked:
        number = asked.prompt.partition("What is ")[2].partition(" ")[0]
        if (asked.model, f"p{number}", asked.seed) not in kept:
            lost[question(asked)] += 1
    # Only what was in flight is lost.
    assert sum(lost.values()) <= CONCURRENCY
    assert bench.sample(problems, models=models, seed=0) == 0
    # Everything that was asked more than once had been lost by a kill.
    asked_often = Counter(map(question, bench.server.asked))
    assert {q: n - 1 for q, n in asked_often.items() if n > 1} == dict(lost)
    rows = bench.rollouts()
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


def test_a_signal_lets_requests_in_flight_finish(bench: SampleBench) -> None:
    bench.server.respond = lambda asked: Say(right(asked), after_s=0.3)
    problems = bench.problems(PROBLEMS)
    arguments = (problems, "--concurrency", CONCURRENCY)
    with signals([SIGTERM], lambda: len(bench.server.delivered) >= 6):
        assert bench.sample(*arguments, seed=0) == 143
    sentence = bench.printed()
    assert sentence.startswith("consensusbench: stopped by SIGTERM: ")
    assert (
        f"of {PROBLEMS} problems are finished; run the same command again to continue" in sentence
    )
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
    assert "0 of 3 problems are finished" in bench.printed()
