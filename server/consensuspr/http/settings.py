"""The settings of a run, which stand in the URL that a trainer posts to.

``/openrlhf?reward=linear&alpha=0.5&dataset=math``.  A setting that is misspelt, given twice or
without effect is rejected, so that no run trains on an unintended reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import CodeCredit, NcrKind, RewardKind, RewardSpec, Unanswered
from consensuspr.scoring.types import MAX_UINT32, AnswerRule, OnUndecided, ScoreOptions

M = TypeVar("M", bound=BaseModel)
_Epoch = Annotated[int, Field(ge=0, le=MAX_UINT32)]

_OF_REWARD = {
    "alpha", "switch_epoch", "guard", "statements", "final_nodes", "ncr", "after_think", "code",
    "unanswered",
}  # fmt: skip
_OF_SCORING = {"epoch", "dataset", "run", "expect_digest", "answer_rule", "on_undecided"}
# Settings that only one reward or one trainer uses.
_BELONGS_TO = {
    "alpha": RewardKind.LINEAR,
    "switch_epoch": RewardKind.CURRICULUM,
    "epoch": RewardKind.CURRICULUM,
    "scores": "openrlhf",
    "reply": "slime",
}


class UrlSettings(BaseModel):
    """The settings of a URL.

    Attributes:
        on_unscorable: reward of a rollout that cannot be scored; None: the request fails.
        scores: the value for OpenRLHF's dynamic filtering.
        reply: the form of slime's reply.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward: RewardKind = RewardKind.LINEAR
    alpha: FiniteFloat = 0.5
    switch_epoch: _Epoch = 1
    epoch: _Epoch = 0
    guard: bool = True
    statements: bool = True
    final_nodes: bool = True
    ncr: NcrKind = NcrKind.PLAIN
    after_think: bool = False
    code: CodeCredit = CodeCredit.WRITTEN
    unanswered: Unanswered = Unanswered.NCR
    dataset: str | None = None
    run: str | None = None
    expect_digest: str | None = None
    answer_rule: AnswerRule | None = None
    on_undecided: OnUndecided = OnUndecided.COUNT_WRONG
    on_unscorable: FiniteFloat | None = None
    scores: Literal["reward", "acc"] = "reward"
    reply: Literal["object", "number"] = "object"

    def options(self) -> ScoreOptions:
        """Return how to score.

        Raises:
            InputError: a value is out of its range.
        """
        formula = {"unanswered": Unanswered.in_training(self.reward), **self._given(_OF_REWARD)}
        return ScoreOptions(RewardSpec(self.reward, **formula), **self._given(_OF_SCORING))

    def _given(self, names: set[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names & self.model_fields_set}


def read_settings(query: Sequence[tuple[str, str]], shape: str) -> UrlSettings:
    """Read the query of a URL for requests of one shape, ``openrlhf`` or ``slime``.

    Raises:
        InputError: a setting is unknown, given twice, has no effect, or a value is wrong.
    """
    given = dict(query)
    if len(given) < len(query):
        raise InputError("a setting is in the URL twice")
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
    """Return a value as a model; the first error is one sentence that calls the value ``name``.

    Raises:
        InputError: it does not fit.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = name + ".".join(map(str, first["loc"]))
        got = "" if first["type"] == "missing" else f", got {str(first['input'])[:80]!r}"
        raise InputError(f"{place}: {first['msg']}{got}") from None
