"""The reward manager of verl's reward loop.

verl makes one in each of its reward workers and hands it single samples, many of them at a
time; they share one channel and travel in micro-batches.  Runs on verl 0.7.1 to 0.9.1.
"""

from __future__ import annotations

import functools
import gc
import logging
from typing import Any

import ray
import verl
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from consensuspr.client.training import (
    ProblemIds,
    RewardSource,
    score_log_of,
    shared_source,
)
from consensuspr.client.verl.config import ManagerConfig, epoch_clock
from consensuspr.client.verl.decode import Decoder
from consensuspr.client.verl.sample import VerlSample
from consensuspr.errors import ConsensusPRError

logger = logging.getLogger(__name__)

# How verl's reward loop names its actors, which have a process each; a number follows.
WORKER_NAME = "reward_loop_worker_"


class ConsensusRewardManager(RewardManagerBase):  # type: ignore[misc]  # verl has no types
    """Rewards samples by the reward service; settings are in ``reward.reward_kwargs``.

    Args:
        config: of the whole run.
        tokenizer: decodes responses.
        compute_score: not used, the server computes; verl passes it to every manager.
        reward_router_address: not used, there is no reward model.
        reward_model_tokenizer: not used.

    Raises:
        InputError: a setting is unknown or wrong, or the curriculum's epoch cannot be known.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: Any = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        try:
            read = ManagerConfig.of(config)
            self._settings = read.settings
            self._overlong = read.overlong
            self._clock = epoch_clock(config, read.settings, verl.__version__)
            score_log_of(read.settings)  # what cannot be written is found now
        except ConsensusPRError as error:
            # verl loses a worker that fails to start; its rollouts then fail one by one, with
            # the reason far up in the log.
            logger.error("consensuspr cannot reward this run: %s", error)
            raise
        _rest_collector()
        self._ids = ProblemIds(read.settings.problem_id_format)
        self._decoder = Decoder(tokenizer)
        self._source: RewardSource | None = None

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return the reward of one sample.

        Args:
            data: a ``DataProto`` with the sequences of one sample; the last one counts.

        Returns:
            ``reward_score``, which is ``score`` with the overlong penalty added, and
            ``reward_extra_info``, the same keys for every sample.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the row names no problem, or two.
            RewardServiceError: the server refused, or was away for too long.
        """
        sample = VerlSample.of(data)
        epoch = self._clock.epoch_of(sample.step)
        response = await self._decoder.text(sample.response_ids)
        num_tokens = len(sample.response_ids)
        rollout = sample.row.rollout(response, self._ids, num_tokens)
        if self._source is None:  # a source belongs to the loop, which runs by now
            self._source = shared_source(self._settings)
        penalty = self._overlong(num_tokens) if self._overlong else 0.0
        scored = await self._source.score(
            rollout,
            epoch,
            sample.row.split,
            step=sample.step,
            group=sample.group,
            penalty=penalty,
        )
        return {
            "reward_score": scored.reward + penalty,
            "reward_extra_info": scored.fields(penalty),
        }


@functools.cache
def _rest_collector() -> None:
    """Take what is loaded by now out of the garbage collector's sight, once a process.

    torch, verl and Ray are a million objects that stay; a full collection looks at all of them
    and holds up every sample meanwhile, some 0.2 s every few thousand samples.  What is alive
    now and gets unreachable in a cycle later is never freed: no matter in an actor that only
    rewards and ends with the run, and not to be done to a process of any other use.
    """
    if _in_reward_worker():
        gc.collect()
        gc.freeze()


def _in_reward_worker() -> bool:
    """Say whether this process is one of verl's reward workers, by the name of its Ray actor."""
    if not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:  # the trainer's own process, or a task
        return False
    return (context.get_actor_name() or "").startswith(WORKER_NAME)
