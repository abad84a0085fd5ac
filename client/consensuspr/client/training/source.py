"""Where a trainer's rewards come from: the server, or a scorer in this process.

:func:`shared_source` returns the one :class:`RewardSource` of an event loop and its settings.  The
local scorer is the server's own code on data of the same digest, and is loaded when it is needed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from consensuspr.client.batching import Batcher
from consensuspr.client.interface import Deadline, ScoredBatch
from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import AsyncRewardClient
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.client.training.rows import DIGEST_PREFIX, VALIDATION_SPLITS
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
    Unavailable,
)
from consensuspr.events import EventLog
from consensuspr.scoring.guard import GuardWatch
from consensuspr.scoring.responses import END_OF_THINKING, scored_from
from consensuspr.scoring.types import (
    CHANNELS,
    DEFAULT_DATASET,
    AnswerRule,
    Identity,
    Rollout,
    Sample,
    SampleKeys,
    Score,
    ScoreOptions,
    Status,
)
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

if TYPE_CHECKING:
    from consensuspr.score_log import ScoreLog

logger = logging.getLogger(__name__)

# A server that rejects the request itself will do so again.
AWAY = (Unavailable, Overloaded, DeadlineExceeded)
_REFUSALS = (InvalidRequest, DatasetMismatch, AccessDenied, IncompatibleServer)
_REJECTED = "rejected"

# Between two rounds of waiting; each round retries with its own pauses.
_PAUSE_S = 0.5

# Pauses before a sample is scored again whose answer check was too busy.
_AGAIN_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)

# Statuses of samples if the dataset is not the one of the training files.
MISFITS = (Status.UNKNOWN_PROBLEM, Status.NO_GROUND_TRUTH, Status.NO_NODES)

# Of fewer samples, the share without a reward means little.
MIN_SAMPLES = 1000

# Warnings, once this many first responses never end their thoughts, or never earn anything.
MIN_UNFINISHED = 100
MIN_UNEARNED = 200
# Of so many first responses, half or more mark an answer that the answer rule does not accept.
MIN_MISREAD = 200

# Limit of remembered look-ups of problems, some 200 bytes each.
_REMEMBERED_PROBLEMS = 100_000

# Log that a sample waits if the server has not replied for this time.
_SILENCE_S = 5.0

# Longer than any local batch takes.
_PATIENCE_S = 24 * 3600.0

# A score, its identity, and who made it (``server`` or ``local``).
Scored: TypeAlias = tuple[Score, Identity, str]


class UnscorableSample(ConsensusPRError):
    """A sample has no reward, for a reason that will not go away.

    Attributes:
        score: what is known of it.
    """

    def __init__(self, score: Score, message: str) -> None:
        self.score = score
        super().__init__(message)

    @property
    def status(self) -> Status:
        """Why it has none."""
        return self.score.status


class TooManyUnscorable(ConsensusPRError):
    """So many samples have no reward that the dataset is not the one of the training files."""


class UnusableData(InputError):
    """The local dataset cannot be read, or is not the server's."""


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
    problem_id: str = ""

    def fields(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str | None]:
        """Return the figures of the sample, the same keys for every sample.

        None means unknown: acc without a verdict, ncr and guard without nodes, tpn without matches
        or token counts.  Means over zeros in their place would be biased.
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
            **{
                f"by_{name}": score.channel_numbers.count(number)
                for number, name in enumerate(CHANNELS)
                if name
            },
            "tpn": score.tpn,
            "unanswered": int(self.unanswered),
            "overlong_penalty": overlong_penalty,
            "status": str(score.status),
        }

    def numbers(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str]:
        """Return :meth:`fields` with 0 for None (guard: 1), for trainers that take no None."""
        return {
            name: value if value is not None else float(name == "guard")
            for name, value in self.fields(overlong_penalty).items()
        }


class LocalFallback:
    """Scores single samples in this process, those that wait together as one batch.

    Attributes:
        expected_digest: of the server's dataset; None while it is not known.
        loaded_digest: of the data in use; None: nothing is loaded.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self._settings = settings
        self._client: LocalClient | None = None
        # One thread: batches form while one is scored, and the matcher starts its own threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-local")
        self._batcher: Batcher[Rollout] = Batcher(self._score, lambda item: len(item.response), 1)
        self.expected_digest = settings.expect_digest
        self.loaded_digest: str | None = None

    async def score_one(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, Identity]:
        """Score one rollout; raise UnusableData if the dataset is unreadable or another one."""
        return await self._batcher.submit(rollout, options, Deadline.after(_PATIENCE_S))

    def close(self) -> None:
        """Fail waiting samples, and stop the answer processes.  May be called twice."""
        self._batcher.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def _score(
        self, rollouts: Sequence[Rollout], options: ScoreOptions, _: Deadline
    ) -> ScoredBatch:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, lambda: self._loaded().score_with(rollouts, options)
        )

    def _loaded(self) -> LocalClient:
        expected = self.expected_digest
        if self._client is not None and expected in (None, self.loaded_digest):
            return self._client
        if self._client is not None:  # the file may have been replaced since
            self._client.close()
            self._client = None
        client = local_client(self._settings)
        digest = client.server_info().datasets[0].digest
        if expected not in (None, digest):
            client.close()
            raise UnusableData(
                f"dataset_path: {self._settings.dataset_path} ({digest}) is not the dataset of this"
                f" run ({expected}); a reward would depend on who scored it"
            )
        run = self._settings.score_log
        if run is not None:  # keeps the dataset, as a server does
            from consensuspr.score_log import keep_dataset

            try:
                [index] = client.datasets.values()
                keep_dataset(run, index)
            except InputError as error:
                logger.warning("the dataset is not kept, explain needs --dataset: %s", error)
        self._client, self.loaded_digest = client, digest
        return client


@dataclass(slots=True)
class SharedState:
    """What the sources of one process know together, as each event loop has its own source.

    Attributes:
        away: whether the server was away at the last call, so that samples are scored here.
        digest: of the server's dataset; None while it is not known.
    """

    events: EventLog = field(default_factory=lambda: EventLog(logger))
    away: bool = False
    digest: str | None = None


class RewardSource:
    """Scores single samples, and follows the settings if that fails.

    Args:
        settings: of the run.
        state: of the process's sources with these settings; None: its own.

    Raises:
        InputError: an address or path is wrong.  Nothing is connected before the first sample.
    """

    def __init__(self, settings: RewardSettings, state: SharedState | None = None) -> None:
        settings.check_files()
        self.settings = settings
        self._spec = settings.spec
        # None without a server: every sample is scored here.
        self._client: AsyncRewardClient | None = None
        if settings.address is not None:
            self._client = AsyncRewardClient(
                settings.address, settings.timeout_s, access=settings.access
            )
        self._fallback = None if settings.dataset_path is None else LocalFallback(settings)
        self._state = SharedState() if state is None else state
        self._events = self._state.events
        self._keys = SampleKeys()
        self._log = score_log_of(settings)
        self._guard_watch = GuardWatch()
        self._samples = 0
        self._misfits: Counter[str] = Counter()
        # By digest and problem id: whether the dataset has a problem that came back without nodes.
        self._known: dict[tuple[str, str], bool] = {}
        # By warning: samples before the first that makes it unnecessary.
        self._missing: Counter[str] = Counter()
        self._misread = [0, 0]  # first responses, and those with a mark that the rule rejects
        # The last problem id of validation rows that have nodes (True), and that lack them (False).
        self._validated: dict[bool, str] = {}
        self._options: ScoreOptions | None = None
        self._grown = GrownDatasets(settings.grown_nodes) if settings.grown_nodes else None
        if self._fallback is not None and self._state.digest is not None:
            self._fallback.expected_digest = self._state.digest
        self._last_reply = 0.0  # of the server
        # Checks whether the server is back while samples are scored here.
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

        Arguments and errors are those of :meth:`SampleScorer.score`; also raises TooManyUnscorable
        if more than ``max_unscorable`` have no reward, or were rejected.

        Args:
            rollout: the sample; its data source and id are labels.
            epoch: of the curriculum, from 0.
            split: of its row; validation without nodes is worth its Acc (``validate_by_acc``).
        """
        self._samples += 1
        options = self._options_of(epoch, spans)
        # The caller's rollout may belong to several samples.
        rollout = replace(rollout, sample=Sample(self._keys.next(), step, group, split))
        try:
            score, identity, scored_by = await self._decided(rollout, options)
            unknown = await self._is_unknown(rollout, score, identity, options)
        except _REFUSALS as error:
            sentence = f"problem {rollout.problem_id!r}: {error}"
            self._events.report(_REJECTED, f"{sentence}; the sample fails")
            self._check_misfits(_REJECTED, sentence)
            raise
        final_score = None
        try:
            reward = self._reward_of(rollout, score, unknown)
            final_score = None if penalty is None else reward + penalty
        finally:
            if self._log is not None:
                self._log.put_sample(
                    rollout, score, identity, options, scored_by, penalty, final_score
                )
                await self._log.written()
        unanswered = self._is_unanswered(rollout.response, identity.answer_rule)
        self._watch_rule(rollout, identity.answer_rule, unanswered)
        return ScoredSample(reward, score, epoch, scored_by, unanswered, rollout.problem_id)

    @property
    def events(self) -> Mapping[str, int]:
        """Numbers of logged events so far, by kind; also what the score log dropped."""
        log = self._log
        dropped = (0, 0) if log is None else (log.dropped_rows, log.dropped_texts)
        names = ("score log dropped rows", "score log dropped texts")
        return self._events.counts | {name: n for name, n in zip(names, dropped, strict=True) if n}

    async def close(self) -> None:
        """Close the channel and stop local scoring.  May be called twice."""
        if self._watch is not None:
            self._watch.cancel()
        if self._client is not None:
            await self._client.close()
        if self._fallback is not None:
            self._fallback.close()

    # -- rewards -------------------------------------------------------------------------------

    def _reward_of(self, rollout: Rollout, score: Score, unknown: bool) -> float:
        """Return the reward of a sample, or raise UnscorableSample."""
        settings = self.settings
        self._warn(rollout, score)
        self._watch_validation(rollout, score)
        if score.acc is not None and self._validates_by_acc(rollout, score):
            return score.acc
        instead: str | float = settings.on_unscorable
        if score.status is Status.NO_NODES and score.reward is None and not unknown:
            if settings.instead_of_nodes == "acc":
                if score.acc is not None:
                    return score.acc
            elif settings.instead_of_nodes is not None:
                instead = settings.instead_of_nodes
        why = Status.UNKNOWN_PROBLEM if unknown else score.status
        sentence = _explained(rollout, score)
        if why is not Status.OK:
            self._events.report(str(why), sentence)
        if score.reward is not None:
            return score.reward
        if unknown or (instead == "raise" and why in MISFITS):
            self._check_misfits(str(why), sentence)
        if isinstance(instead, str):
            raise UnscorableSample(score, sentence)
        return instead

    async def _is_unknown(
        self, rollout: Rollout, score: Score, identity: Identity, options: ScoreOptions
    ) -> bool:
        """Return whether a sample without a reward is of a problem that the dataset lacks.

        If the row has a ground truth, such a sample has the status of a known problem without
        nodes.  So if a setting would reward it, the problem is looked up once without that truth.
        """
        if rollout.nodes is not None or score.reward is not None:
            return False
        if score.status is Status.UNKNOWN_PROBLEM:
            return True
        settings = self.settings
        instead = settings.instead_of_nodes
        fails = (settings.on_unscorable if instead is None else instead) == "raise"
        if score.status is not Status.NO_NODES or fails or self._validates_by_acc(rollout, score):
            return False
        key = (identity.dataset_digest, rollout.problem_id)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED_PROBLEMS:
                self._known.clear()
            lookup = replace(options, include_spans=False, probe=True)
            found, *_ = await self._scored(Rollout(rollout.problem_id, ""), lookup)
            self._known[key] = found.status is not Status.UNKNOWN_PROBLEM
        return not self._known[key]

    def _validates_by_acc(self, rollout: Rollout, score: Score) -> bool:
        """Return whether a sample is worth its Acc because nothing is trained on it."""
        return (
            score.status is Status.NO_NODES
            and score.acc is not None
            and self.settings.validate_by_acc
            and rollout.sample is not None
            and rollout.sample.split in VALIDATION_SPLITS
        )

    def _is_unanswered(self, response: str | bytes, rule: AnswerRule) -> bool:
        """Return whether a response marks no final answer that the rule accepts."""
        # Not imported above: commands import this module before they configure warnings.
        from consensuspr.scoring.answers import has_marked_answer

        start = scored_from(response) if self._spec.after_think else 0
        return not has_marked_answer(response[start:] if start else response, rule)

    def _watch_rule(self, rollout: Rollout, rule: AnswerRule, unanswered: bool) -> None:
        """Log once if most responses mark an answer in another form than the rule asks for."""
        if self._misread[0] == MIN_MISREAD or rule is AnswerRule.AUTO:
            return
        text = rollout.response
        self._misread[0] += 1
        self._misread[1] += unanswered and not self._is_unanswered(text, AnswerRule.AUTO)
        count, misread = self._misread
        if count == MIN_MISREAD and 2 * misread >= count:
            end = (text if isinstance(text, str) else text.decode(errors="replace"))[-40:]
            self._events.report(
                "answer rule",
                f"{misread} of the first {count} responses mark an answer that"
                f" answer_rule={rule.value} does not accept, and count as unanswered: set"
                " answer_rule=auto, or ask for the other form in the prompt; the last ends with"
                f" {end!r}",
            )

    def _check_misfits(self, why: str, sentence: str) -> None:
        """Count a sample that fails because of the dataset, or that the server rejects.

        Raises:
            TooManyUnscorable: there are more of them than ``max_unscorable`` allows.
        """
        self._misfits[why] += 1
        misfits, share = self._misfits.total(), self.settings.max_unscorable
        if misfits > share * max(self._samples, MIN_SAMPLES):
            counts = ", ".join(f"{count} {name}" for name, count in self._misfits.items())
            cause = (
                "the server rejects this run"
                if why == _REJECTED
                else "the server's dataset is not the one of the training files"
            )
            raise TooManyUnscorable(
                f"{counts} of {self._samples:,} samples in this process, more than"
                f" max_unscorable={share:g} of {max(self._samples, MIN_SAMPLES):,}: {cause};"
                f" the last: {sentence}"
            )

    def _warn(self, rollout: Rollout, score: Score) -> None:
        """Log faults of a whole run, once."""
        if score.acc == 1.0 and score.guard is not None:
            warning = self._guard_watch.add(1, score.guard < 1.0)
            if warning is not None:
                self._events.report("guarded", warning)
        if self._spec.after_think:
            ended = scored_from(rollout.response) < len(rollout.response)
            if self._never("unfinished", ended, MIN_UNFINISHED):
                self._events.report(
                    "unfinished",
                    f"none of the first {MIN_UNFINISHED} responses goes on behind a"
                    f" {END_OF_THINKING}, and with after_think nothing else is scored: the policy"
                    " does not think in these marks, its tokenizer drops them, or responses are"
                    " cut off too early",
                )
        earned = score.num_matched > 0 or bool(score.acc)
        if score.num_nodes and self._never("nothing reached", earned, MIN_UNEARNED):
            text = rollout.response
            start = (text if isinstance(text, str) else text[:400].decode(errors="replace"))[:100]
            self._events.report(
                "nothing reached",
                f"none of the first {MIN_UNEARNED} responses to problems with nodes reaches a node"
                " or the answer: is this the dataset of these prompts, and the tokenizer the"
                f" policy's? The last, to problem {rollout.problem_id!r}, begins {start!r}",
            )

    def _watch_validation(self, rollout: Rollout, score: Score) -> None:
        """Report a validation, which a training row ends, if no row so far has nodes."""
        if rollout.sample is not None and rollout.sample.split in VALIDATION_SPLITS:
            lacks_nodes = score.reward is None and self._validates_by_acc(rollout, score)
            self._validated[not lacks_nodes] = rollout.problem_id
            return
        if self._validated.keys() == {False}:
            problem_id = self._validated.pop(False)
            self._events.report(
                "validation without nodes",
                "no validation row so far has nodes in the dataset, so their rewards are Acc; the"
                f" last row's problem id is {problem_id!r}; if the dataset has other ids, set"
                " problem_id_format",
            )

    def _never(self, kind: str, happened: bool, limit: int) -> bool:
        """Return True once if something did not happen in any of the first samples."""
        count = self._missing[kind]
        if count < limit:
            self._missing[kind] = limit if happened else count + 1
        return not happened and count + 1 == limit

    # -- scores --------------------------------------------------------------------------------

    def _options_of(self, epoch: int, spans: bool) -> ScoreOptions:
        """Return the options of an epoch, the same object while nothing changes."""
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

    async def _decided(self, rollout: Rollout, options: ScoreOptions) -> Scored:
        """Return a sample's score; a busy answer check or a fault of the server is asked again.

        Raises:
            Overloaded: the answer check stayed too busy for longer than the settings allow.
        """
        give_up_at = time.monotonic() + self.settings.unavailable_limit_s
        for asked in itertools.count(1):
            found = await self._scored(rollout, options)
            score, *_ = found
            last = asked > len(_AGAIN_PAUSES_S)
            if not score.undecided_by_load and (score.status is not Status.INTERNAL or last):
                return found
            waits = self.settings.on_unavailable == "wait" and time.monotonic() <= give_up_at
            if last and not waits:
                raise Overloaded(
                    f"problem {rollout.problem_id!r}: the answer check was too busy, {asked} times"
                )
            self._events.report("retry", f"{_explained(rollout, score)}; retrying")
            pause_s = _AGAIN_PAUSES_S[min(asked, len(_AGAIN_PAUSES_S)) - 1]
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
        raise AssertionError("counting does not end")

    async def _scored(self, rollout: Rollout, options: ScoreOptions) -> Scored:
        """Return a sample's score by the server, by the local scorer, or after a wait."""
        settings, client = self.settings, self._client
        give_up_at = time.monotonic() + settings.unavailable_limit_s
        while True:
            fallback = self._fallback
            if client is None:
                assert fallback is not None, "without an address there is a dataset_path"
                return *await fallback.score_one(rollout, options), "local"
            if fallback is not None and self._state.away and self._watch is None:
                self._watch = asyncio.get_running_loop().create_task(self._until_back(client))
            watch = self._watch
            if fallback is not None and watch is not None:
                if fallback.expected_digest is fallback.loaded_digest is None:
                    # A server that does not score may still report its digest.
                    await asyncio.wait({watch}, timeout=_PAUSE_S)
                    if fallback is not self._fallback:  # another sample found it unusable
                        continue
                try:
                    return *await fallback.score_one(rollout, options), "local"
                except UnusableData as error:
                    self._drop_fallback(error)
                except Unavailable:
                    if fallback is self._fallback:
                        raise
                    # Another sample found its data unusable, and this one asks the server too.
            limit_s = min(settings.timeout_s, max(_PAUSE_S, give_up_at - time.monotonic()))
            silence = asyncio.get_running_loop().call_later(_SILENCE_S, self._report_silence)
            try:
                score, identity = await client.score_one_with(rollout, options, timeout_s=limit_s)
            except AWAY as error:
                self._events.report("server unavailable", f"{error}; {self._what_next()}")
                if self._fallback is not None:
                    self._state.away = True
                    continue
                fails = settings.on_unavailable == "raise"
                if fails or time.monotonic() + 2 * _PAUSE_S > give_up_at:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                self._see_digest(identity.dataset_digest)
                return score, identity, "server"
            finally:
                silence.cancel()

    def _report_silence(self) -> None:
        if time.monotonic() - self._last_reply >= _SILENCE_S:
            self._events.report(
                "server unavailable",
                f"no score from the server at {self.settings.address} for {_SILENCE_S:g} s",
            )

    def _drop_fallback(self, error: UnusableData) -> None:
        if self._fallback is not None:
            fallback, self._fallback = self._fallback, None
            self._events.report("unusable dataset_path", f"{error}; {self._what_next()}")
            fallback.close()

    def _what_next(self) -> str:
        if self._fallback is not None:
            return f"scoring in this process from {self.settings.dataset_path}"
        if self.settings.on_unavailable == "raise":
            return "the sample fails (on_unavailable=raise)"
        return f"waiting for it, up to {self.settings.unavailable_limit_s:g} s a sample"

    # -- the server's dataset ------------------------------------------------------------------

    async def _until_back(self, client: AsyncRewardClient) -> None:
        """Wait until the server has its dataset back; meanwhile samples are scored here."""
        settings = self.settings
        try:
            while True:
                try:
                    info = await client.server_info()
                    if self._grown is None:  # else each request names its epoch's digest
                        dataset = chosen_dataset(info, settings.dataset, settings.address)
                        if settings.expect_digest in (None, dataset.digest):
                            self._see_digest(dataset.digest)
                except AWAY:
                    await asyncio.sleep(_PAUSE_S)
                except ConsensusPRError:
                    break  # it rejects, and samples that ask it get the error
                else:
                    logger.warning("the server at %s is back", settings.address)
                    break
            self._state.away = False
        finally:
            self._watch = None

    def _see_digest(self, digest: str) -> None:
        """Compare the server's data with those that samples were scored with so far."""
        self._last_reply = time.monotonic()
        known, self._state.digest = self._state.digest, digest
        if self._grown is None and known not in (None, digest):
            self._events.report(
                "dataset changed",
                f"the server at {self.settings.address} has other data: digest {digest}, it was"
                f" {known}; rewards before and after are not comparable",
            )
        # Not by the known digest: a source of another event loop may have seen it first.
        if self._fallback is not None and self._fallback.expected_digest != digest:
            loaded = self._fallback.loaded_digest
            if loaded not in (None, digest):
                self._events.report(
                    "dataset mismatch",
                    f"samples were scored in this process from {self.settings.dataset_path}"
                    f" ({loaded}), which is not the server's dataset ({digest})",
                )
            self._fallback.expected_digest = digest


def local_client(settings: RewardSettings) -> LocalClient:
    """Return a client of ``dataset_path``; raise UnusableData if it cannot be read."""
    path, name = settings.dataset_path, settings.dataset
    assert path is not None
    try:
        return LocalClient({name: path} if name else path)
    except (DataError, OSError) as error:
        raise UnusableData(f"dataset_path: {error}") from None


def chosen_dataset(info: ServerInfo, name: str | None, address: str | None) -> DatasetInfo:
    """Return the dataset that requests will be scored with.

    Raises:
        InputError: the server does not have it, or has several and none was named.
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


def _explained(rollout: Rollout, score: Score) -> str:
    reason = f": {score.message}" if score.message else ""
    if rollout.problem_id.startswith(DIGEST_PREFIX) and "not in the dataset" in score.message:
        reason += "; a prompt's digest is the id of a row without problem_id and index"
    return f"problem {rollout.problem_id!r} ended with {score.status}{reason}"


def score_log_of(settings: RewardSettings) -> ScoreLog | None:
    """Return this process's score log for these settings, None if they ask for none.

    Raises:
        InputError: it cannot be written to.
    """
    if settings.score_log is None:
        return None
    return _score_log(settings.score_log, int(settings.score_log_bytes), os.getpid())


@lru_cache(maxsize=64)
def _score_log(folder: Path, text_bytes: int, process: int) -> ScoreLog:
    # One per process: a forked child does not have the thread that writes.
    from consensuspr.score_log import ScoreLog

    return ScoreLog(folder, "trainer", text_bytes=text_bytes)


_sources: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[RewardSettings, RewardSource]] = (
    WeakKeyDictionary()
)


def shared_source(settings: RewardSettings) -> RewardSource:
    """Return this process's source for the running event loop and these settings."""
    for loop in [loop for loop in _sources if loop.is_closed()]:
        del _sources[loop]  # a source refers to its loop, so that no entry goes by itself
    sources = _sources.setdefault(asyncio.get_running_loop(), {})
    source = sources.get(settings)
    if source is None:
        source = sources[settings] = RewardSource(settings, _state_of(settings, os.getpid()))
    return source


@lru_cache(maxsize=64)
def _state_of(settings: RewardSettings, process: int) -> SharedState:
    return SharedState()
