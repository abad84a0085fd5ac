"""Slow comparisons in processes of their own: screened, fair, sliced, killed when time is up.

What is not worth a worker
    Towers of powers, factorials of huge numbers, sums over a billion terms, symbolic
    determinants: a worker would burn its whole budget on each and be killed.  :func:`screen`
    tells them apart by their sizes, in linear time, and they stay undecided at once.  What slips
    through meets the budget and the memory limit; so it may be incomplete, but it must not stop a
    sane answer.
How long an answer can wait
    Each comparison first runs for a short slice in the *fast lane*, where all but a few
    finish (median 6 ms, slowest published pair 0.3 s).  What does not is killed and starts
    again in the *slow lane*, where it may spend the rest of its budget.  So a poisonous
    answer holds the fast lane for one slice and never again.  It waits for as long as somebody
    waits for it.
What a busy machine does
    Slices are CPU time, so that the same answer comes to the same end however busy the machine
    is; it takes longer.  The clock is a distant second bound, for what neither computes nor ends.
What others do to the processes
    A comparison whose worker was killed (by the kernel where memory runs out, by somebody) or
    stopped runs once more in another one.  Where that is killed too it is ``killed``: it may be
    the cause, and each time others may be killed for it.  A template that is gone is replaced.
Who goes first
    Within a lane, the caller (one ``verify_batch``) that has used the least worker time so
    far: a batch full of poison slows itself, not its neighbours.
Processes
    ``workers`` for each lane, and the template that they are forked from (:mod:`.worker` tells
    what those do).  Started with ``subprocess`` and ``-m``, never with ``multiprocessing``: no
    fork of a process that may run gRPC or threads, no second import of the user's main module,
    no inherited sockets.

Deliberately absent: cancelling a comparison that runs (its slice bounds it) and scaling by
load (the fast path takes all but a percent of the answers).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from consensuspr.core.expressions import BeyondLimits, Unreadable, closed_value
from consensuspr.errors import VerifierUnavailable
from consensuspr.scoring.answers.worker import (
    FrameClosed,
    FrameTimeout,
    receive_frame,
    send_frame,
)


class ComparisonKey(NamedTuple):
    """All that a comparison depends on."""

    ground_truth: str
    answer: str
    context: str  # clipped end of the response where math-verify extracts once more, else ""
    rule: str


class ComparisonOutcome(NamedTuple):
    """What became of a comparison."""

    equal: bool | None  # None where a limit was met
    limit: str = ""
    final: bool = True  # asking again would end the same way: the input itself is the cause


# The limit of a comparison whose workers others have ended.
KILLED = "killed"
# Of an answer that a worker is asked about.
MAX_CHARS = 1000
MAX_DEPTH = 40
MAX_DIGITS = 1000
# Published answers have powers such as 2^{2009} or 2021055^{2011} (42,000 bits).
MAX_POWER_BITS = 1 << 20
MAX_FACTORIAL = 20_000
MAX_BINOMIAL = 100_000
MAX_TERMS = 100_000
MAX_SYMBOLIC_DETERMINANT = 5

_LONG_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_E_NOTATION = re.compile(r"\d[eE][+-]?\d{4}")
_LETTER = re.compile(r"[A-Za-z]")
_SIMPLE = re.compile(r"-?\d+|\\?[A-Za-z]+")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*(?=\{)")
_CHOOSE = re.compile(r"\\choose(?![A-Za-z])")
# How far the two numbers around \choose are looked for.
_CHOOSE_CHARS = 64
# Powers of powers beyond this height are screen whatever their numbers.
_MAX_TOWER = 4
_SUM = re.compile(r"\\(?:sum|prod|int|bigcup|bigcap)(?![A-Za-z])")
_MATRIX = re.compile(
    r"\\begin\s*\{([vVbpB]?)(?:matrix|array)\}((?:(?!\\(?:begin|end)).)*+)", re.DOTALL
)
_DETERMINANT = re.compile(
    r"\\det(?![A-Za-z])|\\begin\s*\{[vV]matrix\}|\\operatorname\s*\{(?:det|eig|svd|SVD|rref|rank|nullspace|norm)"
)
_OPENERS = {"{": "}", "(": ")", "[": "]"}
_CLOSERS = {closer: opener for opener, closer in _OPENERS.items()}


def screen(text: str) -> str | None:
    """Return why ``text`` is not worth a worker (one word), None where it is."""
    if len(text) > MAX_CHARS:
        return "length"
    if _LONG_DIGITS.search(text) or _E_NOTATION.search(text):
        return "digits"
    pairs = _bracket_pairs(text)
    if pairs is None:
        return "depth"
    if _large_powers(text, pairs) or _large_factorials(text, pairs):
        return "magnitude"
    if _large_binomials(text, pairs) or _long_sums(text, pairs):
        return "terms"
    if _large_determinants(text):
        return "determinant"
    return None


def _bracket_pairs(text: str) -> dict[int, int] | None:
    """Return the partner of each bracket that has one; None where they nest too deep."""
    stack: list[int] = []
    pairs: dict[int, int] = {}
    for position, character in enumerate(text):
        if character in _OPENERS:
            stack.append(position)
            if len(stack) > MAX_DEPTH:
                return None
        elif character in _CLOSERS and stack and text[stack[-1]] == _CLOSERS[character]:
            opener = stack.pop()
            pairs[opener], pairs[position] = position, opener
    return pairs


def _size(text: str) -> float:
    """Return the magnitude of a closed expression, inf where too large, nan where not closed."""
    try:
        return abs(float(closed_value(_plain(text)).number))
    except (BeyondLimits, OverflowError):
        return math.inf
    except Unreadable:
        return math.nan


def _plain(text: str) -> str:
    return text.replace("\\cdot", "*").replace("\\times", "*").replace("**", "^").replace(",", "")


def _operand(text: str, position: int, pairs: dict[int, int]) -> tuple[str, int]:
    """Return the operand that starts at ``position``, without its brackets, and its end."""
    while position < len(text) and text[position] in " +":
        position += 1
    if position in pairs and text[position] in _OPENERS:
        return text[position + 1 : pairs[position]], pairs[position] + 1
    found = _SIMPLE.match(text, position)
    return ("", position) if found is None else (found[0], found.end())


def _large_powers(text: str, pairs: dict[int, int]) -> bool:
    for found in re.finditer(r"\^|\*\*", text):
        exponent, end = _operand(text, found.end(), pairs)
        tower = [exponent]
        while text[end : end + 1] == "^":  # 2^3^4 without braces
            upper, end = _operand(text, end + 1, pairs)
            tower.append(upper)
            if len(tower) > _MAX_TOWER:
                return True
        size = _size("^(".join(f"({part})" for part in tower) + ")" * (len(tower) - 1))
        if size == math.inf or size * _base_bits(text, found.start(), pairs) > MAX_POWER_BITS:
            return True
    return False


def _base_bits(text: str, position: int, pairs: dict[int, int]) -> float:
    """Return the bits of the base that ends at ``position``; a symbol counts as one digit."""
    size = _size_before(text, position, pairs)
    if size == math.inf:
        return MAX_POWER_BITS
    return math.log2(size) if size >= 2 else 3.0


def _size_before(text: str, position: int, pairs: dict[int, int]) -> float:
    """Return the size of the bracket or number that ends at ``position``, nan for others."""
    if position - 1 in pairs:
        return _size(text[pairs[position - 1] + 1 : position - 1])
    start = position
    while start and (text[start - 1].isdigit() or text[start - 1] == "."):
        start -= 1
    return _size(text[start:position])


def _large_factorials(text: str, pairs: dict[int, int]) -> bool:
    # (n!)! is written n!!, too; sane answers contain neither.
    return "!!" in text or any(
        _size_before(text, found.start(), pairs) > MAX_FACTORIAL for found in re.finditer("!", text)
    )


def _large_binomials(text: str, pairs: dict[int, int]) -> bool:
    parts: list[str] = []
    for found in _BINOMIAL.finditer(text):
        top, end = _operand(text, found.end(), pairs)
        parts += [top, _operand(text, end, pairs)[0]]
    for found in _CHOOSE.finditer(text):
        before = text[max(0, found.start() - _CHOOSE_CHARS) : found.start()]
        after = text[found.end() : found.end() + _CHOOSE_CHARS]
        parts += [before.rpartition("{")[2], after.partition("}")[0]]
    return any(_size(part) > MAX_BINOMIAL for part in parts)


def _long_sums(text: str, pairs: dict[int, int]) -> bool:
    for found in _SUM.finditer(text):
        position = found.end()
        for _ in range(2):
            while text[position : position + 1] == " ":
                position += 1
            if text[position : position + 1] not in ("_", "^"):
                break
            bound, position = _operand(text, position + 1, pairs)
            if _size(bound.rpartition("=")[2]) > MAX_TERMS:
                return True
    return False


def _large_determinants(text: str) -> bool:
    return _DETERMINANT.search(text) is not None and any(
        max(row.count("&") for row in found[2].split("\\\\")) >= MAX_SYMBOLIC_DETERMINANT
        and _LETTER.search(found[2])
        for found in _MATRIX.finditer(text)
    )


# Loading SymPy takes a second; on a cold network file system it can take many.
START_TIMEOUT_S = 60.0
# The template only forks and waits; where it does not answer, it is not there any more.
_CONTROL_TIMEOUT_S = 10.0
# CPU clocks tick every 10 ms; looking more often tells nothing.
_POLL_S = 0.01
# So often a template is asked for a worker, or started, where it is killed meanwhile.
_FORK_TRIES = 3
# Between two looks whether a process that does not answer was stopped.
_LOOK_S = 1.0
# What a stopped process does, and one that a debugger stopped, as ps has it.
_STOPPED = ("T", "t")
# A start that failed is not tried again at once for each of a thousand answers.
_RETRY_S = 5.0
_STOP_TIMEOUT_S = 5.0
# The limit must leave room for more than the libraries themselves.
_MIN_HEADROOM_BYTES = 64 << 20


class TemplateGone(Exception):
    """The template ended although nobody asked it to; its workers ended with it."""


class Worker:
    """One worker process, asked one thing at a time."""

    def __init__(self, template: Template, connection: socket.socket, pid: int) -> None:
        self._template = template
        self._connection = connection
        self.pid = pid

    def ask(self, task: dict[str, Any], cpu_s: float, wall_s: float) -> dict[str, Any]:
        """Send a task and return the reply.

        Raises:
            FrameTimeout: the worker is still busy after ``cpu_s`` seconds of its own, or after
                ``wall_s`` seconds, for on a busy machine its own take longer.
            FrameClosed: the worker is gone, or somebody has stopped it.
        """
        send_frame(self._connection, task)
        end_cpu, end = self.cpu_seconds() + cpu_s, time.monotonic() + wall_s
        while (left_cpu := end_cpu - self.cpu_seconds()) > 0:
            left = min(max(left_cpu, _POLL_S), end - time.monotonic())
            if left <= 0:
                break
            if _readable(self._connection, left):
                return receive_frame(self._connection, _CONTROL_TIMEOUT_S)
            if _is_stopped(self.pid):
                raise FrameClosed
        raise FrameTimeout

    def alive(self) -> bool:
        """Tell whether the process still has its end of the connection open."""
        self._connection.setblocking(False)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far; where the system does not tell, the wall time."""
        fields = _stat(self.pid)
        if not fields:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def forget(self) -> None:
        """Let go of a worker that belongs to the process this one was forked from."""
        self._connection.close()

    def interrupt(self) -> None:
        """Make a running :meth:`ask` of another thread end with FrameClosed."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def kill(self) -> int:
        """End the process, wait for it, and return the signal that ended it, else 0.

        Raises:
            TemplateGone: the template died, and the worker with it.
        """
        self._connection.close()
        status = self._template.end(self.pid)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _readable(connection: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(math.ceil(timeout_s * 1000)))


def _stat(pid: int) -> list[str]:
    """Return what the system says of a process from its state on; nothing where it does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def _is_stopped(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] in _STOPPED


class Template:
    """The process that has SymPy loaded and forks workers; started at first use.

    Thread-safe.  A template that died is replaced at the next fork.
    """

    def __init__(self, memory_limit_bytes: int) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._failure: VerifierUnavailable | None = None
        self._retry_at = 0.0
        self._lock = threading.Lock()

    def fork(self) -> Worker:
        """Return a new worker.

        Raises:
            VerifierUnavailable: the environment allows no process, or libraries are missing.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise VerifierUnavailable(f"the answer workers cannot be reached: {error}") from error
        with self._lock, theirs:
            try:
                pid = next(filter(None, (self._fork(theirs) for _ in range(_FORK_TRIES))), 0)
            except VerifierUnavailable:
                ours.close()
                raise
        if not pid:
            ours.close()
            raise VerifierUnavailable(
                "the answer workers cannot fork: the limit on processes or memory is reached,"
                " or they are killed"
            )
        return Worker(self, ours, pid)

    def _fork(self, connection: socket.socket) -> int:
        """Ask for a worker on ``connection``; 0 where the template failed or is gone."""
        try:
            control = self._running()
            socket.send_fds(control, [b"F"], [connection.fileno()])
            return self._reply(control)
        except (OSError, FrameTimeout, FrameClosed):
            self._stop()
            return 0
        except TemplateGone:  # while it started
            return 0

    def end(self, pid: int) -> int:
        """Kill a worker and return its wait status.

        Raises:
            TemplateGone: the template is gone, and the worker with it.
        """
        with self._lock:
            if self._control is None:
                raise TemplateGone
            try:
                self._control.sendall(b"K%d" % pid)
                return self._reply(self._control)
            except (OSError, FrameTimeout, FrameClosed) as error:
                # A late reply would be taken for the next one's.
                self._stop()
                raise TemplateGone from error

    def close(self) -> None:
        """End the template and all its workers."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """Let go of a template that belongs to the process this one was forked from."""
        if self._control is not None:
            self._control.close()
        self._process = self._control = None
        self._lock = threading.Lock()

    def _reply(self, control: socket.socket) -> int:
        return int(self._receive(control, _CONTROL_TIMEOUT_S)["reply"])

    def _receive(self, control: socket.socket, timeout_s: float) -> dict[str, Any]:
        """Return what the template says.

        Raises:
            FrameTimeout: it does not within ``timeout_s`` seconds, or somebody has stopped it.
            FrameClosed: it is gone.
        """
        assert self._process is not None
        end = time.monotonic() + timeout_s
        while not _readable(control, min(_LOOK_S, timeout_s)):
            if time.monotonic() >= end or _is_stopped(self._process.pid):
                raise FrameTimeout
        return receive_frame(control, _CONTROL_TIMEOUT_S)

    def _running(self) -> socket.socket:
        if self._control is not None:
            return self._control
        if self._failure is not None and time.monotonic() < self._retry_at:
            raise VerifierUnavailable(str(self._failure))
        try:
            self._start()
        except VerifierUnavailable as error:
            self._failure, self._retry_at = error, time.monotonic() + _RETRY_S
            raise
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        interpreter = _interpreter()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise VerifierUnavailable(f"the answer workers cannot be reached: {error}") from error
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*interpreter, str(theirs.fileno()), str(self._memory_limit_bytes)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # a terminal's SIGINT is not for them
                )
            except OSError as error:
                ours.close()
                raise VerifierUnavailable(
                    f"the answer workers cannot be started with {sys.executable!r}: {error}"
                ) from error
        self._control = ours
        try:
            hello = self._receive(ours, START_TIMEOUT_S)
        except (FrameTimeout, FrameClosed) as error:
            stopped = _is_stopped(self._process.pid)
            code = self._stop()
            if stopped or (isinstance(error, FrameClosed) and code is not None and code < 0):
                raise TemplateGone from error  # somebody else's doing
            raise VerifierUnavailable(
                "the answer workers' template process did not come up within "
                f"{START_TIMEOUT_S:.0f} s (exit status {code})"
            ) from error
        if "error" in hello:
            self._stop()
            raise VerifierUnavailable(
                f"the answer workers cannot load math-verify and SymPy: {hello['error']}"
            )
        used_bytes = int(hello["ready"])
        if used_bytes + _MIN_HEADROOM_BYTES > self._memory_limit_bytes:
            self._stop()
            raise VerifierUnavailable(
                f"memory_limit_bytes {self._memory_limit_bytes} leaves no room beside the "
                f"{used_bytes} bytes of address space that the libraries take"
            )

    def _stop(self) -> int | None:
        """End the process, if any, and return its exit status."""
        if self._control is not None:
            self._control.close()
        process, self._process, self._control = self._process, None, None
        if process is None:
            return None
        if _is_stopped(process.pid):
            process.kill()
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return process.wait()


def _interpreter() -> list[str]:
    """Return the command of a template without its arguments."""
    if not sys.executable:
        raise VerifierUnavailable("the answer workers need sys.executable, which is empty")
    # -P: the working directory must not shadow a module.
    return [sys.executable, "-P", "-m", f"{__package__}.worker"]


def _environment() -> dict[str, str]:
    # The child finds the same packages, however this process came by them, and the standard
    # library first: a script's own folder must not shadow what SymPy imports of that.
    standard = Path(sysconfig.get_path("stdlib"))
    paths = dict.fromkeys([str(standard), str(standard / "lib-dynload"), *filter(None, sys.path)])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONWARNINGS": "ignore",
        # SymPy orders by hash in places; the same answers shall meet the same path.
        "PYTHONHASHSEED": "0",
        # Should numpy be imported: its threads would stand in the way of fork and limit.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


# An eighth of the budget: 0.25 s by default.
FIRST_SLICE = 1 / 8
# Workers are renewed, so that caches inside SymPy and ANTLR stay small.
_TASKS_PER_WORKER = 2000
# Slices are CPU time.  On a machine that is busy otherwise they may take so many times as
# long, then the comparison is stopped and the machine to blame, not the answer.
_PATIENCE = 20.0
_CLOSED = "the answer verifier was closed"


@dataclass(slots=True)
class Caller:
    """One caller's comparisons, with the worker seconds that they have taken."""

    spent_s: float = 0.0


@dataclass(slots=True)
class PendingComparison:
    """One comparison in the pool.

    Attributes:
        future: ends with an outcome, or with VerifierUnavailable where no worker can be had.
        wanted: whether anybody waits for it.  What was started, and is not wanted when its next
            turn comes, ends undecided.
        died: whether a worker has ended while it ran.
    """

    key: ComparisonKey
    call: Caller
    future: Future[ComparisonOutcome] = field(default_factory=Future)
    wanted: bool = True
    died: bool = False


class _Lane:
    """Waiting tasks, by call; the call with the least time spent is served first."""

    def __init__(self, slice_s: float) -> None:
        self.slice_s = slice_s
        self._waiting: dict[int, tuple[Caller, deque[PendingComparison]]] = {}

    def push(self, task: PendingComparison) -> None:
        _, tasks = self._waiting.setdefault(id(task.call), (task.call, deque()))
        tasks.append(task)

    def pop(self) -> PendingComparison | None:
        if not self._waiting:
            return None
        call, tasks = min(self._waiting.values(), key=lambda waiting: waiting[0].spent_s)
        task = tasks.popleft()
        if not tasks:
            del self._waiting[id(call)]
        return task

    def drain(self) -> list[PendingComparison]:
        tasks = [task for _, waiting in self._waiting.values() for task in waiting]
        self._waiting.clear()
        return tasks


class SymbolicPool:
    """Compares answers in worker processes; starts at the first task.  Thread-safe.

    Each lane has ``workers`` processes, each with ``memory_limit_bytes`` of address space; one
    comparison may take ``budget_s`` CPU seconds in all.
    """

    def __init__(self, workers: int, budget_s: float, memory_limit_bytes: int) -> None:
        self._workers = workers
        self._budget_s = budget_s
        self._template = Template(memory_limit_bytes)
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        first = self._budget_s * FIRST_SLICE
        self._fast = _Lane(first)
        self._slow = _Lane(self._budget_s - first)
        self._threads: list[threading.Thread] = []
        self._live: set[Worker] = set()
        self._closed = False
        self.processes_started = 0

    def submit(self, key: ComparisonKey, call: Caller) -> PendingComparison:
        """Queue a comparison; cancelling its future works until it is first started.

        Raises:
            VerifierUnavailable: the pool is closed.
        """
        task = PendingComparison(key, call)
        with self._changed:
            if self._closed:
                raise VerifierUnavailable("the answer verifier is closed")
            self._fast.push(task)
            if not self._threads:
                self._start_threads()
            self._changed.notify_all()
        return task

    def close(self) -> None:
        """End all processes and threads; what still waits ends with VerifierUnavailable."""
        with self._changed:
            self._closed = True
            left = self._fast.drain() + self._slow.drain()
            for worker in self._live:
                worker.interrupt()
            self._changed.notify_all()
        _settle(left, VerifierUnavailable(_CLOSED))
        for thread in self._threads:
            thread.join()
        self._template.close()

    def forget(self) -> None:
        """Start anew in a process forked from the one that this pool's processes belong to."""
        for worker in self._live:
            worker.forget()
        self._template.forget()
        self._reset()

    def _start_threads(self) -> None:
        for lane in (self._fast, self._slow):
            for _ in range(self._workers):
                thread = threading.Thread(
                    target=self._serve, args=(lane,), name="answer-pool", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def _serve(self, lane: _Lane) -> None:
        """Run one lane's tasks on one worker process after the other."""
        worker: Worker | None = None
        done = 0
        while (task := self._next(lane)) is not None:
            try:
                worker = self._run(task, lane, worker)
            except Exception as error:
                # A defect of ours: its caller sees it, and the thread lives on.
                _settle([task], error)
                worker = None
            done += 1
            if worker is not None and done % _TASKS_PER_WORKER == 0:
                self._end(worker)
                worker = None
        if worker is not None:
            self._end(worker)

    def _next(self, lane: _Lane) -> PendingComparison | None:
        """Wait for a task that is still wanted; None when the pool is closed."""
        while True:
            with self._changed:
                while (task := lane.pop()) is None:
                    if self._closed:
                        return None
                    self._changed.wait()
            if not task.future.running():
                if task.future.set_running_or_notify_cancel():
                    return task
            elif task.wanted:
                return task
            else:
                task.future.set_result(ComparisonOutcome(None, "load", final=False))

    def _run(self, task: PendingComparison, lane: _Lane, worker: Worker | None) -> Worker | None:
        """Run one task; return the worker if it can go on."""
        if worker is not None and not worker.alive():
            self._end(worker)
            worker = None
        try:
            worker = worker or self._fork()
        except VerifierUnavailable as error:
            with self._changed:
                left = [task, *self._fast.drain(), *self._slow.drain()]
            _settle(left, error)
            return None
        started, used_s = time.monotonic(), worker.cpu_seconds()
        question = {**task.key._asdict(), "seconds": lane.slice_s}
        try:
            reply = worker.ask(question, lane.slice_s, _PATIENCE * lane.slice_s)
        except FrameTimeout:
            own_fault = worker.cpu_seconds() - used_s >= lane.slice_s
            self._end(worker)
            self._out_of_time(task, lane, own_fault)
            return None
        except FrameClosed:
            self._died(task, lane, worker)
            return None
        finally:
            task.call.spent_s += time.monotonic() - started
        if "equal" in reply:
            task.future.set_result(ComparisonOutcome(bool(reply["equal"])))
            return worker
        self._end(worker)
        task.future.set_result(ComparisonOutcome(None, "memory"))
        return None

    def _out_of_time(self, task: PendingComparison, lane: _Lane, own_fault: bool) -> None:
        if lane is self._slow:
            limit = "budget" if own_fault else "load"
            task.future.set_result(ComparisonOutcome(None, limit, final=own_fault))
            return
        with self._changed:
            if not self._closed:
                self._slow.push(task)
                self._changed.notify_all()
                return
        _settle([task], VerifierUnavailable(_CLOSED))

    def _died(self, task: PendingComparison, lane: _Lane, worker: Worker) -> None:
        """Settle a task in whose midst the worker ended."""
        by_signal = self._end(worker)
        out_of_time = by_signal == signal.SIGXCPU
        with self._changed:
            if not (self._closed or task.died or out_of_time):
                task.died = True
                lane.push(task)
                return
        if self._closed:
            _settle([task], VerifierUnavailable(_CLOSED))
        elif by_signal is None or by_signal == signal.SIGKILL:
            # Not by us, or stopped before: the kernel, out of memory on the machine, or somebody.
            _settle([task], ComparisonOutcome(None, KILLED, final=False))
        else:
            _settle([task], ComparisonOutcome(None, "budget" if out_of_time else "crash"))

    def _fork(self) -> Worker:
        worker = self._template.fork()
        with self._changed:
            self._live.add(worker)
            self.processes_started += 1
            if self._closed:
                worker.interrupt()
        return worker

    def _end(self, worker: Worker) -> int | None:
        """Kill a worker; return the signal that had ended it, None where nobody knows."""
        with self._changed:
            self._live.discard(worker)
        try:
            return worker.kill()
        except TemplateGone:
            return None


def _settle(tasks: Iterable[PendingComparison], result: ComparisonOutcome | Exception) -> None:
    for task in tasks:
        # A caller may cancel at any moment; then nobody wants the result.
        with contextlib.suppress(InvalidStateError):
            if isinstance(result, ComparisonOutcome):
                task.future.set_result(result)
            else:
                task.future.set_exception(result)
