"""Worker processes: started, given tasks, replaced where a problem ended one.

Plain processes and pipes instead of :mod:`multiprocessing` or :mod:`concurrent.futures`: those
import the caller's main script again or fork a process that holds threads, and neither can say
which task was at fault when a worker dies, nor end one that never returns.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from consensusbench.construction.ordered import in_order
from consensusbench.construction.time_limit import CLOCK_FACTOR, TIME_IS_UP
from consensusbench.construction.values import Failure, Item, Result, Stream, Task
from consensusbench.construction.work import Plan
from consensuspr.errors import ConsensusPRError

# Tasks under way for each worker: the next one must be there when a worker is done, and one
# slow problem must not keep the others waiting for the order of the output.
WINDOW = 8

# A worker that dies may have been ended from outside, for memory that another process took.
MAX_ATTEMPTS = 2


class WorkerProcess:
    """One worker, given one task at a time; started at the first.

    Args:
        plan: the same for all tasks.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, task: Task) -> Result:
        """Return what became of a task; a worker that dies over it is replaced.

        Raises:
            ConsensusPRError: the worker cannot be started.
        """
        for _ in range(MAX_ATTEMPTS):
            process = self._process or self._start()
            try:
                return self._ask(process, task)
            except (OSError, EOFError, pickle.UnpicklingError):
                code = self._end()
            if -code in TIME_IS_UP:
                return Result(failure=Failure("time_limit", self._time_limit(-code)))
        return Result(failure=Failure("failed", f"its worker process {_how(code)}, twice"))

    def kill(self) -> None:
        """End the process for good, also under a running :meth:`run` of another thread."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process and wait for it; no :meth:`run` may be under way."""
        self.kill()
        if self._process is not None:
            self._end()

    def _time_limit(self, number: int) -> str:
        limit = self._plan.time_limit_s
        if number == signal.SIGPROF:
            return f"took more than {limit:g} s of processor time"
        return f"was not done after {CLOCK_FACTOR * limit:g} s"

    def _start(self) -> subprocess.Popen[bytes]:
        # A worker sees the packages that this process sees, however they came onto the path.
        path = os.pathsep.join(filter(None, sys.path))
        with self._lock:
            if self._closed:
                raise ConsensusPRError("the workers of the build are closed")
            try:
                process = self._process = subprocess.Popen(
                    [sys.executable, "-m", "consensusbench.construction.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
            except OSError as error:
                raise ConsensusPRError(
                    f"a worker process cannot be started: {error.strerror}"
                ) from error
        try:
            fault = _answer(process, self._plan)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise ConsensusPRError(
                f"a worker process {_how(self._end())} while it started"
            ) from None
        if fault is not None:
            self._end()
            raise ConsensusPRError(f"a worker process cannot load its plan: {fault}")
        return process

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], task: Task) -> Result:
        result = _answer(process, task)
        assert isinstance(result, Result)
        return result

    def _end(self) -> int:
        """Wait for a process that ended or is of no use, and return its exit code."""
        with self._lock:
            process, self._process = self._process, None
        assert process is not None
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what was still to be written has no reader any more
                continue
        try:
            return process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _answer(process: subprocess.Popen[bytes], question: object) -> object:
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(question, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()
    return pickle.load(process.stdout)


def _how(code: int) -> str:
    """Return how a process ended, as the end of a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class LocalEngine:
    """Runs tasks in worker processes of this machine.

    Args:
        plan: what is done with each.
        workers: processes, 1 or more.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self._workers = workers

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order; few are under way at once.

        Raises:
            ConsensusPRError: a worker cannot be started.
        """
        everyone = [WorkerProcess(self._plan) for _ in range(self._workers)]
        idle = deque(everyone)

        def work(task: Task) -> Result:
            # Threads and workers are as many, so that one is idle.
            worker = idle.pop()
            try:
                return worker.run(task)
            finally:
                idle.append(worker)

        threads = ThreadPoolExecutor(self._workers, "build")
        try:
            window = WINDOW * self._workers
            yield from in_order(items, lambda task: threads.submit(work, task), window)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in everyone:
                worker.kill()
            threads.shutdown(wait=True)
            for worker in everyone:
                worker.close()
