"""The reward in inspect_ai: a scorer for tasks, and for logs of evaluations.

::

    inspect score LOG --scorer consensuspr/nodes -S dataset_path=dataset.jsonl

A sample names its problem in its metadata (``problem_id``, or ``index`` with ``data_source``), else
by an id that is a text, else by the digest of its input.  Its target is the ground truth, unless it
has several.  The model's messages after the input are scored, as by ``consensusbench evaluate``.

An unknown value is NaN, which inspect_ai counts as unscored and leaves out of every metric.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from inspect_ai.model import ChatMessageAssistant
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from consensuspr.client.training import SampleScorer, TrainingRow, UnscorableSample, on_own_loop
from consensuspr.errors import RewardServiceError

# Unlike training, an evaluation accepts samples without nodes, does not wait for a server, and
# keeps the NCR of a response without a marked answer.
_DEFAULTS = {"max_unscorable": 1.0, "on_unavailable": "raise", "unanswered": "ncr"}
_VALUES = ("reward", "acc", "ncr")


@scorer(metrics={name: [mean(), stderr()] for name in _VALUES})  # type: ignore[untyped-decorator]
def nodes(**settings: Any) -> Scorer:
    """Return the scorer ``consensuspr/nodes``, whose values are ``reward``, ``acc`` and ``ncr``.

    Args:
        settings: of the reward (docs/reference/settings.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    samples = SampleScorer.of(
        {**_DEFAULTS, **settings}, "consensuspr/nodes", "inspect_ai passes a scorer no epoch"
    )

    async def score(state: TaskState, target: Target) -> Score:
        own = [
            message
            for message in state.messages
            if isinstance(message, ChatMessageAssistant) and message.source != "input"
        ]
        usage = state.output.usage
        work = samples.score(
            _row(state, target),
            "\n".join(map(_said, own)),
            usage.output_tokens or None if usage and len(own) == 1 else None,
        )
        try:
            # The epochs of a log may run on several loops, and a source belongs to one that stays.
            scored = await asyncio.wrap_future(on_own_loop(work))
            reward, found = scored.reward, scored.score
        except UnscorableSample as error:
            reward, found = None, error.score
        except RewardServiceError as error:
            return Score.unscored(reason="scoring_failed", explanation=str(error))
        values = dict(zip(_VALUES, (reward, found.acc, found.ncr), strict=True))
        known = {name: math.nan if value is None else value for name, value in values.items()}
        return Score(
            value=math.nan if set(values.values()) == {None} else known,
            answer=found.answer,
            explanation=found.message or None,
            reason=None if found.status == "OK" else str(found.status),
            metadata={
                "status": str(found.status),
                "num_nodes": found.num_nodes,
                "num_matched": found.num_matched,
                "guard": found.guard,
                "tpn": found.tpn,
            },
        )

    return score


def _row(state: TaskState, target: Target) -> TrainingRow:
    metadata = state.metadata or {}
    names = ("problem_id", "index", "data_source", "nodes", "budget")
    columns = {name: metadata.get(name) for name in names}
    if columns["problem_id"] is columns["index"] is None and isinstance(state.sample_id, str):
        columns["problem_id"] = state.sample_id
    columns["ground_truth"] = target[0] or None if len(target) == 1 else None
    return TrainingRow.of(columns, state.input_text)


def _said(message: ChatMessageAssistant) -> str:
    if isinstance(message.content, str):
        return message.content
    # The text of a thought ends in </think>.
    return "\n".join(part.text for part in message.content if part.type in ("reasoning", "text"))
