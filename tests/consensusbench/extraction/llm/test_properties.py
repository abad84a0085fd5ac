"""No reply, whatever it says, makes a node that the rollouts do not state."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.llm import LlmSettings, MalformedReplyError, check_nodes, read_reply
from consensusbench.extraction.statements import (
    Truth,
    group_same,
    normal_form,
    read_wording,
    truth_of,
)
from consensusbench.extraction.types import CorrectRollout
from consensusbench.llm import Reply
from consensuspr.core import Matcher
from consensuspr.data import Problem

# Pieces that rollouts and replies are both made of, so that they meet often, in ways that
# glue, split and contradict each other.
PIECES = (
    "x=12", "12=x", "y=12", "x=12=y", "x=y", "3*4=12", "4*3=12", "12=4*3", "3*4=13", "2+2=5",
    "12", "x", "12 pens", "a total of 12 pens", "n is even", "so", "15 boxes", "z<5", "5>z",
    "\\frac{1}{2}", "0.5", "=12", "3*4", "x=12 and y=12", "", "$$", "(", "}",
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=4).map(", ".join) | st.sampled_from(PIECES)
wordings = st.lists(texts | st.text(max_size=12), max_size=5)
nodes = st.fixed_dictionaries(
    {
        "label": texts,
        "type": st.sampled_from(["equation", "value", "proposition", "expression"]),
        "expressions": wordings,
        "rewritten": wordings,
        "solutions": st.lists(st.integers()),
    }
)
replies = st.lists(nodes, max_size=5).map(lambda given_ones: json.dumps({"nodes": given_ones}))
rollout_lists = st.lists(
    st.builds(CorrectRollout, st.just("r"), st.sampled_from(["m", "n"]), texts), max_size=5
)
PROBLEM = Problem("p", ground_truth="12", problem="There are 15 boxes.")


@given(replies | st.text(), rollout_lists, st.integers(1, 3))
def test_every_candidate_is_stated_by_enough_rollouts(
    text: str, rollouts: list[CorrectRollout], min_support: int
) -> None:
    try:
        claims = read_reply(Reply(text, "m", "stop"), 100_000)
    except MalformedReplyError:
        return
    settings = LlmSettings(min_support=min_support)
    extraction = check_nodes(claims, PROBLEM, rollouts, settings)
    for candidate in extraction.candidates:
        matcher = Matcher([[*candidate.expressions, *candidate.derived]])
        stated_by = [one for one in rollouts if matcher.match(one.response)[0]]
        assert candidate.support == len(stated_by) >= min_support
        assert candidate.num_models == len({one.model for one in stated_by})
        assert 0.0 <= candidate.position <= 1.0
        for expression in (candidate.label, *candidate.expressions):
            alone = Matcher([[expression]])
            assert any(alone.match(one.response)[0] for one in rollouts)
            assert truth_of(expression) is not Truth.FALSE
        assert _largest_class(candidate.expressions, rollouts) >= min_support
    assert len(extraction.candidates) + len(extraction.dropped) >= len(claims)
    again = check_nodes(claims, PROBLEM, rollouts, settings)
    assert again == extraction


def _largest_class(expressions: tuple[str, ...], rollouts: list[CorrectRollout]) -> int:
    """Return how many rollouts state one and the same thing, provably."""
    wordings_read = [read_wording(text) for text in expressions]
    best = 0
    for members in group_same(wordings_read):
        forms: list[str] = []
        for index in members:
            one = wordings_read[index]
            forms += [one.text] if one.is_chain else [one.text, *one.derived]
        matcher = Matcher([forms])
        best = max(best, sum(matcher.match(one.response)[0] for one in rollouts))
    return best


@given(replies, rollout_lists)
def test_derived_forms_are_equal_to_an_expression(
    text: str, rollouts: list[CorrectRollout]
) -> None:
    try:
        claims = read_reply(Reply(text, "m", "stop"), 100_000)
    except MalformedReplyError:
        return
    for candidate in check_nodes(claims, PROBLEM, rollouts, LlmSettings()).candidates:
        read: list[Any] = [read_wording(expression) for expression in candidate.expressions]
        by_core = {normal_form(form) for one in read for form in one.derived}
        for form in candidate.derived:
            proved = len(group_same([*read, read_wording(form)])) < 1 + len(group_same(read))
            assert proved or normal_form(form) in by_core
