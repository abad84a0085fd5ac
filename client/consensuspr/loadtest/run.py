"""One run of one process: requests out when they are due, outcomes in.

Open loop: a request is due when the schedule says so, whatever the server does, and its
latency counts from then on.  Where memory allows no more requests in flight, it waits and its
latency goes on counting (no coordinated omission).  Closed loop: a request is due when the
one before it ended.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from consensuspr.loadtest.load import due_times
from consensuspr.loadtest.orders import Setup, Start
from consensuspr.loadtest.outcome import DEADLINE, Outcome
from consensuspr.loadtest.pacing import Pacer
from consensuspr.loadtest.recording import Recorder
from consensuspr.loadtest.senders import Sender
from consensuspr.loadtest.settings import in_flight_limit

# After a request that was not answered, where the server gave no hint: a closed loop would
# else call a server that is down as fast as it can.
PAUSE_S = 0.1


class Run:
    """One run, from its order to its end.

    Args:
        setup: of this process.
        order: what to do.
        sender: sends.
        recorder: is told of every request.
    """

    def __init__(self, setup: Setup, order: Start, sender: Sender, recorder: Recorder) -> None:
        self._settings = setup.settings
        self._process, self._processes = setup.number, setup.processes
        self._order = order
        self._sender = sender
        self._recorder = recorder
        self._limit = in_flight_limit(sender.request_bytes, setup.processes)
        self._numbers = itertools.count(order.first)
        # ... with when its request was due; 0: a closed loop, which counts its own.
        self._in_flight: dict[asyncio.Task[Any], float] = {}
        self._waiting: deque[float] = deque()
        self._pacer: Pacer | None = None
        self._all_due = asyncio.Event()
        self._stopped = False
        self._over = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests that are sent, or held back, and have not ended."""
        return len(self._in_flight) + len(self._waiting)

    def stop(self) -> None:
        """Send nothing more, and give up what is in flight."""
        self._stopped = True
        if self._pacer is not None:
            self._pacer.stop()
        while self._waiting:
            self._recorder.abandoned(self._waiting.popleft())
        for task, due in self._in_flight.items():
            if task.cancel() and due:
                self._recorder.abandoned(due)
        self._over.set()

    async def carry_out(self) -> None:
        """Return when every request of the run has ended, or the run was stopped."""
        if self._order.load is not None:
            self._pacer = Pacer(self._dues(), self._begin, self._no_more)
            self._pacer.start()
            await self._over.wait()
            await self._all_due.wait()  # the thread is done with this loop
        else:
            loops = [asyncio.create_task(self._loop(n)) for n in self._quotas()]
            self._in_flight.update(dict.fromkeys(loops, 0.0))
            await asyncio.wait(loops)
        left = list(self._in_flight)
        if left:
            await asyncio.wait(left)
        for task in left:
            if not task.cancelled():
                task.result()  # a defect of ours is not swallowed

    # -- open loop

    def _dues(self) -> Iterator[float]:
        """Yield when this process's requests are due: every n-th of the common schedule."""
        order, settings = self._order, self._settings
        assert order.load is not None
        measured = 0
        for number, due_s in enumerate(due_times(order.load, settings.arrivals, settings.seed)):
            measured += due_s >= 0
            if order.requests is not None and measured > order.requests:
                return
            if number % self._processes == self._process:
                yield order.at + due_s

    def _begin(self, due: float) -> None:
        if self._stopped:
            self._recorder.abandoned(due)
        elif len(self._in_flight) < self._limit:
            self._send_later(due, held=False)
        else:
            self._waiting.append(due)

    def _send_later(self, due: float, *, held: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._send(due, held=held))
        self._in_flight[task] = due
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.stop()  # ... and the task stays, for carry_out to raise
            return
        self._in_flight.pop(task, None)
        while self._waiting and len(self._in_flight) < self._limit:
            self._send_later(self._waiting.popleft(), held=True)
        self._check_over()

    def _no_more(self) -> None:
        self._all_due.set()
        self._check_over()

    def _check_over(self) -> None:
        if self._all_due.is_set() and not self._in_flight and not self._waiting:
            self._over.set()

    async def _send(self, due: float, *, held: bool) -> Outcome:
        now = time.monotonic()
        left_s = due + self._settings.timeout_s - now
        self._recorder.sent(due, now, held=held)
        if left_s <= 0:
            outcome = Outcome(DEADLINE, "its time was over before it could be sent")
        else:
            outcome = await self._sender.send(next(self._numbers), left_s)
        self._recorder.ended(due, time.monotonic(), outcome)
        return outcome

    # -- closed loop

    def _quotas(self) -> list[int | None]:
        """Return how many measured requests each loop makes."""
        wanted, loops = self._order.requests, self._order.concurrency
        if wanted is None:
            return [None] * loops
        return [wanted // loops + (n < wanted % loops) for n in range(loops)]

    async def _loop(self, quota: int | None) -> None:
        order, settings = self._order, self._settings
        await asyncio.sleep(order.at - settings.warmup_s - time.monotonic())
        while not self._stopped:
            now = time.monotonic()
            if now >= order.at + settings.duration_s or quota == 0:
                return
            if quota is not None and now >= order.at:
                quota -= 1
            try:
                outcome = await self._send(now, held=False)
            except asyncio.CancelledError:
                self._recorder.abandoned(now)
                raise
            if outcome.reply is None:
                await asyncio.sleep(outcome.retry_after_s or PAUSE_S)
