"""The worker processes: screened, started late, killed on time, never left behind."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from consensuspr.errors import VerifierUnavailable
from consensuspr.scoring.answers import AnswerVerifier, sandbox
from consensuspr.scoring.answers.sandbox import screen
from consensuspr.scoring.answers.verifier import ResultCache
from consensuspr.scoring.scorer import verify_patiently
from tests.commands import run_python
from tests.linear import assert_linear
from tests.processes import command_line, is_alive, wait_for, wait_until_gone

POISON = ("x+1", r"\boxed{(a+b+c+d+e+f+g)^{195}}")

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def worker_question(number: int) -> tuple[str, str]:
    """Return a ground truth and a right response that need a worker, others for each number."""
    return rf"\sqrt[3]{{{2 * number**3}}}", rf"\boxed{{{number}\sqrt[3]{{2}}}}"


NEEDS_A_WORKER = worker_question(2)


def is_right(verifier: AnswerVerifier, number: int) -> bool:
    """Ask as the Scorer does: again, where a busy machine left the answer open."""
    truth, response = worker_question(number)
    return verify_patiently(verifier, [truth], [response], "auto")[0].correct is True


def workers_of(pid: int) -> set[psutil.Process]:
    """Return template and workers of a process."""
    children = psutil.Process(pid).children(recursive=True)
    return {x for x in children if "consensuspr.scoring.answers.worker" in command_line(x)}


@pytest.fixture
def started() -> Callable[[], list[psutil.Process]]:
    """What tells the templates and workers that the test has started, the oldest first."""
    before = workers_of(os.getpid())
    return lambda: sorted(workers_of(os.getpid()) - before, key=lambda process: process.pid)


class Script:
    """A program in a process of its own, killed after the test.

    Attributes:
        process: the process, which has said that it is ready.
        workers: its template and workers at that time.
    """

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(source)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.line() == "ready\n"
        self.workers = workers_of(self.process.pid)
        assert len(self.workers) >= 2

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture
def script() -> Iterator[Callable[[str], Script]]:
    """What starts a program that prints "ready" when its workers are up."""
    with contextlib.ExitStack() as leaving:

        def start(source: str) -> Script:
            made = Script(source)
            leaving.callback(made.process.communicate)
            leaving.callback(made.process.kill)
            return made

        yield start


@linux
def test_processes_start_with_the_first_answer_that_needs_them(
    started: Callable[[], list[psutil.Process]],
) -> None:
    with AnswerVerifier() as verifier:
        assert verifier.verify("7", r"\boxed{7}").correct is True
        assert not started()
        assert is_right(verifier, 2)
        assert started()


@linux
def test_close_leaves_no_process_behind(started: Callable[[], list[psutil.Process]]) -> None:
    verifier = AnswerVerifier(workers=2)
    assert is_right(verifier, 2)
    ours = started()
    assert len(ours) >= 2
    verifier.close()
    assert not any(is_alive(process.pid) for process in ours)
    verifier.close()
    with pytest.raises(VerifierUnavailable, match="closed"):
        verifier.verify(*worker_question(3))
    # What needs no worker is still answered.
    assert verifier.verify("7", r"\boxed{7}").correct is True


def test_close_ends_a_wait() -> None:
    verifier = AnswerVerifier(budget_s=60.0)
    verifier.verify(*NEEDS_A_WORKER)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(verifier.verify, *POISON)
        time.sleep(0.3)
        verifier.close()
        with pytest.raises(VerifierUnavailable, match="closed"):
            waiting.result(timeout=10)


@pytest.mark.slow
def test_a_comparison_that_outgrows_its_memory_is_undecided_and_the_next_one_fine() -> None:
    with AnswerVerifier(memory_limit_bytes=170 << 20, budget_s=100.0) as verifier:
        verdict = verifier.verify("x+1", r"\boxed{(2^{1000000}x+1)^{200}}")
        assert (verdict.correct, verdict.method) == (None, "memory")
        assert is_right(verifier, 2)


@linux
@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced(
    started: Callable[[], list[psutil.Process]],
) -> None:
    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)
        for number, process in enumerate(reversed(started()), start=3):
            # The youngest first: workers, and at last the template itself.
            process.kill()
            wait_until_gone([process.pid], most_s=10)
            assert is_right(verifier, number)


def answers(verifier: AnswerVerifier, questions: list[tuple[str, str]]) -> list[bool | None]:
    """Return verdicts as a Scorer gets them."""
    truths, responses = zip(*questions, strict=True)
    verdicts = verify_patiently(verifier, truths, responses, "auto", time.monotonic() + 120)
    return [verdict.correct for verdict in verdicts]


@linux
def test_verdicts_are_the_same_where_processes_are_killed_all_the_time(
    started: Callable[[], list[psutil.Process]],
) -> None:
    questions = [worker_question(number) for number in range(100, 300)]
    questions[::2] = [(truth, r"\boxed{7\sqrt[3]{2}}") for truth, _ in questions[::2]]
    done = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        while not done.wait(0.25):
            for process in started()[1:]:  # not the template: it needs a second to start
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    killed += 1

    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)
        expected = [number % 2 == 1 for number in range(len(questions))]
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while killed < 5:
                verifier._cache = ResultCache(0, 0)
                assert answers(verifier, questions) == expected
        finally:  # or the thread kills the processes of all tests to come
            done.set()
            killer.join()
        # The template too.
        started()[0].kill()
        assert answers(verifier, questions) == expected


def kill_at_work(verifier: AnswerVerifier, times: int) -> None:
    """Kill the worker that compares poison so often."""
    pool, killed = verifier._pool, set[int]()

    def at_work() -> list[int]:
        live = [one for one in list(pool._live) if one.pid not in killed]
        return [one.pid for one in live if one.cpu_seconds() > 0.1]

    for _ in range(times):
        wait_for(lambda: bool(at_work()))
        killed.update(at_work())
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@linux
@pytest.mark.parametrize(("times", "method"), [(1, "budget"), (2, "killed")])
def test_who_is_killed_is_tried_once_more(times: int, method: str) -> None:
    with (
        AnswerVerifier(budget_s=4.0) as verifier,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        assert is_right(verifier, 2)
        truth, response = POISON
        deadline = time.monotonic() + 120
        verdict = pool.submit(verifier.verify_batch, [truth], [response], "auto", deadline)
        kill_at_work(verifier, times)
        assert [(one.correct, one.method) for one in verdict.result(120)] == [(None, method)]


@linux
@pytest.mark.parametrize("which", ["worker", "template", "both"])
def test_who_is_stopped_is_replaced(
    which: str, started: Callable[[], list[psutil.Process]]
) -> None:
    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)
        template, *workers = started()
        stopped = {"worker": workers, "template": [template], "both": [template, *workers]}[which]
        for process in stopped:
            process.suspend()
        begun = time.monotonic()
        assert is_right(verifier, 3)
        assert is_right(verifier, 4)
        if which == "template":  # its workers do without, until one more is needed
            workers[0].kill()
            assert is_right(verifier, 5)
        assert time.monotonic() - begun < 30, "and the server goes on"
        assert not any(map(is_alive, [process.pid for process in stopped]))


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
            assert answers(verifier, questions) == [True, True]
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
            busy.wait()


def test_what_nobody_waits_for_is_not_gone_on_with() -> None:
    """Else what was left behind would keep others waiting for a budget each."""
    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)
        poison = [rf"\boxed{{(a+b+c+d+e+f+g)^{{{195 + number}}}}}" for number in range(50)]
        verifier.verify_batch(["x+1"] * 50, poison, "auto", time.monotonic() + 2)
        hungry = r"(a+b+c)^{8}", r"\boxed{(a+b)^{8}+1}"  # half a slice
        begun = time.monotonic()
        assert answers(verifier, [hungry]) == [False]
        assert time.monotonic() - begun < 20, "not behind all of them"


@linux
@pytest.mark.parametrize("busy", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_worker_outlives_a_killed_parent(busy: bool, script: Callable[[str], Script]) -> None:
    parent = script(
        f"""
        import threading, time
        from consensuspr.scoring.answers import AnswerVerifier
        verifier = AnswerVerifier(budget_s=300.0)
        verifier.verify(*{NEEDS_A_WORKER!r})
        if {busy}:
            threading.Thread(target=verifier.verify, args={POISON!r}, daemon=True).start()
            time.sleep(0.5)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    parent.process.kill()
    parent.process.wait()
    wait_until_gone([worker.pid for worker in parent.workers], most_s=10)


@linux
def test_a_parent_that_is_gone_before_the_template_is_ready_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "consensuspr.scoring.answers.worker"]
        template = subprocess.Popen(
            [*command, str(theirs.fileno()), str(1 << 30)],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
        )
    ours.close()
    _, said = template.communicate(timeout=60)
    assert (template.returncode, said) == (0, b"")


@linux
def test_signals_of_the_terminal_do_not_reach_the_workers(
    script: Callable[[str], Script],
) -> None:
    parent = script(
        f"""
        import signal, time
        from consensuspr.scoring.answers import AnswerVerifier
        # A shell's background job inherits an ignored interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with AnswerVerifier(budget_s=300.0) as verifier:
            verifier.verify(*{NEEDS_A_WORKER!r})
            try:
                print("ready", flush=True)
                time.sleep(600)
            except KeyboardInterrupt:
                pass
            print(verifier.verify("x+1", "\\\\boxed{{1+x}}").correct, flush=True)
        """
    )
    os.killpg(parent.process.pid, signal.SIGINT)
    for worker in parent.workers:
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGHUP)
    assert parent.line() == "True\n"
    assert parent.process.wait(60) == 0
    wait_until_gone([worker.pid for worker in parent.workers])


@pytest.mark.slow
def test_it_works_beside_a_running_grpc_server_and_after_a_fork(
    script: Callable[[str], Script],
) -> None:
    # In a process of its own, for the test process has threads that a fork should not meet.
    forked = script(
        f"""
        import os
        from consensuspr.scoring.answers import AnswerVerifier
        verifier = AnswerVerifier(budget_s=300.0)
        assert verifier.verify(*{NEEDS_A_WORKER!r}).correct is True
        print("ready", flush=True)
        pid = os.fork()
        right = verifier.verify(*{worker_question(3)!r}).correct is True
        if pid == 0:
            verifier.close()
            os._exit(0 if right else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert right
        verifier.close()
        print("done")
        """
    )
    assert (forked.line(), forked.process.wait(60)) == ("done\n", 0)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with AnswerVerifier() as verifier:
            assert is_right(verifier, 2)
    finally:
        server.stop(None).wait()


def test_the_main_module_is_not_imported_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "print('top', flush=True)\n"
        "from consensuspr.scoring.answers import verify_answer\n"
        f"print(verify_answer(*{NEEDS_A_WORKER!r}).correct)\n"
    )
    assert run_python(program) == (0, "top\nTrue\n", "")


def test_a_module_in_the_working_directory_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')")
    monkeypatch.chdir(tmp_path)
    with AnswerVerifier() as verifier:
        assert is_right(verifier, 2)


def test_a_module_beside_the_script_shadows_nothing_of_the_standard_library(
    tmp_path: Path,
) -> None:
    for name in ("colorsys", "timeit", "calendar"):  # SymPy imports them, we do not
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')")
    (tmp_path / "beside.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(
        "import beside\n"
        "from consensuspr.scoring.answers import verify_answer\n"
        f"print(verify_answer(*{NEEDS_A_WORKER!r}).correct)\n"
    )
    assert run_python(program) == (0, "True\n", "")


def test_where_no_process_can_be_started_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with AnswerVerifier() as verifier:
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(VerifierUnavailable, match="/nonexistent/python"):
            verifier.verify(*NEEDS_A_WORKER)
        assert verifier.verify("7", r"\boxed{7}").correct is True
        monkeypatch.setattr(sys, "executable", "")
        monkeypatch.setattr(sandbox, "_RETRY_S", 0.0)
    with AnswerVerifier() as verifier, pytest.raises(VerifierUnavailable, match="empty"):
        verifier.verify(*NEEDS_A_WORKER)


def test_a_failed_start_is_not_repeated_for_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def refuse(*_: object, **__: object) -> None:
        starts.append(1)
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with AnswerVerifier() as verifier:
        for number in range(3, 6):
            with pytest.raises(VerifierUnavailable, match="no more processes"):
                verifier.verify(*worker_question(number))
    assert len(starts) == 1


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('no math_verify here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        AnswerVerifier() as verifier,
        pytest.raises(VerifierUnavailable, match="no math_verify here"),
    ):
        verifier.verify(*NEEDS_A_WORKER)


def test_a_limit_below_what_the_libraries_take_is_refused() -> None:
    with (
        AnswerVerifier(memory_limit_bytes=1 << 27) as verifier,
        pytest.raises(VerifierUnavailable, match="memory_limit_bytes"),
    ):
        verifier.verify(*NEEDS_A_WORKER)


DETERMINANT = r"\det\begin{pmatrix}" + r"\\".join(["a&b&c&d&e&f&g"] * 7) + r"\end{pmatrix}"

HOPELESS = [
    "10^{10^{10}}",
    "10^{10^{10}}+x",
    "9^9^9^9",
    "2^2^2^2^2^2",
    "2^3^4^5",
    "x^{2^{2^{2^{2^2}}}}",
    "2^{99999999}",
    "(1+10^{-9})^{10^9}",
    "(2^{1000000})^{1000}",
    "(10^{10})!",
    "((10!)!)!",
    "100000000!",
    "n!!",
    r"\sum_{k=1}^{10^9} k^k",
    r"\prod_{k=1}^{1000000} k",
    r"\sum\limits_{k=1}^{10^{9}} k",
    r"\gcd(10^{10^6}, 10^{10^5})",
    r"\binom{10^9}{5\cdot 10^8}",
    r"{1000000000 \choose 500000000}",
    DETERMINANT,
    r"\begin{vmatrix}" + r"\\".join(["a&b&c&d&e&f"] * 6) + r"\end{vmatrix}",
    "(" * 60 + "1" + ")" * 60,
    "1" * 2000,
    "1e99999",
    "x" * 1001,
]

SANE = [
    "12",
    r"\frac{2^{2009}-1}{3\cdot 2^{2008}-1}",
    r"2011^{2009}\cdot(1005^{2011}-1004^{2011})",
    r"\frac{2021055^{2011} - 2019044^{2011}}{2011^2}",
    r"\frac{(40!)^4}{(20!)^6 \cdot 10! \cdot 30!}",
    r"{40 \choose 10} {40 \choose 20}^3",
    r"\binom{2023}{5}",
    "2023!",
    r"\sum_{k=1}^{2009} k",
    r"\sum_{n=0}^{\infty} \frac{x^n}{n!}",
    r"\int_0^1 x^2 dx",
    "e^{x^{2}}",
    "2^3^2",
    "x^{2^{3}}",
    "6.02 \\times 10^{23}",
    "x^{100}+y^{n+1}",
    r"\begin{pmatrix} 1&2&3&4&5&6&7\\ 1&2&3&4&5&6&7 \end{pmatrix}",
    r"\det\begin{pmatrix} a & b \\ c & d \end{pmatrix}",
    r"\sqrt{\sqrt{11}+\sqrt{194}}",
]


@pytest.mark.parametrize("text", HOPELESS)
def test_hopeless(text: str) -> None:
    assert screen(text) is not None


@pytest.mark.parametrize("text", SANE)
def test_sane(text: str) -> None:
    assert screen(text) is None


@pytest.mark.parametrize(
    "run",
    ["^", "^{", "!", "2^", "(", "()", r"\binom{", r"\sum_", r"\sum^{2}", r"\begin{matrix}",
     "{a\\choose", "9"],
)  # fmt: skip
def test_time_grows_linearly(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit on the length would hide what a pattern costs.
    monkeypatch.setattr("consensuspr.scoring.answers.sandbox.MAX_CHARS", 1 << 20)
    assert_linear(screen, lambda size: run * (size // len(run)))
