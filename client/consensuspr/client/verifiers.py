"""The reward service in verifiers, and with it in prime-rl: a reward for any taskset.

::

    # rewards.py
    from consensuspr.client.verifiers import consensus_reward

    consensus = consensus_reward(address="127.0.0.1:50051", reward="linear", alpha=0.5)

and in the configuration, here of a taskset of prime-rl's environment::

    [env.taskset.task.rewards.consensus]
    fn = "rewards.py:consensus"

With the policy's tokenizer, node rewards are also placed on the tokens that reached the nodes (step
credit, experimental).  prime-rl takes no algorithm by configuration, so add one to its ``algo``::

    for trace, advantages in zip(traces, step_advantages(traces), strict=True):
        assign_advantages(trace, advantages)

A failure is raised: verifiers records it on the trace, and prime-rl does not train on the trace.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from consensuspr.client.training import INFO_COLUMNS, METRICS, SampleScorer, TrainingRow
from consensuspr.client.training.credit import BETWEEN, compare_group, finder_of_turns, place_reward
from consensuspr.client.training.figures import MEANS
from consensuspr.errors import InputError
from consensuspr.scoring.responses import said_by_policy

TraceReward: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, float]]

_BY_TOKEN = "by_token"


def consensus_reward(
    *, ground_truth_field: str = "ground_truth", tokenizer: Any = None, **settings: Any
) -> TraceReward:
    """Return a reward to plug into tasks, ``(task, trace) -> float``.

    It records ``consensuspr/acc``, ``consensuspr/ncr``, … as metrics of the trace, and all figures
    in ``trace.info["consensuspr"]``.

    Args:
        ground_truth_field: of the task's data; by default it may be absent.
        tokenizer: the policy's.  The text of the sampled tokens is then scored, and their rewards
            are in ``trace.info["consensuspr"]["by_token"]``.
        settings: of the reward (docs/reference/settings.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    samples = SampleScorer.of(
        settings, "consensus_reward", "verifiers passes a reward neither step nor epoch"
    )

    async def consensus(task: Any, trace: Any) -> float:
        row = _row(task, ground_truth_field)
        turns = [] if tokenizer is None else _sampled(trace)
        info: dict[str, Any] = {}
        if turns:
            decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
            texts = await asyncio.to_thread(lambda: [decode(ids) for ids in turns])
            size = sum(map(len, turns))
            scored = await samples.score(row, BETWEEN.join(texts), size, spans=True)
            weight = samples.settings.spec.ncr_weight(scored.epoch)
            firsts = itertools.accumulate(map(len, turns), initial=0)
            find = finder_of_turns(list(zip(firsts, turns, strict=False)), texts, decode)
            placed = await asyncio.to_thread(
                place_reward, scored.reward, scored.score, weight, find, np.ones(size)
            )
            info[_BY_TOKEN] = sorted(placed.items())
        else:
            response = said_by_policy([_message(message) for message in trace.assistant_messages])
            scored = await samples.score(row, response, trace.num_output_tokens or None)
        fields = scored.fields()
        for name in MEANS:
            if fields[name] is not None:
                trace.record_metric(f"{METRICS}/{name}", fields[name])
        trace.info[METRICS] = {**fields, "epoch": scored.epoch, **info}
        return scored.reward

    return consensus


def step_advantages(traces: Sequence[Any], *, by_std: bool = True) -> list[list[float]]:
    """Return the advantages of each trace's sampled tokens, the traces being one group.

    A trace without rewards by token (of an evaluation, of another reward) has its reward at its
    end, and so has the part of other rewards.

    Args:
        traces: with a reward each.
        by_std: divide by the standard deviation of their rewards, as GRPO does.

    Raises:
        InputError: a trace has other tokens than those on which its reward was placed.
    """
    sizes = [sum(map(len, _sampled(trace))) for trace in traces]
    rewards = np.zeros((len(traces), max([*sizes, 1])))
    for row, (trace, size) in enumerate(zip(traces, sizes, strict=True)):
        if not size:
            continue
        for token, amount in trace.info.get(METRICS, {}).get(_BY_TOKEN, ()):
            if token >= size:
                raise InputError(
                    f"trace {trace.id} has {size} sampled tokens, and a reward was placed on"
                    f" number {token}"
                )
            rewards[row, token] = amount
        rewards[row, size - 1] += trace.reward - rewards[row].sum()
    policy = np.arange(rewards.shape[1]) < np.array(sizes)[:, None]
    with_tokens = [row for row, size in enumerate(sizes) if size]
    advantages = np.zeros_like(rewards)
    advantages[with_tokens] = compare_group(rewards[with_tokens], policy[with_tokens], by_std)
    return [advantages[row, :size].tolist() for row, size in enumerate(sizes)]


def _sampled(trace: Any) -> list[list[int]]:
    """Return the tokens that the policy sampled, by message, in the order in which they train."""
    trained = {id(node) for branch in trace.branches if branch.trainable for node in branch.nodes}
    turns = [
        [token for token, own in zip(node.token_ids, node.mask, strict=True) if own]
        for node in trace.nodes
        if id(node) in trained
    ]
    return [turn for turn in turns if turn]


def _row(task: Any, ground_truth_field: str) -> TrainingRow:
    """Return the row of a task."""
    names = (*INFO_COLUMNS, "data_source", ground_truth_field)
    columns = {name: getattr(task, name, None) for name in names}
    if columns["problem_id"] is None:
        columns["problem_id"] = task.id
    return TrainingRow.of(columns, task.prompt_text or None, ground_truth_field)


def _message(message: Any) -> Mapping[str, Any]:
    return {
        "role": "assistant",
        "reasoning_content": getattr(message, "reasoning_content", None) or None,
        "content": message.content,
    }
