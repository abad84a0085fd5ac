"""The reward manager of verl's reward loop; runs on verl 0.7.1 to 0.9.1.

verl makes one in each of its reward workers, and passes it single samples, many at a time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import verl
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from consensuspr.client.training import (
    RewardSource,
    SampleScorer,
    TooManyUnscorable,
    score_log_of,
    shared_source,
)
from consensuspr.client.training.credit import BETWEEN, finder_of_turns, place_reward
from consensuspr.client.verl.config import ManagerConfig, epoch_clock
from consensuspr.client.verl.run_end import (
    FIRST_WORKER,
    actor_name,
    end_run,
    in_reward_worker,
    note_worker,
)
from consensuspr.client.verl.sample import BY_TOKEN, MissingMask, VerlSample
from consensuspr.client.verl.start import check_at_start
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.events import EventLog

logger = logging.getLogger(__name__)

# Means of verl's validation leave None out; older releases fail.
_TAKES_NONE = not verl.__version__.startswith(("0.7.", "0.8."))

_BETWEEN_NOTES_S = 1.0


class ConsensusRewardManager(RewardManagerBase):  # type: ignore[misc]  # verl has no types
    """Rewards samples by the reward service; settings are in ``reward.reward_kwargs``.

    Of what verl passes, the configuration of the whole run and the tokenizer are used.

    Raises:
        InputError: a setting is wrong, a file that it names cannot be used, or the curriculum's
            epoch cannot be known.
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
        self._in_worker = in_reward_worker()
        self._own_events = EventLog(logger)
        try:
            read = ManagerConfig.of(config)
            settings = read.settings
            if read.optional_log:
                try:
                    score_log_of(settings)
                except InputError as error:
                    settings = settings.model_copy(update={"score_log": None})
                    self._own_events.report("no score log", f"{error}; samples are not logged")
            clock = epoch_clock(config, settings, verl.__version__)
            self._samples = SampleScorer(settings, clock)
        except ConsensusPRError as error:
            # verl loses a worker that fails to start; its rollouts then fail one by one.
            logger.error("consensuspr cannot reward this run: %s", error)
            if self._in_worker:
                end_run(str(error))
            raise
        self._settings, self._overlong, self._number = settings, read.overlong, read.number
        self._decode: Callable[[Any], str] = partial(tokenizer.decode, skip_special_tokens=True)
        if actor_name() == FIRST_WORKER:
            # In a thread: verl still starts its engines, and the files may be large.
            check = partial(check_at_start, config, settings)
            threading.Thread(target=check, name="consensuspr-start", daemon=True).start()
        self._source: RewardSource | None = None
        self._failed, self._last_failure = 0, ""
        self._noted = (0, 0)
        self._noting: asyncio.TimerHandle | None = None

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return the reward of the last sequence of a ``DataProto``.

        It has ``reward_score``, which is ``score`` with the overlong penalty added, and
        ``reward_extra_info``, the same keys for every sample.

        Raises:
            TooManyUnscorable, MissingMask: the run is ended.
            ConsensusPRError: this sample has no reward.
        """
        try:
            return await self._reward_of(data)
        except Exception as error:  # verl drops the sample, whatever it is
            self._failed += 1
            self._last_failure = str(error) if isinstance(error, ConsensusPRError) else repr(error)
            if isinstance(error, TooManyUnscorable | MissingMask) and self._in_worker:
                await asyncio.to_thread(end_run, str(error))
            raise
        finally:
            self._note_soon()

    async def _reward_of(self, data: Any) -> dict[str, Any]:
        sample = VerlSample.of(data)
        self._source = shared_source(self._settings)
        spans = sample.turns()
        # In a thread, because a tokenizer takes longer than anything else here.
        texts = await asyncio.to_thread(
            lambda: [self._decode(sample.response_ids[start:end]) for start, end in spans]
        )
        # verl's own penalty counts all tokens, a tool's too.
        penalty = self._overlong(len(sample.response_ids)) if self._overlong else 0.0
        scored = await self._samples.score(
            sample.row,
            BETWEEN.join(texts),
            sum(end - start for start, end in spans),
            step=sample.step,
            group=sample.group,
            rollout_id=sample.rollout_id,
            penalty=penalty,
            spans=sample.by_token,
        )
        reward = scored.reward + penalty
        fields: dict[str, Any] = {
            **(scored.fields(penalty) if _TAKES_NONE else scored.numbers(penalty))
        }
        if self._number is not None and fields.get(self._number, "") is None:
            fields[self._number] = 0.0
        fields |= {"problem_id": scored.problem_id, "rollout_id": sample.rollout_id or ""}
        if sample.by_token:
            turns = [(start, sample.response_ids[start:end]) for start, end in spans]
            weight = self._settings.spec.ncr_weight(scored.epoch)
            find = finder_of_turns(turns, texts, self._decode)
            fields[BY_TOKEN] = await asyncio.to_thread(
                place_reward, reward, scored.score, weight, find, sample.mask
            )
        return {"reward_score": reward, "reward_extra_info": fields}

    def _note_soon(self) -> None:
        """Note new events and failures for the trainer, at most once a second."""
        if self._in_worker and self._noting is None and self._num_events() != self._noted:
            loop = asyncio.get_running_loop()
            self._noting = loop.call_later(_BETWEEN_NOTES_S, self._note)

    def _events(self) -> dict[str, int]:
        of_source = {} if self._source is None else self._source.events
        return {**self._own_events.counts, **of_source}

    def _num_events(self) -> tuple[int, int]:
        return sum(self._events().values()), self._failed

    def _note(self) -> None:
        self._noting, self._noted = None, self._num_events()
        # In a thread: it asks Ray, and no sample may wait for that.
        asyncio.get_running_loop().run_in_executor(
            None,
            _leave_note,
            self._events(),
            self._failed,
            self._last_failure,
        )


def _leave_note(events: dict[str, int], failed: int, last_failure: str) -> None:
    try:
        note_worker(events, failed, last_failure)
    except Exception:  # whatever Ray raises; the next note holds all that this one does
        logger.exception("cannot report the failures of this reward worker to the trainer")
