"""Stage 2 by a model: many problems wait for its replies at once, in one event loop.

The loop runs in a thread of its own, because the other side, which reads rollouts and verifies
their answers, blocks.  An extraction is in the journal before anything else is done with it: it
was paid for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from consensusbench.construction.ordered import in_order
from consensusbench.construction.values import Failure, Group, Item, Result, Stream, Task
from consensusbench.extraction.types import AsyncExtractor, Extraction
from consensuspr.errors import (
    BudgetSpent,
    ConsensusPRError,
    InputError,
    ModelNoAccess,
    VerifierUnavailable,
)

# Problems that may wait for a slow one before them, for each that is being extracted.
WINDOW = 4

# After these no other problem has a chance either.
_HOPELESS = (BudgetSpent, ModelNoAccess, InputError, VerifierUnavailable)


class LlmEngine:
    """Extracts by asking a model.

    Args:
        open_extractor: called in the event loop, entered before the first problem and left
            after the last.
        in_flight: problems that are extracted at once.
        keep: called with each extraction as soon as it is there.
    """

    def __init__(
        self,
        open_extractor: Callable[[], AbstractAsyncContextManager[AsyncExtractor]],
        in_flight: int,
        keep: Callable[[Group, Extraction], None],
    ) -> None:
        self._open_extractor = open_extractor
        self._in_flight = in_flight
        self._keep = keep

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order; tasks with an extraction come back as it.

        Raises:
            BudgetSpent: a limit leaves no further request; what is done is kept.
            ModelNoAccess: the model takes no request at all.

        Where no further problem has a chance, extractions that have begun are waited for and
        kept: their replies are being paid for.
        """
        with _Loop() as loop:
            extracting = _Extracting(self._in_flight, self._keep)
            loop.call(extracting.open(self._open_extractor()))
            try:
                yield from in_order(
                    items,
                    lambda task: _given(task) or loop.submit(extracting.extract(task)),
                    WINDOW * self._in_flight,
                )
            except _HOPELESS as error:
                loop.call(extracting.finish(error))
                raise
            finally:
                loop.cancel_all()
                loop.call(extracting.close())


class _Extracting:
    """The side of the event loop."""

    def __init__(self, in_flight: int, keep: Callable[[Group, Extraction], None]) -> None:
        self._slots = asyncio.Semaphore(in_flight)
        self._keep = keep
        self._context: AbstractAsyncContextManager[AsyncExtractor] | None = None
        self._extractor: AsyncExtractor | None = None
        # Why no further extraction begins, once there is a reason.
        self._over: Exception | None = None

    async def open(self, context: AbstractAsyncContextManager[AsyncExtractor]) -> None:
        self._extractor = await context.__aenter__()
        self._context = context

    async def finish(self, reason: Exception) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._over = self._over or reason
        await asyncio.gather(*_others(), return_exceptions=True)

    async def close(self) -> None:
        if self._context is not None:
            await self._context.__aexit__(None, None, None)

    async def extract(self, task: Task) -> Result:
        assert self._extractor is not None, "the extractor is open"
        async with self._slots:
            if self._over is not None:
                raise self._over
            start = time.perf_counter()
            try:
                extraction = await self._extractor.extract(task.group.problem, task.rollouts)
            except _HOPELESS as error:
                self._over = error
                raise
            except ConsensusPRError as error:
                return Result(failure=Failure("failed", str(error)))
            self._keep(task.group, extraction)
            return Result(extraction, extract_s=time.perf_counter() - start)


def _given(task: Task) -> Future[Result] | None:
    """Return the result of a task that needs no extraction."""
    if task.extraction is None:
        return None
    done: Future[Result] = Future()
    done.set_result(Result(task.extraction))
    return done


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="extract", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def cancel_all(self) -> None:
        """End what is under way, and wait until it has."""
        self.call(_cancel_others())


def _others() -> set[asyncio.Task[Any]]:
    """Return the tasks of the running loop but the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def _cancel_others() -> None:
    others = _others()
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)
