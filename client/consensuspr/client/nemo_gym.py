"""The reward service in NeMo Gym: a resources server that verifies rollouts, for NeMo-RL too.

::

    # resources_servers/consensus/app.py
    from consensuspr.client.nemo_gym import ConsensusResourcesServer

    if __name__ == "__main__":
        ConsensusResourcesServer.run_webserver()

with the settings of the reward beside ``entrypoint`` in its configuration::

    consensuspr: {address: "127.0.0.1:50051", reward: linear, alpha: 0.5}

A row names its problem in ``problem_id`` (or ``index`` with ``data_source``) and may have
``ground_truth``, ``nodes`` and ``epoch``.  A failure is an error of the request, never a reward.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import ConfigDict, Field

from consensuspr.client.training import RewardSettings, SampleScorer, ScoredSample, TrainingRow
from consensuspr.scoring.responses import END_OF_THINKING

# Figures of a sample in the reply.
_FIGURES = ("acc", "ncr", "ncr_raw", "guard", "num_nodes", "num_matched", "status")


class ConsensusConfig(BaseResourcesServerConfig):  # type: ignore[misc]  # NeMo Gym has no types
    """Configuration of the server, with the settings of the reward (docs/reference/settings.md)."""

    consensuspr: dict[str, Any] = Field(default_factory=dict)


class ConsensusVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]
    """A rollout with the columns of its row."""

    model_config = ConfigDict(extra="allow")


class ConsensusVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]
    """A reward, its parts (the same for all samples of a run) and the figures of its sample."""

    model_config = ConfigDict(extra="allow")

    reward_components: dict[str, float]


class ConsensusResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
    """Verifies rollouts by the reward service."""

    config: ConsensusConfig

    async def verify(self, body: ConsensusVerifyRequest) -> ConsensusVerifyResponse:
        """Return the reward of a rollout; errors are those of :meth:`SampleScorer.score`."""
        row = TrainingRow.of(body.model_extra or {}, None)
        response = "\n".join(_texts(body.response.output))
        usage = body.response.usage
        scored = await self._samples.score(row, response, usage.output_tokens if usage else None)
        fields = scored.fields()
        return ConsensusVerifyResponse(
            **body.model_dump(exclude=set(_FIGURES)),
            reward=scored.reward,
            reward_components=components(scored, self._samples.settings),
            **{name: fields[name] for name in _FIGURES},
        )

    @functools.cached_property
    def _samples(self) -> SampleScorer:
        missing = "NeMo Gym passes a verifier neither step nor epoch"
        return SampleScorer.of(self.config.consensuspr, "consensuspr", missing)


def _texts(output: Any) -> Iterator[str]:
    for item in output:
        if item.type == "reasoning":
            yield from (part.text for part in item.summary)
            yield END_OF_THINKING
        elif item.type == "message" and item.role == "assistant":
            for part in item.content:
                if part.type == "output_text":
                    yield part.text


def components(scored: ScoredSample, settings: RewardSettings) -> dict[str, float]:
    """Return what Acc and NCR add to a reward; their sum is the reward.

    A number that the user sets (``on_unscorable``, ``without_nodes``) is a separate part.
    """
    score, reward = scored.score, scored.reward
    numbers = {settings.on_unscorable, settings.without_nodes} - {"raise", "acc", None}
    parts = {"acc": 0.0, "ncr": 0.0, **({"unscorable": 0.0} if numbers else {})}
    if score.reward is None and reward in numbers:
        return parts | {"unscorable": reward}
    if score.ncr is None:  # worth its Acc
        return parts | {"acc": reward}
    return parts | settings.spec.terms(score.acc or 0.0, score.ncr, scored.epoch)
