"""Where a trainer's rewards come from: the server, or what stands in for it.

One :class:`RewardSource`, with one channel and one micro-batcher, serves all samples of a worker
process; :func:`shared_source` hands it out.  A source belongs to one event loop.

The stand-in is the server's own code on the same data, so that a sample's reward does not
depend on who scored it; data of another digest are refused.  It is loaded when it is first
needed: a run whose server stays up pays nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from consensuspr.client.aio import AsyncRewardClient
from consensuspr.client.batching import Batcher
from consensuspr.client.calls import Deadline
from consensuspr.client.interface import ScoredBatch
from consensuspr.client.local import LocalClient
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.client.training.settings import RewardSettings
from consensuspr.errors import (
    AccessDenied,
    ConsensusPRError,
    DataError,
    DatasetMismatch,
    DeadlineExceeded,
    IncompatibleServer,
    InputError,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    Unavailable,
)
from consensuspr.events import EventLog
from consensuspr.scoring.guard import GuardWatch
from consensuspr.scoring.types import (
    CHANNELS,
    DEFAULT_DATASET,
    END_OF_THINKING,
    AnswerRule,
    Identity,
    Rollout,
    Sample,
    SampleKeys,
    Score,
    ScoreOptions,
    Status,
    scored_from,
)
from consensuspr.wire.codec import EncodedRollout
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

if TYPE_CHECKING:
    from consensuspr.score_log import ScoreLog

logger = logging.getLogger(__name__)

# What may pass: nobody listens, or too many ask.  A server that refuses the request itself
# (a dataset that it does not have, another protocol) will do so again.
_AWAY = (Unavailable, Overloaded, DeadlineExceeded)

# Between two rounds of waiting; a round itself retries with growing, jittered pauses.
_PAUSE_S = 0.5

# What rows of validation files call their split.
VALIDATION_SPLITS = ("test", "val", "validation")

# So many responses without an end to their thoughts are no thoughts that were cut off.
MIN_UNFINISHED = 100

# An answer that was not decided because the machine was busy would count as wrong through no
# fault of its own; it is asked for again, after pauses of up to so many seconds, for as long as
# an absent server would be.  A fault of the server's (no memory to fork, say) may pass too.
_AGAIN_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)

# What a dataset that is not the one of the training files does to its samples; a server that
# is overloaded, or has a fault of its own, does none of it.  A problem that the server does not
# know has no nodes, rather than no entry, where the row brings its own ground truth.
MISFITS = (Status.UNKNOWN_PROBLEM, Status.NO_GROUND_TRUTH, Status.NO_NODES)

# How a sample fails that the server refuses, as it will refuse others.
_REFUSALS = (InvalidRequest, DatasetMismatch, AccessDenied, IncompatibleServer)
_REFUSED = "refused"

# Of fewer samples, the share of those that have no reward tells little.
MIN_SAMPLES = 1000

# Limit of remembered look-ups of problems, some 200 bytes each.
_REMEMBERED_PROBLEMS = 100_000

# So many responses of which none reaches a node or the answer are more than a hard start.
MIN_UNEARNED = 200

# After so long without an answer it is said that samples wait, and again each minute.
_SILENCE_S = 5.0
_SILENCE_AGAIN_S = 60.0
_LOOK_S = 1.0

# Of the channels by which nodes are reached, their places in CHANNELS.
_PATTERN, _STATEMENT, _CODE = map(CHANNELS.index, ("pattern", "statement", "code"))

# Longer than any batch takes; what bounds an answer is its own budget.
_PATIENCE_S = 24 * 3600.0


class UnscorableSample(ConsensusPRError):
    """A sample has no reward, for a reason that will not go away; none was made up for it."""

    def __init__(self, status: Status, message: str) -> None:
        self.status = status
        super().__init__(message)


class TooManyUnscorable(ConsensusPRError):
    """So many samples have no reward that the dataset is not the one of the training files."""


class ScoredSample(NamedTuple):
    """The reward of one sample, and how it came about.

    Attributes:
        reward: of the formula, in [0, 1]; or the user's own number (``on_unscorable``).
        scored_by: ``server`` or ``local``.
        unanswered: whether the response marks no final answer, for example with a box.
    """

    reward: float
    score: Score
    epoch: int
    scored_by: str
    unanswered: bool = False

    def fields(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str | None]:
        """Return the keys of every sample, in one order.

        None stands for what is unknown: acc without a verdict; ncr and the guard's factor without
        nodes; tpn without matches or token counts.  Means over such zeros would be biased.
        """
        score = self.score
        return {
            "score": self.reward,
            "acc": score.acc,
            "ncr": score.ncr,
            "ncr_raw": score.ncr_raw,
            "guard": score.guard,
            "num_nodes": score.num_nodes,
            "num_matched": score.num_matched,
            "by_pattern": score.channel_numbers.count(_PATTERN),
            "by_statement": score.channel_numbers.count(_STATEMENT),
            "by_code": score.channel_numbers.count(_CODE),
            "tpn": score.tpn,
            "unanswered": int(self.unanswered),
            "overlong_penalty": overlong_penalty,
            "status": str(score.status),
        }

    def numbers(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str]:
        """Return :meth:`fields` for those that take no None: 0 for it, a factor of 1 for the guard.

        ``status``, ``num_nodes`` and ``num_matched`` tell what is unknown.
        """
        return {
            name: value if value is not None else float(name == "guard")
            for name, value in self.fields(overlong_penalty).items()
        }


class UnusableData(InputError):
    """The dataset of the stand-in cannot be read, or is not the server's."""


class LocalFallback:
    """Scores single samples in this process, many at a time as one batch.

    Args:
        path: of the dataset.
        name: of the dataset at the server; None where it has one.
        expected_digest: of the dataset, where it is known before any server has answered.

    Attributes:
        expected_digest: of the server's dataset; None while it is not known.
        loaded_digest: of the data that samples were last scored with here; None: none was.

    Raises:
        InputError: there is no such file.
    """

    def __init__(self, path: Path, name: str | None, expected_digest: str | None = None) -> None:
        _check_dataset_path(path)
        self._path = path
        self._name = name
        self._client: LocalClient | None = None
        # One thread: batches form while one is in work, and matching has threads of its own.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-local")
        self._batcher = Batcher(self._score, max_in_flight=1)
        self.expected_digest = expected_digest
        self.loaded_digest: str | None = None

    async def score_one(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, Identity]:
        """Score one rollout; calls that run at the same time share a batch.

        Raises:
            UnusableData: the dataset cannot be read, or is not the server's.
        """
        return await self._batcher.submit(rollout, options, Deadline.after(_PATIENCE_S))

    def close(self) -> None:
        """Fail whoever waits, and stop the answer processes.  May be called twice."""
        self._batcher.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def _score(
        self,
        rollouts: Sequence[Rollout],
        _encoded: Sequence[EncodedRollout],
        options: ScoreOptions,
        _deadline: Deadline,
    ) -> ScoredBatch:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._score_here, rollouts, options)

    def _score_here(self, rollouts: Sequence[Rollout], options: ScoreOptions) -> ScoredBatch:
        return self._loaded().score_with(rollouts, options)

    def _loaded(self) -> LocalClient:
        """Return the scorer, on data that are the server's as far as anybody knows."""
        expected = self.expected_digest
        if self._client is not None and expected in (None, self.loaded_digest):
            return self._client
        if self._client is not None:  # the file may have been replaced since
            self._client.close()
            self._client = None
        try:
            client = LocalClient({self._name: self._path} if self._name else self._path)
        except (DataError, OSError) as error:
            raise UnusableData(f"dataset_path: {error}") from None
        digest = client.server_info().datasets[0].digest
        if expected not in (None, digest):
            client.close()
            raise UnusableData(
                f"dataset_path: {self._path} ({digest}) is not the server's dataset ({expected});"
                " a reward would depend on who scored it"
            )
        self._client, self.loaded_digest = client, digest
        return client


class RewardSource:
    """Scores single samples, and follows the settings where that does not work.

    Raises:
        InputError: an address or path is wrong.  Nothing is connected before the first sample.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self.settings = settings
        self._spec = settings.spec
        self._client = AsyncRewardClient(
            settings.address,
            settings.timeout_s,
            access=settings.access,
            # Of each batch: a server that restarts may come back with other data, unnoticed.
            on_identity=lambda identity: self._see_digest(identity.dataset_digest),
        )
        self._fallback = (
            LocalFallback(settings.dataset_path, settings.dataset, settings.expect_digest)
            if settings.dataset_path is not None
            else None
        )
        self._events = EventLog(logger)
        self._keys = SampleKeys()
        self._log = score_log_of(settings)
        self._guard_watch = GuardWatch()
        # Of the samples that were asked for: how many, and of which no reward exists by their data.
        self._samples = 0
        self._misfits: Counter[str] = Counter()
        # By digest and problem id: whether the dataset has a problem that came back without nodes.
        self._known: dict[tuple[str, str], bool] = {}
        # Samples that wait for the server, and when it was last heard of.
        self._waiting_samples = 0
        self._heard = 0.0
        self._silence: asyncio.Task[None] | None = None
        # Responses before the first that ends its thoughts; at its bound once there was one.
        self._unfinished = 0
        # Samples before the first that reaches anything; at its bound likewise.
        self._unearned = 0
        self._options: ScoreOptions | None = None
        self._grown = GrownDatasets(settings.grown_nodes) if settings.grown_nodes else None
        # What may pass while a sample waits.
        self._passing: tuple[type[Exception], ...] = _AWAY
        if settings.on_other_digest == "wait":
            self._passing += (DatasetMismatch,)
        self._introduction: asyncio.Task[ServerInfo] | None = None
        self._digest: str | None = None
        self._watch: asyncio.Task[None] | None = None

    async def score(
        self,
        rollout: Rollout,
        epoch: int,
        split: str | None = None,
        *,
        spans: bool = False,
        step: int | None = None,
        group: str | None = None,
        penalty: float | None = 0.0,
    ) -> ScoredSample:
        """Return the reward of one sample, and write it to the score log.

        Args:
            rollout: the sample; its data source and id are labels.
            epoch: of the curriculum, from 0.
            split: of its row; validation without nodes is worth its Acc (``validate_by_acc``).
            spans: also say where each node was first hit, and what it adds.
            step: of the training, from 1; for score logs alone, like all that follows.
            group: of samples that the trainer compares with each other.
            penalty: what the trainer adds to the reward; None: that is not known.

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            TooManyUnscorable: ... as have more than ``max_unscorable`` allows, or were refused.
            InputError: the sample or the settings are wrong.
            RewardServiceError: the server refused, or was away for longer than the settings
                allow; no reward was made up for it.
        """
        self._samples += 1
        options = self._options_of(epoch, spans)
        rollout = _as_sample(rollout, Sample(self._keys.next(), step, group, split))
        try:
            (score, identity), scored_by = await self._decided(rollout, options)
            unknown = await self._is_unknown(rollout, split, score, identity, options)
        except _REFUSALS as error:
            sentence = f"problem {rollout.problem_id!r}: {error}"
            self._events.report(_REFUSED, f"{sentence}; the sample fails")
            self._check_misfits(_REFUSED, sentence)
            raise
        final_score = None
        try:
            sample = self._rewarded(rollout, epoch, split, score, scored_by, unknown)
            unanswered = self._is_unanswered(rollout.response, identity.answer_rule)
            sample = sample._replace(unanswered=unanswered)
            final_score = None if penalty is None else sample.reward + penalty
        finally:
            if self._log is not None:
                self._log.put_sample(
                    rollout, score, identity, options, scored_by, penalty, final_score
                )
        return sample

    async def _is_unknown(
        self,
        rollout: Rollout,
        split: str | None,
        score: Score,
        identity: Identity,
        options: ScoreOptions,
    ) -> bool:
        """Return whether a sample without a reward is of a problem that the dataset lacks.

        If the row has a ground truth, such a sample has the status of a known problem without
        nodes. So if a setting would reward it, the problem is looked up once without that truth.
        """
        if rollout.nodes is not None or score.reward is not None:
            return False
        if score.status is Status.UNKNOWN_PROBLEM:
            return True
        settings = self.settings
        instead = settings.instead_of_nodes
        fails = (settings.on_unscorable if instead is None else instead) == "raise"
        if score.status is not Status.NO_NODES or fails or self._validates_by_acc(score, split):
            return False
        key = (identity.dataset_digest, rollout.problem_id)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED_PROBLEMS:
                self._known.clear()
            lookup = replace(options, include_spans=False, probe=True)
            (found, _), _ = await self._scored(Rollout(rollout.problem_id, ""), lookup)
            self._known[key] = found.status is not Status.UNKNOWN_PROBLEM
        return not self._known[key]

    def _rewarded(
        self,
        rollout: Rollout,
        epoch: int,
        split: str | None,
        score: Score,
        scored_by: str,
        unknown: bool,
    ) -> ScoredSample:
        """Return the sample with its reward, or raise UnscorableSample."""
        settings = self.settings
        if score.acc == 1.0 and score.guard is not None:
            warning = self._guard_watch.add(1, score.guard < 1.0)
            if warning is not None:
                self._events.report("guarded", warning)
        if self._spec.after_think:
            self._watch_thoughts(rollout.response)
        self._watch_earnings(rollout, score)
        if score.acc is not None and self._validates_by_acc(score, split):
            return ScoredSample(score.acc, score, epoch, scored_by)
        instead: str | float = settings.on_unscorable
        if score.status is Status.NO_NODES and score.reward is None and not unknown:
            if settings.instead_of_nodes == "acc":
                if score.acc is not None:
                    return ScoredSample(score.acc, score, epoch, scored_by)
            elif settings.instead_of_nodes is not None:
                instead = settings.instead_of_nodes
        why = Status.UNKNOWN_PROBLEM if unknown else score.status
        if why is not Status.OK:
            self._events.report(str(why), _explained(rollout, score))
        if score.reward is not None:
            return ScoredSample(score.reward, score, epoch, scored_by)
        sentence = _explained(rollout, score)
        if unknown or (instead == "raise" and why in MISFITS):
            self._check_misfits(str(why), sentence)
        if isinstance(instead, str):
            raise UnscorableSample(score.status, sentence)
        return ScoredSample(instead, score, epoch, scored_by)

    def _is_unanswered(self, response: str | bytes, rule: AnswerRule) -> bool:
        """Return whether a response marks no final answer that the rule accepts."""
        # Here, because commands import this module before they show warnings as one line.
        from consensuspr.scoring.answers import has_marked_answer

        start = scored_from(response) if self._spec.after_think else 0
        return not has_marked_answer(response[start:] if start else response, rule)

    def _validates_by_acc(self, score: Score, split: str | None) -> bool:
        """Return whether a sample is worth its Acc because nothing is trained on it."""
        return (
            score.status is Status.NO_NODES
            and score.acc is not None
            and self.settings.validate_by_acc
            and split in VALIDATION_SPLITS
        )

    @property
    def troubles(self) -> Mapping[str, int]:
        """How often something went wrong so far, by what it was; with what the score log lost."""
        log = self._log
        lost = (0, 0) if log is None else (log.lost_rows, log.lost_texts)
        names = ("score log lost rows", "score log lost texts")
        return self._events.counts | {name: n for name, n in zip(names, lost, strict=True) if n}

    def report(self, kind: str, message: str) -> None:
        """Count a trouble that an adapter met on its way here, and log it as the source's own."""
        self._events.report(kind, message)

    def _check_misfits(self, why: str, sentence: str) -> None:
        """Count a sample that fails for the dataset's sake, or that the server refuses.

        Raises:
            TooManyUnscorable: there are more of them than ``max_unscorable`` allows.
        """
        self._misfits[why] += 1
        misfits, share = self._misfits.total(), self.settings.max_unscorable
        if misfits > share * max(self._samples, MIN_SAMPLES):
            counts = ", ".join(f"{count} {name}" for name, count in self._misfits.items())
            cause = (
                "the server refuses this run"
                if why == _REFUSED
                else "the server's dataset is not the one of the training files"
            )
            raise TooManyUnscorable(
                f"{counts} of {self._samples:,} samples in this process, more than"
                f" max_unscorable={share:g} of {max(self._samples, MIN_SAMPLES):,}: {cause};"
                f" the last: {sentence}"
            )

    async def close(self) -> None:
        """Close the channel and stop local scoring.  May be called twice."""
        for task in (self._introduction, self._watch, self._silence):
            if task is not None:
                task.cancel()
        await self._client.close()
        if self._fallback is not None:
            self._fallback.close()

    def _watch_thoughts(self, response: str | bytes) -> None:
        """Tell once of after_think where no response ends its thoughts: nothing earns anything."""
        if self._unfinished < MIN_UNFINISHED:
            ended = scored_from(response) < len(response)
            self._unfinished = MIN_UNFINISHED if ended else self._unfinished + 1
            if not ended and self._unfinished == MIN_UNFINISHED:
                self._events.report(
                    "unfinished",
                    f"none of the first {MIN_UNFINISHED} responses goes on behind a "
                    f"{END_OF_THINKING}, and with after_think nothing else is scored: the policy "
                    "does not think in these marks, its tokenizer drops them, or responses are "
                    "cut off too early",
                )

    def _watch_earnings(self, rollout: Rollout, score: Score) -> None:
        """Tell once where nothing that the policy writes reaches a node or an answer."""
        if self._unearned < MIN_UNEARNED and score.num_nodes:
            earned = score.num_matched > 0 or bool(score.acc)
            self._unearned = MIN_UNEARNED if earned else self._unearned + 1
            if not earned and self._unearned == MIN_UNEARNED:
                self._events.report(
                    "nothing earned",
                    f"none of the first {MIN_UNEARNED} responses to problems with nodes reaches a"
                    " node or the answer: is this the dataset of these prompts, and the tokenizer"
                    f" the policy's? The last, to problem {rollout.problem_id!r}, begins"
                    f" {_beginning(rollout.response)!r}",
                )

    def _options_of(self, epoch: int, spans: bool) -> ScoreOptions:
        """Return how samples of an epoch are scored; they come epoch by epoch.

        Raises:
            InputError: the epoch or a setting is wrong.
        """
        known = self._options
        if known is None or (known.epoch, known.include_spans) != (epoch, spans):
            settings = self.settings
            dataset, digest = settings.dataset, settings.expect_digest
            if self._grown is not None:
                grown = self._grown.of_epoch(epoch)
                dataset, digest = grown.name, grown.digest
            known = self._options = ScoreOptions.checked(
                self._spec,
                epoch,
                dataset,
                settings.answer_rule,
                settings.on_undecided,
                spans,
                run=settings.run,
                expect_digest=digest,
            )
        return known

    async def _decided(
        self, rollout: Rollout, options: ScoreOptions
    ) -> tuple[tuple[Score, Identity], str]:
        """Return a sample's score, asked for again where that may well change it.

        Raises:
            Overloaded: the answer check stayed too busy for longer than the settings allow.
        """
        found = await self._scored(rollout, options)
        if not _may_change(found[0][0]):
            return found
        give_up_at = time.monotonic() + self.settings.unavailable_limit_s
        pauses = chain(_AGAIN_PAUSES_S, repeat(_AGAIN_PAUSES_S[-1]))
        for asked, pause_s in enumerate(pauses, 1):
            score = found[0][0]
            busy = score.undecided_by_load
            if asked > len(_AGAIN_PAUSES_S):
                if not busy:
                    return found
                if self.settings.on_unavailable == "raise" or time.monotonic() > give_up_at:
                    raise Overloaded(
                        f"problem {rollout.problem_id!r}: the answer check was too busy,"
                        f" {asked} times"
                    )
            self._events.report("asked again", f"{_explained(rollout, score)}; it is asked again")
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
            found = await self._scored(rollout, options)
            if not _may_change(found[0][0]):
                return found
        raise AssertionError("pauses do not end")

    async def _scored(
        self, rollout: Rollout, options: ScoreOptions
    ) -> tuple[tuple[Score, Identity], str]:
        """Return a sample's score and who made it; where it has to wait, that is said."""
        if not self._waiting_samples:
            self._heard = time.monotonic()
        self._waiting_samples += 1
        if self._silence is None:
            self._silence = asyncio.get_running_loop().create_task(self._watch_silence())
        try:
            return await self._scored_by_any(rollout, options)
        finally:
            self._waiting_samples -= 1

    async def _scored_by_any(
        self, rollout: Rollout, options: ScoreOptions
    ) -> tuple[tuple[Score, Identity], str]:
        """Return a sample's score and who made it: server, stand-in, or server after a wait."""
        settings = self.settings
        give_up_at = time.monotonic() + settings.unavailable_limit_s
        while True:
            if self._fallback is not None and self._watch is not None:
                try:
                    return await self._fallback.score_one(rollout, options), "local"
                except UnusableData as error:
                    self._drop_fallback(error)
            patience_s = min(settings.timeout_s, max(_PAUSE_S, give_up_at - time.monotonic()))
            try:
                introduced = self._introduced()
                if not introduced.done():
                    await asyncio.shield(introduced)
                found = await self._client.score_one_with(rollout, options, timeout_s=patience_s)
            except self._passing as error:
                other = isinstance(error, DatasetMismatch)
                kind = "other dataset" if other else "server away"
                self._events.report(kind, f"{error}; {self._what_next(other)}")
                if other:
                    self._introduction = None  # all that wait ask together whether it is back
                if self._fallback is not None:
                    self._watch_server()
                elif settings.on_unavailable == "raise" and not other:
                    raise
                elif time.monotonic() + 2 * _PAUSE_S > give_up_at:
                    raise  # what is left is too short for another try
                else:
                    await asyncio.sleep(_PAUSE_S)
            else:
                return found, "server"

    async def _watch_silence(self) -> None:
        """Say that samples wait, after some seconds and then each minute; end with their wait."""
        told: float | None = None
        try:
            while self._waiting_samples:
                await asyncio.sleep(_LOOK_S)
                now = time.monotonic()
                silent_s = now - self._heard
                if silent_s < _SILENCE_S or self._watch is not None:
                    if told is not None:
                        logger.warning("the server at %s answers again", self.settings.address)
                    told = None
                elif self._waiting_samples and (told is None or now - told >= _SILENCE_AGAIN_S):
                    told = now
                    self._events.tell(
                        "server away",
                        f"no score from the server at {self.settings.address} for {silent_s:.0f} s;"
                        f" samples that wait for it: {self._waiting_samples:,}",
                    )
        finally:
            self._silence = None

    def _drop_fallback(self, error: UnusableData) -> None:
        """Go on without a stand-in whose data cannot be used; its samples wait instead."""
        if self._fallback is not None:
            self._events.report("unusable dataset_path", f"{error}; {self._waiting()}")
            self._fallback.close()
            self._fallback = None

    def _what_next(self, other_dataset: bool) -> str:
        if self._fallback is not None:
            return f"scoring in this process from {self.settings.dataset_path}"
        return self._waiting(other_dataset)

    def _waiting(self, other_dataset: bool = False) -> str:
        if self.settings.on_unavailable == "raise" and not other_dataset:
            return "the sample fails (on_unavailable=raise)"
        return f"waiting for it, up to {self.settings.unavailable_limit_s:g} s a sample"

    def _introduced(self) -> asyncio.Task[ServerInfo]:
        """Return the task that asked the server who it is, once for all samples."""
        failed = (
            self._introduction is not None
            and self._introduction.done()
            and (self._introduction.cancelled() or self._introduction.exception() is not None)
        )
        if self._introduction is None or failed:
            self._introduction = asyncio.get_running_loop().create_task(self._ask_who())
        return self._introduction

    async def _ask_who(self) -> ServerInfo:
        """Ask the server who it is, and whether it has the dataset that is meant."""
        info = await self._client.server_info()
        if self._grown is not None:
            return info  # each request names its epoch's dataset, and the digest that it must have
        dataset = chosen_dataset(info, self.settings.dataset, self.settings.address)
        if self.settings.expect_digest not in (None, dataset.digest):
            raise DatasetMismatch.of(dataset.name, dataset.digest, self.settings.expect_digest)
        self._see_digest(dataset.digest)
        return info

    def _see_digest(self, digest: str) -> None:
        """Compare the data of the server, now, with what samples were scored with so far."""
        self._heard = time.monotonic()
        if self._grown is None and self._digest not in (None, digest):
            self._events.report(
                "dataset changed",
                f"the server at {self.settings.address} has other data: digest {digest}, it was"
                f" {self._digest}; rewards before and after are not comparable",
            )
        self._digest = digest
        if self._fallback is not None:
            used = self._fallback.loaded_digest
            if used not in (None, digest):
                self._events.report(
                    "unequal data",
                    f"samples were scored in this process from {self.settings.dataset_path}"
                    f" ({used}), which is not the server's dataset ({digest})",
                )
            self._fallback.expected_digest = digest

    def _watch_server(self) -> None:
        """Let samples be scored here until the server is back."""
        if self._watch is None:
            self._introduction = None
            self._watch = asyncio.get_running_loop().create_task(self._until_back())

    async def _until_back(self) -> None:
        try:
            while True:
                try:
                    await self._introduced()
                except RewardServiceError:
                    await asyncio.sleep(_PAUSE_S)
                except ConsensusPRError:
                    return  # it is there, and refuses: samples that ask it hear so
                else:
                    logger.warning("the server at %s is back", self.settings.address)
                    return
        finally:
            self._watch = None


def chosen_dataset(info: ServerInfo, name: str | None, address: str) -> DatasetInfo:
    """Return the dataset that requests will be scored with.

    Raises:
        InputError: the server has it not, or has several and none was named.
    """
    names = ", ".join(repr(dataset.name) for dataset in info.datasets)
    if name is None:
        if len(info.datasets) == 1:
            return info.datasets[0]
        name = DEFAULT_DATASET
        if all(dataset.name != name for dataset in info.datasets):
            raise InputError(f"dataset: the server at {address} has several ({names}); name one")
    for dataset in info.datasets:
        if dataset.name == name:
            return dataset
    raise InputError(f"dataset: the server at {address} has no {name!r}, it has {names}")


def missing_budgets(dataset: DatasetInfo, settings: RewardSettings) -> str | None:
    """Return a sentence if the guard has no stored budgets; None if it has some, or is off."""
    has_nodes = dataset.num_without_nodes < dataset.num_problems
    guards = settings.guard and settings.reward != "outcome"
    if dataset.num_with_budgets or not has_nodes or not guards:
        return None
    return f"dataset {dataset.name!r} stores no guard budgets; the default budget applies"


def _may_change(score: Score) -> bool:
    """Tell whether the same sample may well get another score a moment later."""
    return score.status is Status.INTERNAL or score.undecided_by_load


def _beginning(response: str | bytes) -> str:
    text = response if isinstance(response, str) else response[:400].decode(errors="replace")
    return text[:100]


def _explained(rollout: Rollout, score: Score) -> str:
    reason = f": {score.message}" if score.message else ""
    return f"problem {rollout.problem_id!r} ended with {score.status}{reason}"


def _as_sample(one: Rollout, sample: Sample) -> Rollout:
    """Return the rollout as a sample of its own; the caller's may be that of several."""
    return Rollout(
        one.problem_id,
        one.response,
        one.ground_truth,
        one.num_tokens,
        one.nodes,
        one.data_source,
        one.rollout_id,
        one.budget,
        sample,
    )


def check_source(settings: RewardSettings) -> None:
    """Check the files that a source reads; a source itself needs an event loop.

    Raises:
        InputError: the dataset, the folder of datasets, the token or a certificate cannot be used.
    """
    settings.access  # noqa: B018  # reads its files
    if settings.dataset_path is not None:
        _check_dataset_path(settings.dataset_path)
    if settings.grown_nodes is not None and not settings.grown_nodes.is_dir():
        raise InputError(f"grown_nodes: there is no folder {settings.grown_nodes}")


def _check_dataset_path(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"dataset_path: there is no file {path}")


def score_log_of(settings: RewardSettings) -> ScoreLog | None:
    """Return this process's score log for these settings, None where they ask for none.

    Raises:
        InputError: it cannot be written to.
    """
    if settings.score_log is None:
        return None
    return _score_log(settings.score_log, int(settings.score_log_bytes), os.getpid())


@lru_cache(maxsize=64)
def _score_log(folder: Path, text_bytes: int, process: int) -> ScoreLog:
    from consensuspr.score_log import ScoreLog  # Arrow is for who logs

    # Of each process its own: a child that was forked has not the thread that writes.
    return ScoreLog(folder, "trainer", text_bytes=text_bytes)


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
