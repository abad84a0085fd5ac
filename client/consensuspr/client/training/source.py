"""Where a trainer's rewards come from: the server, or what stands in for it.

One source, with one channel and one micro-batcher, serves all samples of a worker process;
:func:`shared_source` hands it out.  A source belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from weakref import WeakKeyDictionary

from consensuspr.client.aio import AsyncRewardClient
from consensuspr.client.training.fallback import LocalFallback
from consensuspr.client.training.loud import LoudCounter
from consensuspr.client.training.result import ScoredSample, UnscorableSample
from consensuspr.client.training.settings import RewardSettings
from consensuspr.errors import (
    DeadlineExceeded,
    InputError,
    Overloaded,
    RewardServiceError,
    Unavailable,
)
from consensuspr.scoring.types import Rollout, Score, Status
from consensuspr.wire.info import DatasetInfo, ServerInfo
from consensuspr.wire.options import ScoreOptions

logger = logging.getLogger(__name__)

# What may pass: nobody listens, or too many ask.  A server that refuses the request itself
# (a dataset that it does not have, another protocol) will do so again.
_AWAY = (Unavailable, Overloaded, DeadlineExceeded)

# Between two rounds of waiting; a round itself retries with growing, jittered pauses.
_PAUSE_S = 0.5

# An answer that was not decided because the machine was busy would count as wrong through no
# fault of its own; it is asked for again after pauses of up to so many seconds.
_BUSY_METHODS = ("load", "deadline")
_BUSY_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


class RewardSource:
    """Scores single samples, and follows the settings where that does not work.

    Args:
        settings: of the reward.

    Raises:
        InputError: an address or path is wrong.  Nothing is connected before the first sample.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self.settings = settings
        self._client = AsyncRewardClient(settings.address, settings.timeout_s)
        self._fallback = (
            LocalFallback(settings.dataset_path, settings.dataset)
            if settings.dataset_path is not None
            else None
        )
        self._loud = LoudCounter(logger)
        self._met: asyncio.Task[ServerInfo] | None = None
        self._digest: str | None = None
        self._watch: asyncio.Task[None] | None = None

    async def score(self, rollout: Rollout, epoch: int) -> ScoredSample:
        """Return the reward of one sample.

        Args:
            rollout: the sample; its data source and id are labels.
            epoch: of the curriculum, from 0.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the sample or the settings are wrong.
            RewardServiceError: the server refused, or was away for longer than the settings
                allow; no reward was made up for it.
        """
        settings = self.settings
        options = ScoreOptions.checked(
            settings.spec,
            epoch,
            settings.dataset,
            settings.answer_rule,
            settings.on_undecided,
        )
        score, scored_by = await self._decided(rollout, options)
        if score.status is not Status.OK:
            self._loud.count(str(score.status), _explained(rollout, score))
        if score.reward is not None:
            return ScoredSample(score.reward, score, epoch, scored_by)
        if settings.on_unscorable == "raise":
            raise UnscorableSample(score.status, _explained(rollout, score))
        return ScoredSample(settings.on_unscorable, score, epoch, scored_by)

    async def close(self) -> None:
        """Close the channel and stop local scoring.  May be called twice."""
        for task in (self._met, self._watch):
            if task is not None:
                task.cancel()
        await self._client.close()
        if self._fallback is not None:
            self._fallback.close()

    async def _decided(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, str]:
        """Return a sample's score, asked for again where a busy machine was to blame."""
        score, scored_by = await self._scored(rollout, options)
        for pause_s in _BUSY_PAUSES_S:
            if (
                score.status is not Status.ANSWER_UNDECIDED
                or score.answer_method not in _BUSY_METHODS
            ):
                break
            self._loud.count(
                "answer check busy", f"{_explained(rollout, score)}; it is asked for again"
            )
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
            score, scored_by = await self._scored(rollout, options)
        return score, scored_by

    async def _scored(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, str]:
        """Return a sample's score and who made it: server, stand-in, or server after a wait."""
        settings, fallback = self.settings, self._fallback
        give_up_at = time.monotonic() + settings.unavailable_limit_s
        while True:
            if fallback is not None and self._watch is not None:
                return await fallback.score_one(rollout, options), "local"
            patience_s = min(settings.timeout_s, max(0.001, give_up_at - time.monotonic()))
            try:
                await asyncio.shield(self._meeting())
                score = await self._client.score_one(
                    rollout,
                    options.reward,
                    options.epoch,
                    options.dataset,
                    answer_rule=options.answer_rule,
                    on_undecided=options.on_undecided,
                    timeout_s=patience_s,
                )
            except _AWAY as error:
                self._loud.count("server away", f"{error}; {self._what_next()}")
                if fallback is not None:
                    self._watch_server()
                elif settings.on_unavailable == "raise" or time.monotonic() >= give_up_at:
                    raise
                else:
                    await asyncio.sleep(min(_PAUSE_S, max(0.0, give_up_at - time.monotonic())))
            else:
                return score, "server"

    def _what_next(self) -> str:
        if self._fallback is not None:
            return f"scoring in this process from {self.settings.dataset_path}"
        if self.settings.on_unavailable == "raise":
            return "the sample fails (on_unavailable=raise)"
        return f"waiting for it, up to {self.settings.unavailable_limit_s:g} s a sample"

    def _meeting(self) -> asyncio.Task[ServerInfo]:
        """Return the task that asked the server who it is, once for all samples."""
        failed = (
            self._met is not None
            and self._met.done()
            and (self._met.cancelled() or self._met.exception() is not None)
        )
        if self._met is None or failed:
            self._met = asyncio.get_running_loop().create_task(self._meet())
        return self._met

    async def _meet(self) -> ServerInfo:
        """Ask the server who it is, and whether it has the dataset that is meant."""
        info = await self._client.server_info()
        dataset = _chosen(info, self.settings.dataset, self.settings.address)
        if self._digest is not None and dataset.digest != self._digest:
            self._loud.count(
                "dataset changed",
                f"the server came back with dataset {dataset.name!r} of digest {dataset.digest},"
                f" it was {self._digest}: rewards before and after are not comparable",
            )
        self._digest = dataset.digest
        if self._fallback is not None:
            self._fallback.expected_digest = dataset.digest
        return info

    def _watch_server(self) -> None:
        """Let samples be scored here until the server is back."""
        if self._watch is None:
            self._met = None
            self._watch = asyncio.get_running_loop().create_task(self._until_back())

    async def _until_back(self) -> None:
        try:
            while True:
                try:
                    await self._meeting()
                except RewardServiceError:
                    await asyncio.sleep(_PAUSE_S)
                else:
                    logger.warning("the server at %s is back", self.settings.address)
                    return
        finally:
            self._watch = None


def _chosen(info: ServerInfo, name: str | None, address: str) -> DatasetInfo:
    """Return the dataset that requests will be scored with.

    Raises:
        InputError: the server has it not, or has several and none was named.
    """
    names = ", ".join(repr(dataset.name) for dataset in info.datasets)
    if name is None:
        if len(info.datasets) == 1:
            return info.datasets[0]
        raise InputError(f"dataset: the server at {address} has several ({names}); name one")
    for dataset in info.datasets:
        if dataset.name == name:
            return dataset
    raise InputError(f"dataset: the server at {address} has no {name!r}, it has {names}")


def _explained(rollout: Rollout, score: Score) -> str:
    reason = f": {score.message}" if score.message else ""
    return f"problem {rollout.problem_id!r} ended with {score.status}{reason}"


_sources: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[RewardSettings, RewardSource]] = (
    WeakKeyDictionary()
)


def shared_source(settings: RewardSettings) -> RewardSource:
    """Return this process's source for the running event loop and these settings."""
    sources = _sources.setdefault(asyncio.get_running_loop(), {})
    source = sources.get(settings)
    if source is None:
        source = sources[settings] = RewardSource(settings)
    return source
