"""The reward manager of verl's reward loop.

verl makes one in each of its reward workers and hands it single samples, many of them at a
time; they share one channel and travel in micro-batches.  Runs on verl 0.7.1 to 0.9.1.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import verl
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from consensuspr.client.training import (
    ProblemIds,
    RewardSource,
    ScoredSample,
    TooManyUnscorable,
    check_source,
    score_log_of,
    shared_source,
)
from consensuspr.client.training.credit import BETWEEN, finder_of_turns, place_reward
from consensuspr.client.verl.config import ManagerConfig, epoch_clock
from consensuspr.client.verl.decode import Decoder
from consensuspr.client.verl.run_end import (
    actor_name,
    end_run,
    in_reward_worker,
    note,
    note_failures,
)
from consensuspr.client.verl.sample import BY_TOKEN, VerlSample
from consensuspr.client.verl.start import check_once
from consensuspr.client.verl.turns import ONE_TURN, TurnMarks, policy_spans
from consensuspr.errors import ConsensusPRError

logger = logging.getLogger(__name__)

# Means of verl's validation leave None out since then; older ones fail at it.
_TAKES_NONE = not verl.__version__.startswith(("0.7.", "0.8."))

# Notes for the trainer: what went wrong in a worker, by its name.
TROUBLES = "troubles of "
_BETWEEN_NOTES_S = 1.0


class ConsensusRewardManager(RewardManagerBase):  # type: ignore[misc]  # verl has no types
    """Rewards samples by the reward service; settings are in ``reward.reward_kwargs``.

    Args:
        config: of the whole run.
        tokenizer: decodes responses.
        compute_score: not used, the server computes; verl passes it to every manager.
        reward_router_address: not used, there is no reward model.
        reward_model_tokenizer: not used.

    Raises:
        InputError: a setting is unknown or wrong, a file that it names cannot be used, or the
            curriculum's epoch cannot be known.
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
        try:
            read = ManagerConfig.of(config)
            self._settings = read.settings
            self._overlong = read.overlong
            self._number = read.number
            self._clock = epoch_clock(config, read.settings, verl.__version__)
            # Find files that cannot be read or written now, not with each sample.
            check_source(read.settings)
            score_log_of(read.settings)
        except ConsensusPRError as error:
            # verl loses a worker that fails to start; its rollouts then fail one by one, with
            # the reason far up in the log.
            logger.error("consensuspr cannot reward this run: %s", error)
            if self._in_worker:
                end_run(str(error))
            raise
        _rest_collector()
        self._ids = ProblemIds(read.settings.problem_id_format)
        self._tokenizer = tokenizer
        self._decoder = Decoder(tokenizer)
        # A tokenizer that encodes in two threads at a time may say that it is borrowed.
        self._encoding = threading.Lock()
        self._source: RewardSource | None = None
        self._start_check = _checking(config, read.settings) if self._in_worker else None
        # Samples that failed, and why the last did.
        self._failed, self._last_failure = 0, ""
        self._noted = (0, 0)
        self._noting: asyncio.TimerHandle | None = None
        self._note_at = 0.0

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return the reward of one sample.

        Args:
            data: a ``DataProto`` with the sequences of one sample; the last one counts.

        Returns:
            ``reward_score``, which is ``score`` with the overlong penalty added, and
            ``reward_extra_info``, the same keys for every sample.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            TooManyUnscorable: ... as have too many others; the run is ended.
            InputError: the row names no problem, or two.
            RewardServiceError: the server refused, or was away for too long.
        """
        try:
            return await self._reward_of(data)
        except Exception as error:  # verl drops the sample, whatever it is
            told = str(error) if isinstance(error, ConsensusPRError) else repr(error)
            self._failed, self._last_failure = self._failed + 1, told
            raise
        finally:
            self._note_soon()

    async def _reward_of(self, data: Any) -> dict[str, Any]:
        """Return the same, or raise; what fails is not counted yet."""
        if self._start_check is not None:
            await asyncio.wrap_future(self._start_check)
            self._start_check = None
        sample = VerlSample.of(data)
        epoch = self._clock.epoch_of(sample.step)
        if self._source is None:  # a source belongs to the loop, which runs by now
            self._source = shared_source(self._settings)
        response, num_tokens, unscored = await self._policy_text(sample)
        rollout = sample.row.rollout(response, self._ids, num_tokens)
        rollout.rollout_id = sample.rollout_id
        if unscored:
            self._source.report(
                "turns not told apart",
                f"problem {rollout.problem_id!r}: a response of {sample.turns} messages has other"
                f" marks of turns than the chat template's, one a turn; its last {unscored:,}"
                " characters are not scored, since nothing tells who wrote them. With"
                " agent_loop_manager_class="
                "consensuspr.client.verl.agent_loop.MaskingAgentLoopManager the mask tells",
            )
        # verl's own penalty is for all tokens, a tool's too.
        penalty = self._overlong(len(sample.response_ids)) if self._overlong else 0.0
        try:
            scored = await self._source.score(
                rollout,
                epoch,
                sample.row.split,
                spans=sample.by_token,
                step=sample.step,
                group=sample.group,
                penalty=penalty,
            )
        except TooManyUnscorable as error:
            if self._in_worker:
                await asyncio.to_thread(end_run, str(error))
            raise
        reward = scored.reward + penalty
        fields: dict[str, Any] = {
            **(scored.fields(penalty) if _TAKES_NONE else scored.numbers(penalty))
        }
        if self._number is not None and fields.get(self._number, "") is None:
            fields[self._number] = 0.0
        fields |= {"problem_id": rollout.problem_id, "rollout_id": sample.rollout_id or ""}
        if sample.by_token:
            fields[BY_TOKEN] = await self._by_token(sample, scored, reward)
        return {"reward_score": reward, "reward_extra_info": fields}

    async def _by_token(
        self, sample: VerlSample, scored: ScoredSample, reward: float
    ) -> dict[int, float]:
        """Return what each token of a response earns of its reward."""
        ids, mask = sample.response_ids, sample.mask
        weight = self._settings.spec.ncr_weight(scored.epoch)
        if mask is None or mask.all():
            find, mask = self._decoder.finder(ids), np.ones(len(ids))
        else:
            turns = []
            for start, end in policy_spans(mask):
                turn = ids[start:end]
                size = len(_as_text(await self._decoder.text(turn)))
                turns.append((start, size, self._decoder.finder(turn)))
            find = finder_of_turns(turns, len(BETWEEN))
        # In a thread, because a tokenizer may be asked.
        return await asyncio.to_thread(place_reward, reward, scored.score, weight, find, mask)

    async def _policy_text(self, sample: VerlSample) -> tuple[str | bytes, int, int]:
        """Return what the policy wrote, in how many tokens, and how many characters are left out.

        Raises:
            InputError: others wrote parts of it, and nothing tells which.
        """
        ids, mask = sample.response_ids, sample.mask
        if mask is not None and not mask.all():
            spans = list(policy_spans(mask))
            texts = [await self._decoder.text(ids[start:end]) for start, end in spans]
            return BETWEEN.join(map(_as_text, texts)), int(mask.astype(bool).sum()), 0
        if mask is not None or sample.turns is None or sample.turns <= ONE_TURN:
            return await self._decoder.text(ids), len(ids), 0
        # In a thread: a long conversation takes some tens of milliseconds.
        return await asyncio.to_thread(self._by_template, ids, sample.turns)

    def _by_template(self, ids: Any, turns: int) -> tuple[str, int, int]:
        """Return the same by the marks of the chat template.

        Raises:
            InputError: the template does not tell turns apart.
        """
        with self._encoding:
            whole = self._tokenizer.decode(ids, skip_special_tokens=False)
            text, unscored = self._marks.policy_text(str(whole), turns)
            return text, len(self._tokenizer.encode(text, add_special_tokens=False)), unscored

    @functools.cached_property
    def _marks(self) -> TurnMarks:
        return TurnMarks.of(self._tokenizer)

    def _note_soon(self) -> None:
        """Let the trainer know what went wrong here, where that has changed, once a second."""
        if not self._in_worker or self._noting is not None or self._went_wrong() == self._noted:
            return
        loop = asyncio.get_running_loop()
        wait_s = max(0.0, self._note_at - time.monotonic())
        self._noting = loop.call_later(wait_s, self._note)

    def _went_wrong(self) -> tuple[int, int]:
        troubles = {} if self._source is None else self._source.troubles
        return sum(troubles.values()), self._failed

    def _note(self) -> None:
        self._noting, self._noted = None, self._went_wrong()
        self._note_at = time.monotonic() + _BETWEEN_NOTES_S
        troubles = {} if self._source is None else dict(self._source.troubles)
        # In a thread: it asks Ray, and no sample is to wait for that or be lost with it.
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, _leave_notes, troubles, self._failed, self._last_failure)


def _leave_notes(troubles: dict[str, int], failed: int, last_failure: str) -> None:
    try:
        if troubles:
            note(f"{TROUBLES}{actor_name()}", json.dumps(troubles))
        if failed:
            note_failures(failed, last_failure)
    except Exception:  # whatever Ray raises; the next notes hold all that these do
        logger.exception("the trainer cannot be told what went wrong in this reward worker")


def _as_text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode()


def _checking(config: Any, settings: Any) -> Future[None]:
    """Check the files of the run in a thread; what they are unfit for ends the run."""

    def check() -> None:
        try:
            check_once(config, settings)
        except ConsensusPRError as error:
            end_run(str(error))
            raise
        except Exception:
            # A defect of the check is no reason to lose the samples of this worker one by one.
            logger.exception("the files were not checked before the first step")

    thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-start")
    checked = thread.submit(check)
    thread.shutdown(wait=False)
    return checked


@functools.cache
def _rest_collector() -> None:
    """Take what is loaded by now out of the garbage collector's sight, once a process.

    torch, verl and Ray are a million objects that stay; a full collection looks at all of them
    and holds up every sample meanwhile, some 0.2 s every few thousand samples.  What is alive
    now and gets unreachable in a cycle later is never freed: no matter in an actor that only
    rewards and ends with the run, and not to be done to a process of any other use.
    """
    if in_reward_worker():
        gc.collect()
        gc.freeze()
