"""The answer processes: started late, killed on time, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pebble import ProcessFuture

from consensuspr.errors import VerifierUnavailable
from consensuspr.scoring.answers import AnswerVerifier, Verdict
from tests.commands import run_python
from tests.processes import command_line, is_alive, wait_for, wait_until_gone

POISON = ("x+1", r"\boxed{(a+b+c+d+e+f+g)^{195}}")

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def hard_question(number: int) -> tuple[str, str]:
    """Return a ground truth and a right response that need a process, others for each number."""
    return rf"\sqrt[3]{{{2 * number**3}}}", rf"\boxed{{{number}\sqrt[3]{{2}}}}"


def is_right(verifier: AnswerVerifier, number: int) -> bool:
    return verifier.verify(*hard_question(number)).correct is True


def answer_processes(pid: int) -> list[psutil.Process]:
    """Return the processes that a fork server below ``pid`` has forked."""
    below = psutil.Process(pid).children(recursive=True)
    servers = [each for each in below if "answers.worker" in " ".join(command_line(each))]
    return [each for each in servers if each.ppid() != pid]


@pytest.fixture
def started() -> Callable[[], list[psutil.Process]]:
    """A function that returns the answer processes that the test has started."""
    before = set(answer_processes(os.getpid()))
    return lambda: [each for each in answer_processes(os.getpid()) if each not in before]


@pytest.fixture
def script() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A function that starts a program and returns when it has printed "ready"."""
    running: list[subprocess.Popen[str]] = []

    def start(source: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(source)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@linux
def test_processes_start_with_the_first_answer_that_needs_them_and_end_with_close(
    started: Callable[[], list[psutil.Process]],
) -> None:
    verifier = AnswerVerifier(workers=2)
    assert verifier.verify("7", r"\boxed{7}").correct is True
    assert not started()
    assert is_right(verifier, 2)
    ours = started()
    assert len(ours) == 2
    verifier.close()
    assert not any(is_alive(process.pid) for process in ours)
    verifier.close()
    with pytest.raises(VerifierUnavailable, match="closed"):
        verifier.verify(*hard_question(3))
    # What needs no process is still answered.
    assert verifier.verify("7", r"\boxed{7}").correct is True


def test_close_ends_a_wait() -> None:
    verifier = AnswerVerifier(budget_s=60.0)
    assert is_right(verifier, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(verifier.verify, *POISON)
        time.sleep(0.3)
        verifier.close()
        with pytest.raises(VerifierUnavailable, match="closed"):
            waiting.result(timeout=20)


@pytest.mark.slow
def test_an_answer_that_outgrows_its_memory_is_undecided_and_the_next_one_fine() -> None:
    with AnswerVerifier(memory_limit_bytes=170 << 20, budget_s=100.0) as verifier:
        verdict = verifier.verify("x+1", r"\boxed{(2^{1000000}x+1)^{200}}")
        assert (verdict.correct, verdict.method) == (None, "memory")
        assert is_right(verifier, 2)


@linux
def test_processes_killed_from_outside_are_replaced(
    started: Callable[[], list[psutil.Process]],
) -> None:
    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)
        [process] = started()
        process.kill()
        wait_until_gone([process.pid], most_s=10)
        assert is_right(verifier, 3)
        [process] = started()
        server = process.parent()
        assert server is not None
        server.kill()
        wait_until_gone([process.pid, server.pid], most_s=10)
        assert is_right(verifier, 4)


@pytest.mark.slow
@linux
def test_verdicts_are_the_same_on_a_busy_machine() -> None:
    # What takes some 0.1 s of a core, of which it gets a small part.
    questions = [
        (r"\sin(3x)", r"\boxed{3\sin x-4\sin^3 x}"),
        (r"\cos^4 x", r"\boxed{\frac{3+4\cos 2x+\cos 4x}{8}}"),
    ]
    spin = "import os\nfor _ in range(4): os.fork()\nwhile True: pass"
    with AnswerVerifier(budget_s=1.0) as verifier:
        assert is_right(verifier, 2)
        busy = subprocess.Popen([sys.executable, "-c", spin], start_new_session=True)
        try:
            wait_for(lambda: len(psutil.Process(busy.pid).children(recursive=True)) == 15)
            assert [verifier.verify(*question).correct for question in questions] == [True, True]
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
            busy.wait()


@linux
def test_no_process_outlives_a_killed_parent(
    script: Callable[[str], subprocess.Popen[str]],
) -> None:
    parent = script(
        f"""
        import threading, time
        from consensuspr.scoring.answers import AnswerVerifier, Verdict
        verifier = AnswerVerifier(budget_s=60.0)
        verifier.verify(*{hard_question(2)!r})
        threading.Thread(target=verifier.verify, args={POISON!r}, daemon=True).start()
        time.sleep(0.5)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    ours = psutil.Process(parent.pid).children(recursive=True)
    assert len(answer_processes(parent.pid)) == 1
    parent.kill()
    parent.wait()
    wait_until_gone([process.pid for process in ours], most_s=20)


QUESTION = f"""
print('top', flush=True)
from consensuspr.scoring.answers import verify_answer
print(verify_answer(*{hard_question(2)!r}).correct)
"""


def test_a_script_without_a_main_guard_is_not_imported_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(QUESTION)
    assert run_python("-W", "error", program) == (0, "top\nTrue\n", "")


def test_processes_that_cannot_start_make_no_verdict() -> None:
    with AnswerVerifier(memory_limit_bytes=1 << 27) as verifier:
        for number in (2, 3):
            with pytest.raises(VerifierUnavailable, match="cannot start"):
                verifier.verify(*hard_question(number))


def test_poison_holds_up_neither_its_batch_nor_other_callers() -> None:
    count = 2
    poisons = [rf"\boxed{{(a+b+c+d+e+f+g)^{{{power}}}}}" for power in range(150, 150 + count)]
    truths, responses = zip(*map(hard_question, range(3, 5)), strict=True)
    with AnswerVerifier(budget_s=0.8) as verifier:
        assert is_right(verifier, 2)
        found: list[Verdict] = []
        batch = threading.Thread(
            target=lambda: found.extend(
                verifier.verify_batch([*["x+1"] * count, *truths], [*poisons, *responses])
            )
        )
        batch.start()
        time.sleep(0.1)
        assert is_right(verifier, 7)
        assert batch.is_alive(), "it waits for first slices at most"
        batch.join()
    assert [verdict[::3] for verdict in found] == [(None, "budget")] * count + [
        (True, "symbolic")
    ] * 2


def test_a_deadline_leaves_its_comparisons_to_end_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(future: ProcessFuture[object]) -> bool:
        raise AssertionError("a cancelled future may end pebble's threads")

    monkeypatch.setattr(ProcessFuture, "cancel", refuse)
    poisons = [rf"\boxed{{(a+b+c+d+e+f+g)^{{{power}}}}}" for power in range(100, 200)]
    with AnswerVerifier(budget_s=8.0) as verifier:
        assert is_right(verifier, 2)
        deadline = time.monotonic() + 0.2
        verdicts = verifier.verify_batch(["x+1"] * 100, poisons, deadline=deadline)
        assert {verdict.method for verdict in verdicts} == {"load"}
        begin = time.monotonic()
        assert is_right(verifier, 3)
        assert time.monotonic() - begin < 50, "99 s of comparisons for which nobody waits"
