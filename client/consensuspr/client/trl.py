"""The reward service in TRL: a reward function for ``GRPOTrainer``.

::

    from consensuspr.client.trl import consensus_reward

    trainer = GRPOTrainer(
        model=..., train_dataset=..., args=...,
        reward_funcs=consensus_reward(address="127.0.0.1:50051", reward="linear", alpha=0.5),
    )

Nothing of TRL is imported; ``docs/tutorials/trl.md`` describes the columns.  A column ``answer``
or ``solution`` is not taken for the ground truth unless it is named: in many datasets it holds a
worked solution, against which every answer would be wrong.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from consensuspr.client.training import (
    METRICS,
    SampleScorer,
    ScoredSample,
    TrainingRow,
    UnscorableSample,
    batch_rows,
    figures,
    progress_of,
    together,
)
from consensuspr.errors import InputError
from consensuspr.scoring.responses import said_by_policy

# The oldest that is supported; one before 1.6 trains on 0 if every reward of a completion is None.
OLDEST_TRL = (1, 16)

Outcome: TypeAlias = ScoredSample | UnscorableSample


def consensus_reward(
    *, ground_truth_column: str = "ground_truth", name: str = "consensus_reward", **settings: Any
) -> RewardFunction:
    """Return a reward function for ``reward_funcs`` of TRL's trainers.

    Args:
        ground_truth_column: column of the dataset with the ground truth of each row; by default
            it may be absent.
        name: of this reward in the trainer's log.
        settings: of the reward (docs/reference/settings.md); with ``on_unscorable="none"`` a
            completion that cannot be scored is left out.

    Raises:
        InputError: a setting is unknown or wrong, or ``"none"`` would be trained on as 0 by the
            TRL that is installed.
    """
    leave_out = settings.get("on_unscorable") == "none"
    if leave_out:
        _check_none_is_neutral()
        settings["on_unscorable"] = "raise"
    samples = SampleScorer.of(
        settings, "consensus_reward", "this trainer passes no trainer_state to reward functions"
    )
    return RewardFunction(samples, ground_truth_column, name, leave_out)


class RewardFunction:
    """A reward function as TRL calls it, for a whole batch; the asynchronous trainer pickles it."""

    def __init__(
        self, samples: SampleScorer, ground_truth_column: str, name: str, leave_out: bool
    ) -> None:
        self.__name__ = name
        self._samples = samples
        self._column = ground_truth_column
        self._leave_out = leave_out

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of a batch, (n,), None for a completion that is left out.

        Args:
            prompts: (n,) texts, or lists of chat messages; ``completions`` alike.
            completions: see ``prompts``.
            completion_ids: (n,) token ids of the completions, if the trainer passes them.
            trainer_state: a ``transformers.TrainerState``, if the trainer passes it.
            log_metric: takes a figure of the batch for the trainer's log.
            log_extra: takes a column, one value a completion.
            columns: of the dataset, (n,) values each, and other arguments of the trainer.
        """
        rows = batch_rows(prompts, columns, self._column)
        counts = [None] * len(rows) if completion_ids is None else map(len, completion_ids)
        step, epoch = progress_of(trainer_state)

        async def score(row: TrainingRow, response: str, num_tokens: int | None) -> Outcome:
            try:
                return await self._samples.score(row, response, num_tokens, step=step, epoch=epoch)
            except UnscorableSample as error:
                if self._leave_out:
                    return error
                raise

        outcomes = await together(
            score(row, said_by_policy(completion), count)
            for row, completion, count in zip(rows, completions, counts, strict=True)
        )
        fields = [
            outcome.fields()
            if isinstance(outcome, ScoredSample)
            else {"status": str(outcome.status)}
            for outcome in outcomes
        ]
        if log_metric is not None and outcomes:
            missing = [isinstance(o, UnscorableSample) or o.score.reward is None for o in outcomes]
            unscorable = {f"{METRICS}/unscorable": sum(missing) / len(missing)}
            # Without groups: TRL logs the share of those with equal rewards itself.
            step_figures = figures(fields, [row.data_source for row in rows])
            for metric, value in {**step_figures, **unscorable}.items():
                log_metric(metric, value)
        if log_extra is not None:
            for column in ("acc", "ncr", "ncr_raw", "guard", "status"):
                log_extra(column, [sample.get(column) for sample in fields])
        return [o.reward if isinstance(o, ScoredSample) else None for o in outcomes]


def _check_none_is_neutral() -> None:
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if release < OLDEST_TRL:
        raise InputError(
            f"on_unscorable='none' needs TRL 1.16 or newer, TRL is {version}: an older one may"
            " train on a reward of 0"
        )
