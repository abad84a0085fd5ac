"""A trainer's sample scored: from its row and what the policy wrote to reward, metrics and log.

What the adapters of all trainers do alike.  A :class:`SampleScorer` finds the problem, knows the
epoch, asks the source of this process and keeps the score log; an adapter only reads what its
trainer hands over, and answers as that trainer is answered.  It may be sent to another process,
and begins there anew.

Some trainers call a reward where no event loop stays: there it runs on the one of
:func:`on_own_loop`, since a source, its channel and its stand-in belong to a loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from consensuspr.client.training.rows import ProblemIds, TrainingRow
from consensuspr.client.training.settings import EpochClock, RewardSettings
from consensuspr.client.training.source import (
    ScoredSample,
    check_source,
    score_log_of,
    shared_source,
)

T = TypeVar("T")


class SampleScorer:
    """Scores samples by the settings of one run.

    Args:
        settings: of the reward.
        missing: why a sample may come without its epoch, a clause for the error message.

    Raises:
        InputError: the score log cannot be written to, or another file cannot be read.
    """

    def __init__(self, settings: RewardSettings, missing: str) -> None:
        self.settings = settings
        self._missing = missing
        self._ids = ProblemIds(settings.problem_id_format)
        self._clock = EpochClock(settings, missing=missing)
        # Before the first sample, to find files that cannot be read or written.  Processes of one
        # start are recognized because all begin their logs before any of them ends.
        check_source(settings)
        score_log_of(settings)

    def __reduce__(self) -> tuple[type[SampleScorer], tuple[RewardSettings, str]]:
        return SampleScorer, (self.settings, self._missing)

    async def score(
        self,
        row: TrainingRow,
        response: str | bytes,
        num_tokens: int | None = None,
        *,
        step: int | None = None,
        epoch: int | None = None,
        spans: bool = False,
    ) -> ScoredSample:
        """Return the reward of what the policy wrote.

        Args:
            row: that it answers.
            response: what the policy wrote, and nothing else.
            num_tokens: of it, where the trainer tells.
            step: of the training, from 1; None where the trainer does not tell.
            epoch: from 0, where the trainer tells it itself.  Where it tells neither, those
                that stand in the row count, as they were planned when the data were made.
            spans: also say where each node was first hit, and what it adds.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the row names no problem or two, or the epoch is needed and not known.
            RewardServiceError: the server refused, or was away for too long.
        """
        rollout = row.rollout(response, self._ids, num_tokens)
        if step is None and epoch is None:
            step, epoch = row.planned("global_step"), row.planned("epoch")
        at = self._clock.epoch_of(step, epoch)
        source = shared_source(self.settings)
        return await source.score(rollout, at, row.split, spans=spans, step=step)


async def together(samples: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what becomes of samples that are scored at the same time.

    The first failure ends the others, and is raised as itself.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sample) for sample in samples]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def on_own_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin work on an event loop that lives as long as this process; a future of any thread."""
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the loop of a process, which no child that it forks has."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="consensuspr-rewards", daemon=True).start()
    return loop
