"""The reward service in verifiers, and with it in prime-rl: a reward for any taskset.

::

    # rewards.py
    from consensuspr.client.verifiers import consensus_reward

    consensus = consensus_reward(address="127.0.0.1:50051", reward="linear", alpha=0.5)

and in the configuration, here of a taskset of prime-rl's environment (``fn`` may also name a module
that is installed, ``package.module:consensus``)::

    [env.taskset.task.rewards.consensus]
    fn = "rewards.py:consensus"

All that the policy said in a trace is scored, thoughts before the rest of a message, and no word
of a tool or a user.  A failure is raised: verifiers records it on the trace, whose reward then does
not exist, and prime-rl trains on no trace that has an error.  Nothing of verifiers is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from consensuspr.client.training import (
    RewardSettings,
    SampleScorer,
    TrainingRow,
    figure,
    ground_truth_text,
)
from consensuspr.client.training.samples import METRICS
from consensuspr.scoring.responses import said_by_policy

TraceReward: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, float]]

# Of a task's data, what names its problem; ``id`` is what verifiers itself calls a durable one.
_NAMES = ("problem_id", "index", "split", "nodes", "budget", "epoch", "global_step")


def consensus_reward(*, ground_truth_field: str = "ground_truth", **settings: Any) -> TraceReward:
    """Return a reward to plug into tasks, ``(task, trace) -> float``.

    It records ``consensuspr/acc``, ``consensuspr/ncr``, … as metrics of the trace, those that
    exist, and says in ``trace.info["consensuspr"]`` what became of it.

    Args:
        ground_truth_field: of the task's data; by default it may be absent, and the server's
            dataset knows it.
        settings: of the reward, as everywhere (docs/train.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    samples = SampleScorer(
        RewardSettings.of(settings, "consensus_reward"),
        missing="verifiers tells a reward neither step nor epoch",
    )

    async def consensus(task: Any, trace: Any) -> float:
        scored = await samples.score(
            _row(task, ground_truth_field),
            said_by_policy([_message(said) for said in trace.assistant_messages]),
            trace.num_output_tokens or None,
        )
        for name in ("acc", "ncr", "ncr_raw", "guard", "tpn"):
            value = figure(scored, name)
            if value is not None:
                trace.record_metric(f"{METRICS}/{name}", value)
        trace.info[METRICS] = {**scored.fields(), "epoch": scored.epoch}
        return scored.reward

    return consensus


def _row(task: Any, ground_truth_field: str) -> TrainingRow:
    """Return what a task's data say; fields that the taskset does not have are not there."""
    info = {name: getattr(task, name, None) for name in _NAMES}
    if info["problem_id"] is None:
        info["problem_id"] = task.id
    truth = getattr(task, ground_truth_field, None)
    return TrainingRow(
        getattr(task, "data_source", None),
        ground_truth_text(truth, ground_truth_field),
        {name: value for name, value in info.items() if value is not None},
        task.prompt_text or None,
    )


def _message(message: Any) -> Mapping[str, Any]:
    return {
        "role": "assistant",
        "reasoning_content": getattr(message, "reasoning_content", None) or None,
        "content": message.content,
    }
