"""The settings of a run, which stand in the URL that a trainer posts to.

``/openrlhf?reward=linear&alpha=0.5&dataset=math``.  A setting that is misspelt, given twice or
without effect is rejected, so that no run trains on an unintended reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from consensuspr.errors import InputError
from consensuspr.scoring.reward_options import OF_ONE_REWARD, Epoch, RewardOptions
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import ScoreOptions

M = TypeVar("M", bound=BaseModel)

# Settings that only one reward or one trainer uses.
_BELONGS_TO = {**OF_ONE_REWARD, "scores": "openrlhf", "reply": "slime"}


class UrlSettings(RewardOptions):
    """Settings of a URL."""

    epoch: Epoch = Field(
        0,
        description="Epoch of the curriculum, from 0: requests do not carry it, so run each stage"
        " as a run of its own.",
    )
    dataset: str | None = Field(None, description="Name of the dataset, if the server has several.")
    run: str | None = Field(None, description="Name of this run, for its fair share and metrics.")
    expect_digest: str | None = Field(
        None, description="Digest that the dataset must have; else the code is 412."
    )
    on_unscorable: FiniteFloat | None = Field(
        None, description="Reward of a rollout that cannot be scored; not set: the request fails."
    )
    scores: Literal["reward", "acc"] = Field(
        "reward", description="OpenRLHF only: value that its dynamic filtering uses."
    )
    reply: Literal["object", "number"] = Field(
        "object", description="slime only: an object, or the reward alone."
    )

    def options(self) -> ScoreOptions:
        """Return how to score; raise InputError if a value is out of its range."""
        names = ("epoch", "dataset", "run", "expect_digest", "answer_rule", "on_undecided")
        return ScoreOptions(self.spec, **{name: getattr(self, name) for name in names})


def read_settings(query: Sequence[tuple[str, str]], shape: str) -> UrlSettings:
    """Read the query of a URL for requests of one shape, ``openrlhf`` or ``slime``."""
    given = dict(query)
    if len(given) < len(query):
        raise InputError("the URL has a setting twice")
    settings = validated(UrlSettings, given, "setting ")
    for name in settings.model_fields_set:
        if _BELONGS_TO.get(name, shape) not in (shape, settings.reward):
            raise InputError(
                f"{name} has no effect on /{shape} with reward={settings.reward}, only with"
                f" {_BELONGS_TO[name]}"
            )
    if settings.reward is RewardKind.CURRICULUM and "epoch" not in given:
        raise InputError(
            "reward=curriculum needs epoch=N in the URL: the request does not carry the epoch"
        )
    return settings


def validated(model: type[M], value: object, name: str) -> M:
    """Return a value as a model, or raise one sentence that calls the value ``name``."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = name + ".".join(map(str, first["loc"]))
        got = "" if first["type"] == "missing" else f", got {str(first['input'])[:80]!r}"
        raise InputError(f"{place}: {first['msg']}{got}") from None
