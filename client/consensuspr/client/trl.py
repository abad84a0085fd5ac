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

import importlib.metadata
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from consensuspr.client.training import (
    METRICS,
    RewardSettings,
    SampleScorer,
    ScoredSample,
    TrainingRow,
    UnscorableSample,
    figures,
    ground_truth_text,
    together,
)
from consensuspr.client.training.figures import NAMES
from consensuspr.errors import InputError
from consensuspr.scoring.responses import said_by_policy

# Before it, a completion that every reward function answers with None gets a reward of 0,
# on which the policy is trained; from it on, it is left out of its group.
NEUTRAL_SINCE = (1, 6)

# Before it, processes of a distributed run that log figures of other names wait for each other for
# ever, or take one figure for another.
NAMES_DIFFER_SINCE = (1, 14)

Outcome: TypeAlias = ScoredSample | UnscorableSample


def consensus_reward(
    *,
    ground_truth_column: str = "ground_truth",
    name: str = "consensus_reward",
    **settings: Any,
) -> RewardFunction:
    """Return a reward function for ``reward_funcs`` of TRL's trainers.

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
    samples = SampleScorer(
        RewardSettings.of(settings, "consensus_reward"),
        missing="this trainer passes no trainer_state to reward functions",
    )
    return RewardFunction(samples, ground_truth_column, name, leave_out)


class RewardFunction:
    """A reward function as TRL calls it, asynchronous and for a whole batch.

    An object, since the asynchronous trainer pickles it for its rollout process, which it cannot
    do to a closure, and since TRL unwraps a ``functools.partial`` and with it forgets its name.

    Args:
        samples: scores the completions.
        ground_truth_column: name of the column that holds the ground truth.
        name: what the trainer's log calls it.
        leave_out: whether what cannot be scored is answered with None, and does not fail.
    """

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
        """Return the rewards of a batch, (n,), None where a completion is left out.

        Args:
            prompts: (n,) texts, or lists of chat messages.
            completions: (n,) texts, or lists of chat messages.
            completion_ids: (n,) token ids of the completions, where the trainer tells them.
            trainer_state: a ``transformers.TrainerState``; None where the trainer passes none.
            log_metric: takes a figure of the batch for the trainer's log.
            log_extra: takes a column, one value a completion.
            columns: of the dataset, (n,) values each, and whatever else the trainer passes.
        """
        rows = rows_of(prompts, columns, self._column)
        counts = [None] * len(rows) if completion_ids is None else map(len, completion_ids)
        step, epoch = progress(trainer_state)
        outcomes = await together(
            self._one(row, said_by_policy(completion), count, step, epoch)
            for row, completion, count in zip(rows, completions, counts, strict=True)
        )
        if log_metric is not None:
            for metric, value in batch_figures(outcomes).items():
                log_metric(metric, value)
        if log_extra is not None:
            fields = list(map(_fields, outcomes))
            for column in ("acc", "ncr", "ncr_raw", "guard", "status"):
                log_extra(column, [one.get(column) for one in fields])
        return [None if isinstance(one, UnscorableSample) else one.reward for one in outcomes]

    # Releases before 1.16 ask inspect whether this is a coroutine function, which says yes to
    # an object that has what a function has.
    __code__ = __call__.__code__
    __defaults__ = __call__.__defaults__
    __kwdefaults__ = __call__.__kwdefaults__
    __annotations__ = __call__.__annotations__

    async def _one(
        self,
        row: TrainingRow,
        response: str,
        num_tokens: int | None,
        step: int | None,
        epoch: int | None,
    ) -> Outcome:
        try:
            return await self._samples.score(row, response, num_tokens, step=step, epoch=epoch)
        except UnscorableSample as error:
            if self._leave_out:
                return error
            raise


def batch_figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return what a batch comes to in TRL's log, by name.

    ``unscorable`` is the share of completions without a reward of the formula.  Where all processes
    of a run have to log the same names, what one of them does not know is NaN there, and statuses
    are left out.
    """
    found = figures(map(_fields, outcomes))
    if _same_names():
        names = [f"{METRICS}/{name}" for name in NAMES]
        found = {name: found.get(name, math.nan) for name in names}
    missing = sum(isinstance(one, UnscorableSample) or one.score.reward is None for one in outcomes)
    found[f"{METRICS}/unscorable"] = missing / len(outcomes) if outcomes else math.nan
    return found


def _fields(outcome: Outcome) -> Mapping[str, Any]:
    if isinstance(outcome, UnscorableSample):
        return {"status": str(outcome.status)}
    return outcome.fields()


def _same_names() -> bool:
    """Say whether the processes of this run have to log figures of the same names."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    release = _release()
    return release is not None and release < NAMES_DIFFER_SINCE


def progress(state: Any) -> tuple[int | None, int | None]:
    """Return the step, from 1, and the epoch, from 0, that a trainer is making.

    The state tells the epoch as a fraction: 1.25 is a quarter into the second epoch.  It is
    brought up to date after each step, so that while rollouts of an epoch are generated it lies
    in [epoch, epoch + 1), and exactly at the epoch for its first ones.

    Args:
        state: a ``transformers.TrainerState``, of which ``epoch`` (None before training) and
            ``global_step`` (steps done) are read; None where the trainer passes none.
    """
    return (None, None) if state is None else (int(state.global_step) + 1, int(state.epoch or 0))


def _check_none_is_neutral() -> None:
    release = _release()
    if release is None:
        raise InputError("on_unscorable='none' needs TRL 1.6 or newer, which is not installed")
    if release < NEUTRAL_SINCE:
        version = importlib.metadata.version("trl")
        raise InputError(
            f"on_unscorable='none' needs TRL 1.6 or newer, this is {version}: it would train on a"
            " reward of 0 in its place"
        )


def _release() -> tuple[int, ...] | None:
    """Return major and minor release of TRL, None where it is not installed."""
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


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


def _info(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what names the problem, columns before what ``extra_info`` says."""
    info = row.get("extra_info")
    own = {
        name: row[name]
        for name in ("problem_id", "index", "split", "nodes", "budget", "epoch", "global_step")
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
