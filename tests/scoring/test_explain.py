"""An explanation agrees with the score and names what was found where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consensuspr.core import normalize
from consensuspr.scoring import (
    InlineNode,
    NodeExplanation,
    RewardSpec,
    Rollout,
    ScoreOptions,
    Scorer,
    Status,
)


def test_nodes_with_their_hits(real_scorer: Scorer) -> None:
    response = "α: 16 - 3 - 4 = 9, then $2 \\cdot 9 = 18$. Answer: 18"
    explanation = real_scorer.explain(Rollout("duck", response))
    left, money, never = explanation.nodes
    assert left == NodeExplanation(
        "left", "eggs left", True, False, left.span, "16-3-4=9", ("16-3-4=9",)
    )
    assert left.span is not None
    assert response[slice(*left.span)] == "16 - 3 - 4 = 9"
    assert (money.matched, money.is_final) == (True, True)
    assert (money.expression, money.expressions) == ("2*9=18", ("9*2=18",))
    assert money.span is not None
    assert response[slice(*money.span)] == "2 \\cdot 9 = 18"
    assert never == NodeExplanation("never", "out of reach", False, False, None, "", ("y=777",))
    assert explanation.normal_form == normalize(response)
    assert explanation.score.spans == (left.span, money.span, None)


@pytest.mark.parametrize(
    "rollout",
    [
        Rollout("duck", "9*2=18 RIGHT", num_tokens=9),
        Rollout("duck", b"9*2=18 HARD"),
        Rollout("open", "x=66"),
        Rollout("bare", "RIGHT"),
        Rollout("absent", "RIGHT"),
        Rollout("duck", "x=55", nodes=[["x=55"]]),
        Rollout("duck", "x=55", nodes=[[]]),
        Rollout("duck", "CRASH"),
    ],
)
def test_the_score_is_that_of_score(scorer: Scorer, rollout: Rollout) -> None:
    for options in (
        ScoreOptions(RewardSpec.curriculum()),
        ScoreOptions.checked(RewardSpec.curriculum(), 1, answer_rule="boxed", on_undecided="mask"),
    ):
        explanation = scorer.explain(rollout, options)
        (score,), identity = scorer.score([rollout], replace(options, include_spans=True))
        assert explanation.score == score
        assert explanation.identity == identity
        assert [node.matched for node in explanation.nodes] == list(score.matched)
        assert [node.span for node in explanation.nodes] == list(score.spans or ())


def test_inline_nodes_are_explained_by_name(scorer: Scorer) -> None:
    nodes: list[InlineNode | list[str]] = [InlineNode(["x=55"], "mine", derived=["55=x"]), ["y=66"]]
    explanation = scorer.explain(Rollout("duck", "so 55 = x", nodes=nodes))
    found = [(n.node_id, n.matched, n.expression, n.expressions) for n in explanation.nodes]
    assert found == [("mine", True, "55=x", ("x=55",)), ("n2", False, "", ("y=66",))]


def test_what_has_no_nodes_still_shows_its_normal_form(scorer: Scorer) -> None:
    for rollout in (Rollout("bare", "x = 5"), Rollout("absent", "x = 5")):
        explanation = scorer.explain(rollout)
        assert (explanation.nodes, explanation.normal_form) == ((), "x=5")


def test_an_oversize_response_is_not_even_normalised(scorer: Scorer) -> None:
    rollout = Rollout("duck", b"7" * (17 << 20))
    explanation = scorer.explain(rollout)
    assert explanation.score.status is Status.OVERSIZE
    assert (explanation.nodes, explanation.normal_form) == ((), "")
