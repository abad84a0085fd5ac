"""Settings in the URL."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from consensuspr.errors import InputError
from consensuspr.http.adapters import RequestSettings, read_settings
from consensuspr.scoring import AnswerRule, OnUndecided, RewardSpec
from consensuspr.scoring.types import ScoreOptions

CHOICES = {"reply": ("object", "number")}
TRAINED_BY = RewardSpec.linear(unanswered="zero")


def settings_of(query: str) -> RequestSettings:
    return read_settings(parse_qsl(query, keep_blank_values=True), CHOICES)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", ScoreOptions(TRAINED_BY)),
        ("unanswered=ncr&code=computed", ScoreOptions(RewardSpec.linear(code="computed"))),
        (
            "reward=linear&alpha=0.25",
            ScoreOptions(RewardSpec.linear(0.25, unanswered="zero")),
        ),
        ("reward=max", ScoreOptions(RewardSpec.maximum(unanswered="zero"))),
        ("reward=outcome", ScoreOptions(RewardSpec.outcome())),
        ("reward=curriculum&epoch=0", ScoreOptions(RewardSpec.curriculum(1), epoch=0)),
        (
            "reward=curriculum&epoch=3&switch_epoch=2",
            ScoreOptions(RewardSpec.curriculum(2), epoch=3),
        ),
        (
            "dataset=math&answer_rule=dapo&on_undecided=mask",
            ScoreOptions(
                TRAINED_BY,
                dataset="math",
                answer_rule=AnswerRule.DAPO,
                on_undecided=OnUndecided.MASK,
            ),
        ),
    ],
)
def test_how_a_batch_is_scored(query: str, options: ScoreOptions) -> None:
    settings = settings_of(query)
    assert settings.options == options
    assert (settings.on_unscorable, settings.choices) == (None, {"reply": "object"})


def test_the_settings_of_a_shape_and_the_number_for_what_cannot_be_scored() -> None:
    settings = settings_of("reply=number&on_unscorable=-1.5")
    assert (settings.on_unscorable, settings.choices) == (-1.5, {"reply": "number"})


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("rewrad=linear", "unknown setting 'rewrad' in the URL; there are reward, alpha"),
        ("reward=linear&reward=linear", "the setting 'reward' is in the URL twice"),
        ("reward=Linear", "reward must be one of linear, max, curriculum, outcome, got 'Linear'"),
        ("alpha=1.5", "alpha must be a number in [0, 1], got 1.5"),
        ("alpha=nan", "alpha must be a finite number, got 'nan'"),
        ("alpha=", "alpha must be a finite number, got ''"),
        ("reward=max&alpha=0.5", "alpha has no effect with reward=max, only with linear"),
        ("epoch=1", "epoch has no effect with reward=linear, only with curriculum"),
        ("reward=curriculum", "reward=curriculum needs epoch=N in the URL"),
        ("reward=curriculum&epoch=-1", "epoch must be a whole number in [0, 4294967295], got '-1'"),
        ("reward=curriculum&epoch=1.0", "epoch must be a whole number"),
        ("reward=curriculum&epoch=٣", "epoch must be a whole number"),
        ("reward=curriculum&epoch=99999999999999", "epoch must be a whole number"),
        ("reward=curriculum&epoch=0&switch_epoch=x", "switch_epoch must be a whole number"),
        ("answer_rule=boxd", "answer_rule must be one of auto, dapo, boxed, gsm8k, got 'boxd'"),
        ("on_undecided=drop", "on_undecided must be one of count_wrong, mask, got 'drop'"),
        ("on_unscorable=inf", "on_unscorable must be a finite number, got 'inf'"),
        ("on_unscorable=raise", "on_unscorable must be a finite number, got 'raise'"),
        ("reply=text", "reply must be one of object, number, got 'text'"),
    ],
)
def test_what_is_refused(query: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings_of(query)
    assert sentence in str(error.value)
