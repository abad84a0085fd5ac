"""The reward service in TRL: a reward function for ``GRPOTrainer``.

::

    from consensuspr.client.trl import consensus_reward

    trainer = GRPOTrainer(
        model=..., train_dataset=..., args=...,
        reward_funcs=consensus_reward(address="127.0.0.1:50051", reward="linear", alpha=0.5),
    )

Nothing of TRL is imported; ``docs/train.md`` describes settings and columns.  The columns of the
dataset arrive as lists, one value a completion.  What is read of them::

    problem_id | index (with data_source, split) | the prompt     which problem
    ground_truth, or another column that the user names           overrides the dataset's
    nodes                                                         override the dataset's
    data_source                                                   label for metrics
    extra_info, reward_model                                      as verl's rows have them

A column ``answer`` or ``solution`` is not taken for the ground truth unless it is named: in
many datasets it holds a worked solution, against which every answer would be wrong.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from consensuspr.client.training import (
    EpochClock,
    ProblemIds,
    RewardSettings,
    ScoredSample,
    ScoreLog,
    TrainingRow,
    UnscorableSample,
    ground_truth_text,
    shared_source,
)
from consensuspr.errors import InputError
from consensuspr.scoring.types import END_OF_THINKING, Rollout

RewardFunction: TypeAlias = Callable[..., Coroutine[Any, Any, list[float | None]]]

# Before it, a completion that every reward function answers with None gets a reward of 0,
# on which the policy is trained; from it on, it is left out of its group.
NEUTRAL_SINCE = (1, 6)
METRICS = "consensuspr"

# What a message's thoughts are called by the response templates of various model families.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def consensus_reward(
    *,
    ground_truth_column: str = "ground_truth",
    name: str = "consensus_reward",
    **settings: Any,
) -> RewardFunction:
    """Return a reward function for ``GRPOTrainer(reward_funcs=…)``.

    Args:
        ground_truth_column: column of the dataset with the ground truth of each row.  Where
            it is absent, and by default it may be, the server's dataset knows it.
        name: what the trainer's log calls this reward.
        settings: of the reward, as everywhere (``address``, ``reward``, …; docs/train.md).
            ``on_unscorable`` may also be ``"none"``: such a completion is left out.

    Raises:
        InputError: a setting is unknown or wrong, or ``"none"`` would be trained on as 0 by the
            TRL that is installed.
    """
    leave_out = settings.get("on_unscorable") == "none"
    if leave_out:
        _check_none_is_neutral()
        settings["on_unscorable"] = "raise"
    batches = _Batches(RewardSettings.of(settings, "consensus_reward"), leave_out)

    # Asynchronous, as TRL runs such functions beside others.  No object with ``__call__``:
    # releases before 1.16 do not see that one is asynchronous.
    async def reward(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        rows = rows_of(prompts, columns, ground_truth_column)
        rollouts = rollouts_of(rows, completions, completion_ids, batches.ids)
        scored = await batches.score(rollouts, rows, trainer_state)
        batches.log(rollouts, scored, rows, trainer_state)
        if log_metric is not None:
            for metric, value in _means(scored).items():
                log_metric(f"{METRICS}/{metric}", value)
        if log_extra is not None:
            for column in ("acc", "ncr", "ncr_raw", "guard", "status"):
                log_extra(column, [_value(one, column) for one in scored])
        return [None if isinstance(one, UnscorableSample) else one.reward for one in scored]

    reward.__name__ = reward.__qualname__ = name
    return reward


class _Batches:
    """What is kept from batch to batch; ``leave_out``: what cannot be scored does not fail."""

    def __init__(self, settings: RewardSettings, leave_out: bool) -> None:
        self.ids = ProblemIds(settings.problem_id_format)
        self._settings = settings
        self._leave_out = leave_out
        self._clock = EpochClock(
            settings, missing="this trainer passes no trainer_state to reward functions"
        )
        self._log = ScoreLog(settings.score_log) if settings.score_log is not None else None

    async def score(
        self, rollouts: Sequence[Rollout], rows: Sequence[TrainingRow], state: Any
    ) -> list[ScoredSample | UnscorableSample]:
        """Score a batch; the first failure ends it, and the rest of its work."""
        epoch = epoch_in(state, self._clock)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(rollout, epoch, row.split))
                    for rollout, row in zip(rollouts, rows, strict=True)
                ]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(
        self, rollout: Rollout, epoch: int, split: str | None
    ) -> ScoredSample | UnscorableSample:
        try:
            return await shared_source(self._settings).score(rollout, epoch, split)
        except UnscorableSample as error:
            if self._leave_out:
                return error
            raise

    def log(
        self,
        rollouts: Sequence[Rollout],
        scored: Sequence[ScoredSample | UnscorableSample],
        rows: Sequence[TrainingRow],
        state: Any,
    ) -> None:
        """Append a batch to the score log; what was left out has no line."""
        if self._log is None:
            return
        for rollout, one, row in zip(rollouts, scored, rows, strict=True):
            if isinstance(one, UnscorableSample):
                continue
            step = None if state is None else state.global_step + 1
            self._log.write(one.log_row(rollout, step, row.split))


def epoch_in(state: Any, clock: EpochClock) -> int:
    """Return the epoch, from 0, of the step that a trainer is making.

    The state tells the epoch as a fraction: 1.25 is a quarter into the second epoch.  It is
    brought up to date after each step, so that while rollouts of an epoch are generated it lies
    in [epoch, epoch + 1), and exactly at the epoch for its first ones.

    Args:
        state: a ``transformers.TrainerState``, of which ``epoch`` (None before training) and
            ``global_step`` (steps done) are read; None where the trainer passes none.
        clock: whose settings go before the state.
    """
    if state is None:
        return clock.epoch_of(None)
    return clock.epoch_of(int(state.global_step) + 1, int(state.epoch or 0))


def _means(scored: Sequence[ScoredSample | UnscorableSample]) -> dict[str, float]:
    """Return the means over the completions that have the value, and the share without reward."""
    means = {}
    for name in ("acc", "ncr", "ncr_raw", "guard", "tpn"):
        values = [value for one in scored if (value := _value(one, name)) is not None]
        if values:
            means[name] = math.fsum(values) / len(values)
    if scored:
        missing = sum(
            isinstance(one, UnscorableSample) or one.score.reward is None for one in scored
        )
        means["unscorable"] = missing / len(scored)
    return means


def _value(one: ScoredSample | UnscorableSample, name: str) -> Any:
    if isinstance(one, UnscorableSample):
        return str(one.status) if name == "status" else None
    value = getattr(one.score, name)
    return str(value) if name == "status" else value


def _check_none_is_neutral() -> None:
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            "on_unscorable='none' needs TRL 1.6 or newer, which is not installed"
        ) from None
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if release < NEUTRAL_SINCE:
        raise InputError(
            f"on_unscorable='none' needs TRL 1.6 or newer, this is {version}: it would train on a"
            " reward of 0 in its place"
        )


def rows_of(
    prompts: Sequence[Any], columns: Mapping[str, Any], ground_truth_column: str
) -> list[TrainingRow]:
    """Return what the dataset says of each completion of a batch.

    Args:
        prompts: (n,) texts, or lists of chat messages.
        columns: the dataset's, (n,) values each, and whatever else the trainer passed: what is
            no column of that length is not read.
        ground_truth_column: name of the column that holds the ground truth; may be absent if
            it is ``ground_truth``.

    Raises:
        InputError: a column is missing or has another shape.
    """
    if ground_truth_column != "ground_truth" and ground_truth_column not in columns:
        raise InputError(f"the dataset has no column {ground_truth_column!r} (ground_truth_column)")
    whole = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence)
        and not isinstance(values, str)
        and len(values) == len(prompts)
    }
    rows = [{name: values[at] for name, values in whole.items()} for at in range(len(prompts))]
    return [
        TrainingRow(_source(row), _ground_truth(row, ground_truth_column), _info(row), prompt)
        for row, prompt in zip(rows, prompts, strict=True)
    ]


def rollouts_of(
    rows: Sequence[TrainingRow],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None,
    ids: ProblemIds,
) -> list[Rollout]:
    """Return the rollouts of a batch.

    Args:
        rows: (n,) of the dataset.
        completions: (n,) texts, or lists of chat messages.
        completion_ids: (n,) token ids of the completions, where the trainer tells them.
        ids: finds the problem ids.

    Raises:
        InputError: a row names no problem, or a completion or nodes have another shape.
    """
    counts = [None] * len(rows) if completion_ids is None else map(len, completion_ids)
    return [
        row.rollout(completion_text(completion), ids, count)
        for row, completion, count in zip(rows, completions, counts, strict=True)
    ]


def completion_text(completion: Any) -> str:
    """Return what the policy wrote: a text, or all that the assistant said in a chat.

    Thoughts that a response template has taken out of a message come first and end in
    ``</think>``, as they were generated: nodes are found in them, unless ``after_think`` leaves
    them out.  What tools and environments said is not the policy's.

    Raises:
        InputError: it is neither.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(m, Mapping) for m in completion):
        raise InputError(
            f"a completion must be a text or a list of messages, got {str(completion)[:80]!r}"
        )
    said = [message for message in completion if message.get("role") == "assistant"]
    return "\n".join(part for message in said for part in _parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    for name in _THOUGHTS:
        thought = message.get(name)
        if isinstance(thought, str):
            yield thought
            yield END_OF_THINKING
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                yield text


def _info(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what names the problem, columns before what ``extra_info`` says."""
    info = row.get("extra_info")
    own = {
        name: row[name]
        for name in ("problem_id", "index", "split", "nodes", "budget")
        if name in row
    }
    return {**info, **own} if isinstance(info, Mapping) else own


def _source(row: Mapping[str, Any]) -> str | None:
    source = row.get("data_source")
    if source is None or isinstance(source, str):
        return source
    raise InputError(f"data_source must be a text, got {source!r}")


def _ground_truth(row: Mapping[str, Any], column: str) -> str | None:
    truth = row.get(column)
    if truth is None and isinstance(row.get("reward_model"), Mapping):
        truth = row["reward_model"].get("ground_truth")
    return ground_truth_text(truth, column)
