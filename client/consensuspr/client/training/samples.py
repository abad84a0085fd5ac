"""A trainer's sample scored: from its row and response to reward, metrics and score log.

An adapter only reads what its trainer passes to a :class:`SampleScorer`, and returns what its
trainer expects.  Some trainers call a reward where no event loop stays: it then runs on the loop of
:func:`on_own_loop`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from consensuspr.client.rpc import first_failure
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
        # Now, to find files that cannot be used, and because the logs of one start begin together.
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
        """Return the reward of a response.

        Args:
            row: that it answers.
            response: what the policy wrote, and nothing else.
            num_tokens: of it, if the trainer passes it.
            step: of the training, from 1; None if the trainer does not pass it.
            epoch: from 0.  Without step and epoch those of the row count.
            spans: also return where each node was first hit, and its share.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the row names no problem or two, or the epoch is needed and not known.
            RewardServiceError: the server rejected it, or was away for too long.
        """
        rollout = row.rollout(response, self._ids, num_tokens)
        if step is None and epoch is None:
            step, epoch = row.planned("global_step"), row.planned("epoch")
        at = self._clock.epoch_of(step, epoch)
        source = shared_source(self.settings)
        return await source.score(rollout, at, row.split, spans=spans, step=step)


async def together(samples: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of samples scored at the same time; the first failure ends the others."""
    async with first_failure() as group:
        tasks = [group.create_task(sample) for sample in samples]
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
