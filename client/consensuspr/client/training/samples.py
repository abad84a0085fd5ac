"""A trainer's sample scored: from its row and response to reward, metrics and score log.

An adapter reads what its trainer passes, gives it to a :class:`SampleScorer`, and returns what its
trainer expects.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from consensuspr.client.rpc import first_failure
from consensuspr.client.training.rows import ProblemIds, TrainingRow
from consensuspr.client.training.settings import EpochClock, RewardSettings
from consensuspr.client.training.source import ScoredSample, score_log_of, shared_source

T = TypeVar("T")


class SampleScorer:
    """Scores samples by the settings of one run.

    Raises:
        InputError: the score log cannot be written to, or another file cannot be read.
    """

    def __init__(self, settings: RewardSettings, clock: EpochClock) -> None:
        self.settings = settings
        self._ids = ProblemIds(settings.problem_id_format)
        self._clock = clock
        # Now, to find files that cannot be used, and because the logs of one start begin together.
        settings.check_files()
        score_log_of(settings)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str, missing: str) -> Self:
        """Return the scorer of the settings that a trainer was given.

        Args:
            values: settings by name.
            source: of the settings, for error messages.
            missing: why a sample may come without its epoch, a clause for the error message.

        Raises:
            InputError: a setting is unknown or wrong.
        """
        settings = RewardSettings.of(values, source)
        return cls(settings, EpochClock(settings, missing=missing))

    async def score(
        self,
        row: TrainingRow,
        response: str | bytes,
        num_tokens: int | None = None,
        *,
        step: int | None = None,
        epoch: int | None = None,
        group: str | None = None,
        rollout_id: str | None = None,
        penalty: float | None = 0.0,
        spans: bool = False,
    ) -> ScoredSample:
        """Return the reward of a response.

        Args:
            row: that it answers.
            response: what the policy wrote, and nothing else.
            num_tokens: of it, if the trainer passes it.
            step: of the training, from 1; None if the trainer does not pass it.
            epoch: from 0.  Without step and epoch those of the row count.
            group: of samples that the trainer compares; for the score log, as what follows.
            rollout_id: of the sample.
            penalty: added to the reward by the trainer; None: unknown.
            spans: also return where each node was first hit, and its share.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the row names no problem or two, or the epoch is needed and not known.
            RewardServiceError: the server rejected it, or was away for too long.
        """
        if step is None and epoch is None:
            step, epoch = row.planned("global_step"), row.planned("epoch")
        rollout = row.rollout(response, self._ids, num_tokens)
        rollout.rollout_id = rollout_id
        return await shared_source(self.settings).score(
            rollout,
            self._clock.epoch_of(step, epoch),
            row.split,
            spans=spans,
            step=step,
            group=group,
            penalty=penalty,
        )


async def together(samples: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of samples scored at the same time; the first failure ends the others."""
    async with first_failure() as group:
        tasks = [group.create_task(sample) for sample in samples]
    return [task.result() for task in tasks]


def on_own_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin work on an event loop that lives as long as this process; a future of any thread.

    For trainers that call a reward where no event loop stays.
    """
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the loop of a process, which no child that it forks has."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="consensuspr-rewards", daemon=True).start()
    return loop
