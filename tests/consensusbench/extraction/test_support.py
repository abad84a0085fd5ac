"""Support is what the matcher finds, with the words that stand there."""

from __future__ import annotations

import pytest

from consensusbench.extraction import support
from consensusbench.extraction.support import beyond, find_mentions, reach_of
from consensusbench.extraction.types import CorrectRollout


def rollouts(*texts: str, models: str = "") -> list[CorrectRollout]:
    names = models or "m" * len(texts)
    return [CorrectRollout(f"r{i}", names[i], text) for i, text in enumerate(texts)]


def test_support_models_and_position() -> None:
    given = rollouts("x=5 and more", "nothing here", "so 5 = x", "x=55", models="abac")
    mentions = find_mentions([(["x=5", "5=x"], []), (["y=1"], [])], given)
    assert [mention.rollout for mention in mentions[0]] == [0, 2]
    reach = reach_of(mentions[0], given)
    assert (reach.support, reach.num_models) == (2, 1)
    assert reach.position == pytest.approx((0 + 3 / 8) / 2)
    assert mentions[1] == []
    assert reach_of(mentions[1], given).support == 0


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("We get $15 \\times 12 = 180$ here", "15 \\times 12 = 180"),
        ("**15 * 12 = 180**", "15 * 12 = 180"),
        ("15 cups * $12 = $180", "15 cups * $12 = $180"),
        # What stands there alone would be an open bracket.
        ("(15)*(12) = \\boxed{180}", "15*12=180"),
        ("15*12 =" + " " * 500 + "180", "15*12=180"),
    ],
)
def test_wordings_are_what_the_rollout_says(text: str, wording: str) -> None:
    assert find_mentions([(["15*12=180"], [])], rollouts(text))[0][0].wording == wording


def test_derived_forms_reach_no_equal_equation() -> None:
    # Read as an equation of L, the form is L = 1, as that of any other amount of litres.
    forms = ["1652 + 2223 = 3875 L"], ["2223+1652=3875*L"]
    assert find_mentions([forms], rollouts("9*247 = 2223 L")) == [[]]
    assert beyond("9*247 = 2223 L", *forms) == tuple(map(tuple, forms))
    equal = find_mentions([(["4x-3y=7/2+4k"], [])], rollouts("so $8x-6y=8k+7$"))[0]
    assert [mention.wording for mention in equal] == ["4x-3y=7/2+4k"]


def test_many_groups_are_searched_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    given = rollouts("a=1, b=2, c=3")
    groups: list[support.Group] = [([text], ()) for text in ("a=1", "b=9", "c=3")]
    whole = find_mentions(groups, given)
    monkeypatch.setattr(support, "MAX_MATCHER_CHARS", 4)
    assert find_mentions(groups, given) == whole
    assert [len(mentions) for mentions in whole] == [1, 0, 1]
