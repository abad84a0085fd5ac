"""The reward function: a batch of completions in, one reward each out.

An asynchronous function, as TRL runs them beside others: all completions of a batch are on
their way at once, on one channel and in micro-batches.  A plain function and no object with
``__call__``, because releases before 1.16 do not see that such an object is asynchronous.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from consensuspr.client.training import (
    ProblemIds,
    RewardSettings,
    ScoredSample,
    ScoreLog,
    UnscorableSample,
    shared_source,
)
from consensuspr.client.trl.batch import rollouts_of, rows_of
from consensuspr.client.trl.epochs import TrainerEpochs, TrainerState
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout

RewardFunction: TypeAlias = Callable[..., Coroutine[Any, Any, list[float | None]]]

# Before it, a completion that every reward function answers with None gets a reward of 0,
# on which the policy is trained; from it on, it is left out of its group.
NEUTRAL_SINCE = (1, 6)
METRICS = "consensuspr"


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
        settings: of the reward, as everywhere (``address``, ``reward``, ``alpha``, …; docs/trl.md).
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

    async def reward(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        trainer_state: TrainerState | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        rollouts = rollouts_of(
            prompts, completions, completion_ids, columns, ground_truth_column, batches.ids
        )
        scored = await batches.score(rollouts, columns, trainer_state)
        batches.log(rollouts, scored, columns, trainer_state)
        if log_metric is not None:
            for metric, value in _means(scored).items():
                log_metric(f"{METRICS}/{metric}", value)
        if log_extra is not None:
            for column in ("acc", "ncr", "status"):
                log_extra(column, [_value(one, column) for one in scored])
        return [None if isinstance(one, UnscorableSample) else one.reward for one in scored]

    reward.__name__ = reward.__qualname__ = name
    return reward


class _Batches:
    """What is kept from batch to batch.

    Args:
        settings: of the reward.
        leave_out: whether what cannot be scored comes back as such, instead of failing.
    """

    def __init__(self, settings: RewardSettings, leave_out: bool) -> None:
        self.ids = ProblemIds(settings.problem_id_format)
        self._settings = settings
        self._leave_out = leave_out
        self._epochs = TrainerEpochs(settings)
        self._log = ScoreLog(settings.score_log) if settings.score_log is not None else None

    async def score(
        self, rollouts: Sequence[Rollout], columns: dict[str, Any], state: TrainerState | None
    ) -> list[ScoredSample | UnscorableSample]:
        """Score a batch; the first failure ends it, and the rest of its work."""
        epoch = self._epochs.epoch_of(state)
        splits = [row.get("split") for row in rows_of(columns, len(rollouts))]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(rollout, epoch, split))
                    for rollout, split in zip(rollouts, splits, strict=True)
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
        columns: dict[str, Any],
        state: TrainerState | None,
    ) -> None:
        """Append a batch to the score log; what was left out has no line."""
        if self._log is None:
            return
        rows = rows_of(columns, len(rollouts))
        for rollout, one, row in zip(rollouts, scored, rows, strict=True):
            if isinstance(one, UnscorableSample):
                continue
            split = row.get("split")
            self._log.write(
                {
                    "step": None if state is None else state.global_step + 1,
                    "epoch": one.epoch,
                    "split": split if isinstance(split, str) else None,
                    "data_source": rollout.data_source,
                    "problem_id": rollout.problem_id,
                    "reward": one.reward,
                    "num_tokens": rollout.num_tokens,
                    "scored_by": one.scored_by,
                    **one.fields(),
                }
            )


def _means(scored: Sequence[ScoredSample | UnscorableSample]) -> dict[str, float]:
    """Return the means over the completions that have the value, and the share without reward."""
    means = {}
    for name in ("acc", "ncr", "tpn"):
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
