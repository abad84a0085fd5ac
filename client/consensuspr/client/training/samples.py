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
import math
import os
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from consensuspr.client.training.rows import ProblemIds, TrainingRow
from consensuspr.client.training.settings import EpochClock, RewardSettings
from consensuspr.client.training.source import ScoredSample, UnscorableSample, shared_source

T = TypeVar("T")

Outcome: TypeAlias = ScoredSample | UnscorableSample

# Of a trainer's own log, where it takes figures.
METRICS = "consensuspr"


class SampleScorer:
    """Scores samples by the settings of one run.

    Args:
        settings: of the reward.
        missing: why a sample may come without its epoch, a clause for the error message.
    """

    def __init__(self, settings: RewardSettings, missing: str) -> None:
        self.settings = settings
        self._missing = missing
        self._ids = ProblemIds(settings.problem_id_format)
        self._clock = EpochClock(settings, missing=missing)

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
    ) -> ScoredSample:
        """Return the reward of what the policy wrote.

        Args:
            row: that it answers.
            response: what the policy wrote, and nothing else.
            num_tokens: of it, where the trainer tells.
            step: of the training, from 1; None where the trainer does not tell.
            epoch: from 0, where the trainer tells it itself.  Where it tells neither, those
                that stand in the row count, as they were planned when the data were made.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the row names no problem or two, or the epoch is needed and not known.
            RewardServiceError: the server refused, or was away for too long.
        """
        rollout = row.rollout(response, self._ids, num_tokens)
        if step is None and epoch is None:
            step, epoch = row.planned("global_step"), row.planned("epoch")
        at = self._clock.epoch_of(step, epoch)
        return await shared_source(self.settings).score(rollout, at, row.split, step=step)


def means(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return the figures of a batch for a trainer's log, by their names there.

    Each is the mean over the samples that have the value; ``unscorable`` is the share of those
    without a reward of the formula.
    """
    outcomes = list(outcomes)
    found = {}
    for name in ("acc", "ncr", "ncr_raw", "guard", "tpn"):
        values = [value for one in outcomes if (value := figure(one, name)) is not None]
        if values:
            found[f"{METRICS}/{name}"] = math.fsum(values) / len(values)
    if outcomes:
        missing = sum(
            isinstance(one, UnscorableSample) or one.score.reward is None for one in outcomes
        )
        found[f"{METRICS}/unscorable"] = missing / len(outcomes)
    return found


def figure(outcome: Outcome, name: str) -> Any:
    """Return a value of a score by its name, None where there is none; the status as a text."""
    if isinstance(outcome, UnscorableSample):
        return str(outcome.status) if name == "status" else None
    value = getattr(outcome.score, name)
    return str(value) if name == "status" else value


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
