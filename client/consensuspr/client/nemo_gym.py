"""The reward service in NeMo Gym: a resources server that verifies rollouts, for NeMo-RL too.

::

    # resources_servers/consensus/app.py
    from consensuspr.client.nemo_gym import ConsensusResourcesServer

    if __name__ == "__main__":
        ConsensusResourcesServer.run_webserver()

with the settings of the reward beside ``entrypoint`` in its configuration::

    consensuspr: {address: "127.0.0.1:50051", reward: linear, alpha: 0.5}

A row names its problem in ``problem_id`` (or ``index`` with ``data_source``) and may have
``ground_truth``, ``nodes`` and ``epoch``.  A rollout that cannot be scored comes back with
``mask_sample``, ``failure_kind`` and ``failure_reason``, so that nothing trains on it.  It is an
error of the request in NeMo Gym before 0.7, whose response has no such fields.  A wrong setting or
row is always an error of the request: every rollout would have it.
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

from consensuspr.client.training import (
    RewardSettings,
    SampleScorer,
    ScoredSample,
    TrainingRow,
    UnscorableSample,
)
from consensuspr.client.training.source import AWAY
from consensuspr.errors import DeadlineExceeded, RewardServiceError, Unavailable
from consensuspr.scoring.responses import END_OF_THINKING

# Figures of a sample in the reply.
_FIGURES = ("acc", "ncr", "ncr_raw", "guard", "num_nodes", "num_matched", "status")
# In NeMo Gym's vocabulary; the status of a sample is a kind of ours.
_KINDS = {Unavailable: "transport_unreachable", DeadlineExceeded: "transport_timeout"}
# Since version 0.7.  Whoever does not know the field would train on the reward of a failure.
_HAS_MASK = "mask_sample" in BaseVerifyResponse.model_fields


class ConsensusConfig(BaseResourcesServerConfig):  # type: ignore[misc]  # NeMo Gym has no types
    """Configuration of the server, with the settings of the reward (docs/reference/settings.md)."""

    consensuspr: dict[str, Any] = Field(default_factory=dict)


class ConsensusVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]
    """A rollout with the columns of its row."""

    model_config = ConfigDict(extra="allow")


class ConsensusVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]
    """A reward, its parts (the same for all samples of a run) and the figures of its sample.

    With ``mask_sample``, do not train on the reward: its 0.0 only satisfies the schema.
    """

    model_config = ConfigDict(extra="allow")

    reward_components: dict[str, float]


class ConsensusResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
    """Verifies rollouts by the reward service."""

    config: ConsensusConfig

    async def verify(self, body: ConsensusVerifyRequest) -> ConsensusVerifyResponse:
        """Return the reward of a rollout, or why it has none.

        Raises:
            InputError: a setting or the row is wrong.
            RewardServiceError: the server rejects the request.
            TooManyUnscorable: the dataset is not the one of the rows, so that the run ends.
            UnscorableSample: the rollout has no reward, and NeMo Gym is older than 0.7; it then
                also raises ``Unavailable``, ``Overloaded`` and ``DeadlineExceeded``.
        """
        row = TrainingRow.of(body.model_extra or {}, None)
        response = "\n".join(_texts(body.response.output))
        usage = body.response.usage
        settings = self._samples.settings
        # Without the failure of an earlier verdict.
        reply = body.model_dump(exclude={"mask_sample", "failure_kind", "failure_reason"})
        try:
            scored = await self._samples.score(
                row, response, usage.output_tokens if usage else None
            )
        except (UnscorableSample, *AWAY) as error:
            if not _HAS_MASK:
                raise
            reply |= dict.fromkeys(_FIGURES) | failure(error, reply.get("instance_config"))
            return ConsensusVerifyResponse(**reply | {"reward_components": no_parts(settings)})
        fields = scored.fields()
        reply |= {"reward": scored.reward} | {name: fields[name] for name in _FIGURES}
        return ConsensusVerifyResponse(
            **reply | {"reward_components": components(scored, settings)}
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
    parts = no_parts(settings)
    if score.reward is None and reward in (settings.on_unscorable, settings.without_nodes):
        return parts | {"unscorable": reward}
    if score.ncr is None:  # worth its Acc
        return parts | {"acc": reward}
    return parts | settings.spec.terms(score.acc or 0.0, score.ncr, scored.epoch)


def no_parts(settings: RewardSettings) -> dict[str, float]:
    """Return the parts of a reward, each 0."""
    named = {settings.on_unscorable, settings.without_nodes} - {"raise", "acc", None}
    return {"acc": 0.0, "ncr": 0.0, **({"unscorable": 0.0} if named else {})}


def failure(
    error: UnscorableSample | RewardServiceError, instance_config: Any = None
) -> dict[str, Any]:
    """Return the fields of a rollout without a reward, which keep training off it.

    Args:
        error: why it has none.
        instance_config: of the row.
    """
    if isinstance(error, UnscorableSample):
        status = str(error.status)
        kind = f"consensuspr:{status.lower()}"
    else:
        status, kind = None, _KINDS.get(type(error), "verifier_error")
    own = instance_config if isinstance(instance_config, dict) else {}
    return {
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": kind,
        "failure_reason": str(error),
        "status": status,
        # Where NeMo RL reads the flag; at the top it does not yet (its issue 4061).
        "instance_config": own | {"mask_sample": True},
    }
