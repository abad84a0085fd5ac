"""Overrides as a user writes them, and as Hydra gets them."""

from __future__ import annotations

import pytest

from consensuspr.errors import InputError
from consensuspr.launch.recipes import Overrides, hydra_list, hydra_text


def together(*groups: list[str]) -> list[str]:
    overrides = Overrides()
    for group in groups:
        overrides.add(group)
    return overrides.arguments()


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (["a=1", "b=2"], ["a=3"], ["a=3", "b=2"]),
        (["a=1"], ["c.d=x", "c.d=y"], ["a=1", "c.d=y"]),
        (["+x.y=1"], ["x.y=2"], ["+x.y=2"]),
        (["x.y=1"], ["++x.y=2"], ["++x.y=2"]),
        (["x.y=1"], ["~x.y"], ["~x.y"]),
        (["+x.y=1"], ["~x.y"], []),
        ([], ["a=b=c d"], ["a=b=c d"]),
        ([], ["trainer.logger=[console,wandb]"], ["trainer.logger=[console,wandb]"]),
        (
            ["+reward.reward_kwargs.alpha=0.5"],
            ["reward.reward_kwargs.alpha=0.3"],
            ["+reward.reward_kwargs.alpha=0.3"],
        ),
        ([], ["++reward.reward_kwargs.timeout_s=5"], ["+reward.reward_kwargs.timeout_s=5"]),
    ],
)
def test_the_later_override_of_a_key_stands(
    ours: list[str], theirs: list[str], wanted: list[str]
) -> None:
    assert together(ours, theirs) == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alpha", "must be KEY=VALUE, got 'alpha'"),
        ("--alpha=1", "must be KEY=VALUE"),
        ("", "must be KEY=VALUE"),
        ("reward.reward_kwargs={alpha:1}", "set each setting of the reward separately"),
        ("~reward.reward_kwargs.alpha", "set reward.reward_kwargs.alpha to another value"),
    ],
)
def test_what_is_no_override_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        together([text])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("/data/train.parquet", "/data/train.parquet"),
        ("a b", "'a b'"),
        ("it's", r"'it\'s'"),
        ("back\\", r"'back\\'"),
        ("True", "'True'"),
        ("1e5", "'1e5'"),
        ("", "''"),
    ],
)
def test_a_text_stays_a_text(text: str, written: str) -> None:
    """What Hydra makes of it is tested where there is one: tests/deploy."""
    assert hydra_text(text) == written


def test_one_file_is_a_text_and_several_are_a_list() -> None:
    assert hydra_list(["a"]) == "a"
    assert hydra_list(["a", "b c"]) == "[a,'b c']"


def test_values_are_read_without_their_quotes() -> None:
    overrides = Overrides()
    overrides.add(["a='x y'", "b.c=1", "b.d=null", "~e"])
    assert [overrides.value(key) for key in ("a", "b.c", "e", "f")] == ["x y", "1", None, None]
    assert overrides.below("b") == {"c": "1", "d": "null"}
