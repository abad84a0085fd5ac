"""The reward service in OpenRLHF as a function, beside the HTTP endpoint.

::

    # reward.py
    from consensuspr.client.openrlhf import reward_function

    reward_func = reward_function(address="127.0.0.1:50051", reward="linear", alpha=0.5)

and ``--reward.remote_url reward.py`` (``--remote_rm_url`` up to 0.10).  Beyond what HTTP gives: a
server that is away is waited for or replaced (``dataset_path``), and a score log.  Labels name
problems as they do over HTTP; a label may also hold ``epoch`` and ``global_step``.  Nothing of
OpenRLHF is imported.

A failure is raised.  OpenRLHF mentions it among its notes, leaves that rollout without a reward and
ends when it makes experience of it, with an error that has no reason: so the reason is logged here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from consensuspr.client.training import (
    RewardSettings,
    SampleScorer,
    ScoredSample,
    UnscorableSample,
    labelled_row,
    on_own_loop,
    together,
)
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.events import EventLog
from consensuspr.scoring.responses import after_prompt, without_special_tokens

logger = logging.getLogger(__name__)

RewardFunction = Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]

# Of a score's fields, what the training log gets: numbers only.
_CURVES = ("acc", "ncr", "ncr_raw", "guard", "num_nodes", "num_matched")


def reward_function(
    *, scores: Literal["reward", "acc"] = "reward", **settings: Any
) -> RewardFunction:
    """Return a function for OpenRLHF, which calls it in threads.

    Args:
        scores: what dynamic filtering decides by.
        settings: of the reward, as everywhere (docs/train.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    if scores not in ("reward", "acc"):
        raise InputError(f"scores must be one of reward, acc, got {scores!r}")
    samples = SampleScorer(
        RewardSettings.of(settings, "reward_function"),
        missing="OpenRLHF tells a reward neither step nor epoch",
    )

    events = EventLog(logger)

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]
    ) -> dict[str, Any]:
        try:
            scored = on_own_loop(
                together(
                    samples.score(labelled_row(label, {}, prompt), _response(query, prompt))
                    for query, prompt, label in zip(queries, prompts, labels, strict=True)
                )
            ).result()
            decides = [_decides(one, scores) for one in scored]
        except ConsensusPRError as error:
            events.report("no reward", f"OpenRLHF gets no reward for a rollout: {error}")
            raise
        curves = {name: [_curve(one, name) for one in scored] for name in _CURVES}
        curves["unscorable"] = [float(one.score.reward is None) for one in scored]
        return {
            "rewards": [one.reward for one in scored],
            "scores": decides,
            "extra_logs": curves,
        }

    return reward_func


def _response(query: str, prompt: str) -> str:
    response = after_prompt(query, prompt)
    if response is None:
        raise InputError("the query does not hold its prompt, so the response is unknown")
    return without_special_tokens(response)


def _curve(scored: ScoredSample, name: str) -> float:
    """Return a point of a curve, which has to be a number: 0 is unknown, of the guard 1.

    ``num_nodes`` and ``unscorable`` tell what is.
    """
    value = getattr(scored.score, name)
    return (1.0 if name == "guard" else 0.0) if value is None else float(value)


def _decides(scored: ScoredSample, by: str) -> float:
    """Return what dynamic filtering decides by; the user's own number where there is no score."""
    score = scored.score
    if by == "reward" or score.reward is None:
        return scored.reward
    if score.acc is None:
        raise UnscorableSample(score.status, f"scores=acc: a sample with {score.status} has no Acc")
    return score.acc
