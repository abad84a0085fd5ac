"""What a trainer gets for a sample: always the same keys, always finite numbers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from consensuspr.client.aio import AsyncRewardClient
from consensuspr.client.batching import Batcher
from consensuspr.client.local import LocalClient
from consensuspr.client.pipeline import Deadline
from consensuspr.client.training.settings import RewardSettings
from consensuspr.errors import (
    ConsensusPRError,
    DataError,
    DeadlineExceeded,
    InputError,
    Overloaded,
    RewardServiceError,
    Unavailable,
)
from consensuspr.scoring.types import InlineNode, Rollout, Score, ScoreOptions, Status
from consensuspr.wire.server_info import DatasetInfo, ServerInfo


class UnscorableSample(ConsensusPRError):
    """A sample has no reward, for a reason that will not go away; none was made up for it.

    Attributes:
        status: which reason.
    """

    def __init__(self, status: Status, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """The reward of one sample, and how it came about.

    Attributes:
        reward: of the formula, in [0, 1]; or the user's own number (``on_unscorable``).
        score: what the scorer said.
        epoch: of the curriculum, from 0.
        scored_by: ``server`` or ``local``.
    """

    reward: float
    score: Score
    epoch: int
    scored_by: str

    def fields(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str]:
        """Return the keys of every sample, in one order.

        Trainers average them, so that a number has to be there and finite where a value is
        unknown: it is 0 then, and ``status``, ``num_nodes`` and ``num_matched`` tell (acc
        without a verdict; ncr without nodes; tpn without matches or token counts).
        """
        score = self.score
        return {
            "score": self.reward,
            "acc": score.acc or 0.0,
            "ncr": score.ncr or 0.0,
            "num_nodes": score.num_nodes,
            "num_matched": score.num_matched,
            "tpn": score.tpn or 0.0,
            "overlong_penalty": overlong_penalty,
            "status": str(score.status),
        }


# MERGED What rows of training data hold for the scorer: nodes, and the ground truth.


def inline_nodes(nodes: Any) -> list[InlineNode] | None:
    """Return the nodes of a row, as mappings with ``expressions`` or as plain lists of them.

    Raises:
        InputError: they have another shape.
    """
    if nodes is None:
        return None
    try:
        return [_inline_node(node) for node in nodes]
    except (TypeError, KeyError):
        raise InputError(
            "extra_info.nodes must be a list of {node_id, expressions, derived} or of lists of"
            f" expressions, got {str(nodes)[:200]!r}"
        ) from None


def _inline_node(node: Any) -> InlineNode:
    if isinstance(node, str):
        raise TypeError(node)
    if not isinstance(node, Mapping):
        return InlineNode(_texts(node))
    derived = node.get("derived")
    return InlineNode(
        expressions=_texts(node["expressions"]),
        node_id=str(node.get("node_id") or ""),
        derived=() if derived is None else _texts(derived),
    )


def _texts(values: Any) -> list[str]:
    if isinstance(values, str):
        raise TypeError(values)
    texts = list(values)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(texts)
    return texts


def ground_truth_text(value: Any, name: str) -> str | None:
    """Return a row's ground truth as text; Parquet columns also hold it as numbers.

    A whole number in a column of floats is written without its fraction, as it was meant:
    strict answer rules compare texts, and "42.0" is not "42".

    Raises:
        InputError: it is neither; ``name`` says which column.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} must be a text, got {value!r:.80}")
    return str(int(value)) if isinstance(value, int) or value.is_integer() else str(value)


# MERGED Which problem of the dataset a trainer's sample belongs to.
#
# In this order: ``extra_info["problem_id"]``; ``extra_info["index"]`` put into
# ``problem_id_format`` with the data source (and split, where the format has it); the digest
# of the prompt.  An index is easily not unique (train and test files both count from 0), and
# a rollout scored against another problem's nodes would be a false reward, so an id that has
# come with two prompts is refused.

DIGEST_PREFIX = "prompt-"
_DIGEST_CHARS = 32

# Ids whose prompts are compared; a training step returns to fewer.
_REMEMBERED = 65_536


def prompt_digest(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the id of a problem that is known by its prompt alone.

    Args:
        prompt: its text, or chat messages, of which role and content count.

    Returns:
        ``prompt-`` and 32 hexadecimal digits of the SHA-256 of the text with runs of white
        space as one blank, or of the messages so written as JSON.
    """
    if isinstance(prompt, str):
        text = _plain(prompt)
    else:
        messages = [[str(m.get("role")), _plain(_content(m.get("content")))] for m in prompt]
        text = json.dumps(messages, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return DIGEST_PREFIX + digest[:_DIGEST_CHARS]


class ProblemIds:
    """Finds the problem ids of samples, and refuses ambiguous ones.

    Args:
        format: of an id with an index: ``{data_source}``, ``{index}`` and ``{split}``.
    """

    def __init__(self, format: str) -> None:
        self._format = format
        self._prompts: OrderedDict[str, str] = OrderedDict()

    def of(
        self,
        data_source: str | None,
        extra_info: Mapping[str, Any],
        prompt: str | Sequence[Mapping[str, Any]] | None,
    ) -> str:
        """Return the problem id of a sample.

        Args:
            data_source: of the sample's row.
            extra_info: of the sample's row.
            prompt: text or chat messages; None where the trainer does not tell.

        Raises:
            InputError: the row names no problem, or its index names two.
        """
        given = extra_info.get("problem_id")
        if given is not None:
            if not isinstance(given, str) or not given:
                raise InputError(
                    f"extra_info.problem_id must be a text that is not empty, got {given!r}"
                )
            return given
        index = extra_info.get("index")
        if index is not None and index != "":
            return self._by_index(data_source, extra_info, index, prompt)
        if prompt is not None and len(prompt):
            return prompt_digest(prompt)
        raise InputError(
            "the row names no problem: extra_info has neither problem_id nor index, and there is"
            " no prompt"
        )

    def _by_index(
        self,
        data_source: str | None,
        extra_info: Mapping[str, Any],
        index: object,
        prompt: str | Sequence[Mapping[str, Any]] | None,
    ) -> str:
        fields = {"data_source": data_source, "index": index, "split": extra_info.get("split")}
        for name, value in fields.items():
            if f"{{{name}}}" in self._format and (value is None or value == ""):
                raise InputError(
                    f"extra_info.index {index!r} names no problem without {name}, which the row"
                    f" lacks (problem_id_format is {self._format!r})"
                )
        problem_id = self._format.format(**fields)
        if prompt is not None and len(prompt):
            self._check_same(problem_id, prompt_digest(prompt))
        return problem_id

    def _check_same(self, problem_id: str, digest: str) -> None:
        known = self._prompts.setdefault(problem_id, digest)
        if known != digest:
            raise InputError(
                f"problem id {problem_id!r}, put together from extra_info.index, has come with two"
                " prompts; give each row its extra_info.problem_id, or tell splits apart with"
                " problem_id_format={data_source}/{split}/{index}"
            )
        self._prompts.move_to_end(problem_id)
        if len(self._prompts) > _REMEMBERED:
            self._prompts.popitem(last=False)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _content(content: object) -> str:
    """Return a message's text; of a list of parts the text parts, one after the other."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


# MERGED Counting what goes wrong so loudly that nobody can overlook it, and no log overflows.


class LoudCounter:
    """Logs an event when it is new, and its count as it grows.

    Written are the 1st, 10th, 100th … event of a kind, and after that whatever comes a
    minute or more after the last line of its kind.

    Args:
        logger: where to.
        clock: seconds, monotonic.
    """

    _PAUSE_S = 60.0

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self.counts: Counter[str] = Counter()

    def count(self, kind: str, message: str) -> None:
        """Count an event.

        Args:
            kind: what is counted together.
            message: one sentence about this event.
        """
        self.counts[kind] += 1
        count, now = self.counts[kind], self._clock()
        if str(count).strip("0") == "1" or now - self._last[kind] >= self._PAUSE_S:
            self._last[kind] = now
            self._logger.error("%s (%s: %d so far in this process)", message, kind, count)


# MERGED The scorer in this process that stands in for a server that is away.
#
# It is the server's own code on the same data, so that a sample's reward does not depend on
# who scored it; data of another digest are refused.  It is loaded when it is first needed:
# a run whose server stays up pays nothing for it.

# Longer than any batch takes; what bounds an answer is its own budget.
_PATIENCE_S = 24 * 3600.0


class UnusableData(InputError):
    """The dataset of the stand-in cannot be read, or is not the server's."""


class LocalFallback:
    """Scores single samples in this process, many at a time as one batch.

    Args:
        path: of the dataset.
        name: of the dataset at the server; None where it has one.

    Attributes:
        expected_digest: of the server's dataset; None while no server was met.
        loaded_digest: of the data that samples were last scored with here; None: none was.

    Raises:
        InputError: there is no such file.
    """

    def __init__(self, path: Path, name: str | None) -> None:
        if not path.exists():
            raise InputError(f"dataset_path: there is no file {path}")
        self._path = path
        self._name = name
        self._client: LocalClient | None = None
        # One thread: batches form while one is in work, and matching has threads of its own.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-local")
        self._batcher = Batcher(self._score, max_in_flight=1)
        self.expected_digest: str | None = None
        self.loaded_digest: str | None = None

    async def score_one(self, rollout: Rollout, options: ScoreOptions) -> Score:
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
        _encoded: Sequence[bytes],
        options: ScoreOptions,
        _deadline: Deadline,
    ) -> Sequence[Score]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._score_here, rollouts, options)

    def _score_here(self, rollouts: Sequence[Rollout], options: ScoreOptions) -> Sequence[Score]:
        client = self._loaded()
        return client.score_with(rollouts, options)

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


# MERGED Where a trainer's rewards come from: the server, or what stands in for it.
#
# One source, with one channel and one micro-batcher, serves all samples of a worker process;
# :func:`shared_source` hands it out.  A source belongs to one event loop.

logger = logging.getLogger(__name__)

# What may pass: nobody listens, or too many ask.  A server that refuses the request itself
# (a dataset that it does not have, another protocol) will do so again.
_AWAY = (Unavailable, Overloaded, DeadlineExceeded)

# Between two rounds of waiting; a round itself retries with growing, jittered pauses.
_PAUSE_S = 0.5

# What rows of validation files call their split.
VALIDATION_SPLITS = ("test", "val", "validation")

# An answer that was not decided because the machine was busy would count as wrong through no
# fault of its own; it is asked for again, after pauses of up to so many seconds, for as long as
# an absent server would be.  A fault of the server's (no memory to fork, say) may pass too.
_AGAIN_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


class RewardSource:
    """Scores single samples, and follows the settings where that does not work.

    Args:
        settings: of the reward.

    Raises:
        InputError: an address or path is wrong.  Nothing is connected before the first sample.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self.settings = settings
        self._spec = settings.spec
        self._client = AsyncRewardClient(
            settings.address,
            settings.timeout_s,
            # Of each batch: a server that restarts may come back with other data, unnoticed.
            on_identity=lambda identity: self._see_digest(identity.dataset_digest),
        )
        self._fallback = (
            LocalFallback(settings.dataset_path, settings.dataset)
            if settings.dataset_path is not None
            else None
        )
        self._loud = LoudCounter(logger)
        self._options: ScoreOptions | None = None
        self._met: asyncio.Task[ServerInfo] | None = None
        self._digest: str | None = None
        self._watch: asyncio.Task[None] | None = None

    async def score(self, rollout: Rollout, epoch: int, split: str | None = None) -> ScoredSample:
        """Return the reward of one sample.

        Args:
            rollout: the sample; its data source and id are labels.
            epoch: of the curriculum, from 0.
            split: of its row; validation without nodes is worth its Acc (``validate_by_acc``).

        Raises:
            UnscorableSample: it has no reward, and ``on_unscorable`` is ``raise``.
            InputError: the sample or the settings are wrong.
            RewardServiceError: the server refused, or was away for longer than the settings
                allow; no reward was made up for it.
        """
        settings = self.settings
        score, scored_by = await self._decided(rollout, self._options_of(epoch))
        if (
            score.status is Status.NO_NODES
            and score.acc is not None
            and settings.validate_by_acc
            and split in VALIDATION_SPLITS
        ):
            return ScoredSample(score.acc, score, epoch, scored_by)
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

    def _options_of(self, epoch: int) -> ScoreOptions:
        """Return how samples of an epoch are scored; they come epoch by epoch.

        Raises:
            InputError: the epoch or a setting is wrong.
        """
        if self._options is None or self._options.epoch != epoch:
            settings = self.settings
            self._options = ScoreOptions.checked(
                self._spec,
                epoch,
                settings.dataset,
                settings.answer_rule,
                settings.on_undecided,
            )
        return self._options

    async def _decided(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, str]:
        """Return a sample's score, asked for again where that may well change it.

        Raises:
            Overloaded: the answer check stayed too busy for longer than the settings allow.
        """
        give_up_at = time.monotonic() + self.settings.unavailable_limit_s
        pauses = chain(_AGAIN_PAUSES_S, repeat(_AGAIN_PAUSES_S[-1]))
        for asked, pause_s in enumerate(pauses, 1):
            score, scored_by = await self._scored(rollout, options)
            busy = score.undecided_by_load
            if not busy and score.status is not Status.INTERNAL:
                return score, scored_by
            if asked > len(_AGAIN_PAUSES_S):
                if not busy:
                    return score, scored_by
                if self.settings.on_unavailable == "raise" or time.monotonic() > give_up_at:
                    raise Overloaded(
                        f"problem {rollout.problem_id!r}: the answer check was too busy,"
                        f" {asked} times"
                    )
            self._loud.count("asked again", f"{_explained(rollout, score)}; it is asked again")
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
        raise AssertionError("pauses do not end")

    async def _scored(self, rollout: Rollout, options: ScoreOptions) -> tuple[Score, str]:
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
                meeting = self._meeting()
                if not meeting.done():
                    await asyncio.shield(meeting)
                score = await self._client.score_one_with(rollout, options, timeout_s=patience_s)
            except _AWAY as error:
                self._loud.count("server away", f"{error}; {self._what_next()}")
                if self._fallback is not None:
                    self._watch_server()
                elif settings.on_unavailable == "raise":
                    raise
                elif time.monotonic() + 2 * _PAUSE_S > give_up_at:
                    raise  # what is left is too short for another try
                else:
                    await asyncio.sleep(_PAUSE_S)
            else:
                return score, "server"

    def _drop_fallback(self, error: UnusableData) -> None:
        """Go on without a stand-in whose data cannot be used; its samples wait instead."""
        if self._fallback is not None:
            self._loud.count("unusable dataset_path", f"{error}; {self._waiting()}")
            self._fallback.close()
            self._fallback = None

    def _what_next(self) -> str:
        if self._fallback is not None:
            return f"scoring in this process from {self.settings.dataset_path}"
        return self._waiting()

    def _waiting(self) -> str:
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
        self._see_digest(dataset.digest)
        return info

    def _see_digest(self, digest: str) -> None:
        """Compare the data of the server, now, with what samples were scored with so far."""
        if self._digest not in (None, digest):
            self._loud.count(
                "dataset changed",
                f"the server at {self.settings.address} has other data: digest {digest}, it was"
                f" {self._digest}; rewards before and after are not comparable",
            )
        self._digest = digest
        if self._fallback is not None:
            used = self._fallback.loaded_digest
            if used not in (None, digest):
                self._loud.count(
                    "unequal data",
                    f"samples were scored in this process from {self.settings.dataset_path}"
                    f" ({used}), which is not the server's dataset ({digest})",
                )
            self._fallback.expected_digest = digest

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
