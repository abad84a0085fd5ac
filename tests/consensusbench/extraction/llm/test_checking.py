"""Suggestions to candidates: the rollouts decide."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from consensusbench.extraction.llm import ClaimedNode, LlmSettings, check_nodes
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction
from consensuspr.data import Problem
from tests.consensusbench.extraction.llm.conftest import PENS, ROLLOUTS, node


def check(
    *nodes: dict[str, object],
    rollouts: tuple[CorrectRollout, ...] | list[CorrectRollout] = ROLLOUTS,
    problem: Problem = PENS,
    settings: LlmSettings | None = None,
) -> Extraction:
    claims = [ClaimedNode.model_validate(one) for one in nodes]
    return check_nodes(claims, problem, rollouts, settings or LlmSettings())


def texts(*responses: str) -> list[CorrectRollout]:
    return [CorrectRollout(str(i), f"m{i}", text) for i, text in enumerate(responses)]


def only(extraction: Extraction) -> Candidate:
    (candidate,) = extraction.candidates
    return candidate


def reasons(extraction: Extraction) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.reason, one.expressions) for one in extraction.dropped]


def test_a_supported_node_is_counted_by_the_rollouts() -> None:
    candidate = only(check(node("15*12=180", solutions=[1, 2, 3, 4, 5, 6, 7])))
    assert candidate == Candidate(
        label="15 \\times 12 = 180",
        type="equation",
        expressions=("15 \\times 12 = 180", "12*15 = 180"),
        derived=("180=15*12", "180=12*15"),
        support=3,
        num_models=2,
        position=median([11 / 70, 0.0, 8 / 55]),
        is_final=False,
    )


@pytest.mark.parametrize(
    ("claimed", "reason", "support"),
    [
        (node("7*8=56"), "unsupported", 0),
        (node("5*15=75"), "unsupported", 1),
        # The parts are there, the whole is not.
        (node("15*12=180=900"), "false", None),
        (node("pens = 15*12 = 180"), "unsupported", 0),
        (node("2+2=5"), "false", None),
        (node("15 boxes of 12 pens"), "in the problem", None),
        (node("so"), "no statement", None),
        (node("0", type="value"), "no statement", None),
        (node("$$"), "no statement", None),
        (node("15*12=180" + " " * 300 + "!"), "over the limit", None),
    ],
)
def test_what_is_no_node_is_dropped_with_its_reason(
    claimed: dict[str, object], reason: str, support: int | None
) -> None:
    extraction = check(claimed)
    assert extraction.candidates == ()
    (dropped,) = extraction.dropped
    assert (dropped.stage, dropped.reason, dropped.support) == ("extract", reason, support)
    assert dropped.detail


def test_the_audit_says_what_was_counted_and_what_was_claimed() -> None:
    (dropped,) = check(node("5*15=75", solutions=[1, 3])).dropped
    assert dropped == Dropped(
        "extract",
        "unsupported",
        "1 of 4 correct rollouts state it, the limit is 2; the model counted 2",
        "5*15=75",
        ("5*15=75",),
        1,
    )


def test_the_limit_of_support_is_a_setting() -> None:
    assert only(check(node("5*15=75"), settings=LlmSettings(min_support=1))).support == 1
    assert check(node("15*12=180"), settings=LlmSettings(min_support=4)).candidates == ()


def test_what_is_false_in_the_words_of_the_rollouts_is_false() -> None:
    rollouts = texts("so 12*50=6", "then 12*50=6.", "12*50% = 6")
    extraction = check(node("12*50%=6"), rollouts=rollouts[:2])
    assert extraction.candidates == ()
    assert [one.reason for one in extraction.dropped] == ["false"]
    candidate = only(
        check(node("12*50%=6"), rollouts=rollouts, settings=LlmSettings(min_support=1))
    )
    assert candidate.expressions == ("12*50% = 6",)


def test_rewritten_forms_are_kept_only_where_they_are_proved() -> None:
    rewritten = ["180 = 12 \\cdot 15", "90*2=180", "0=0", "15*12=179", "f(15,12)=180"]
    extraction = check(node("15*12=180", rewritten=rewritten))
    assert "180 = 12 \\cdot 15" in only(extraction).derived
    assert reasons(extraction) == [
        ("unverified wording", ("90*2=180", "0=0", "f(15,12)=180")),
        ("false wording", ("15*12=179",)),
    ]


def test_forms_beyond_the_core_are_proved_by_structure() -> None:
    rollouts = texts("2+3+4+5+6=20", "so 2+3+4+5+6=20")
    extraction = check(
        node("2+3+4+5+6=20", rewritten=["6+5+4+3+2=20", "10+10=20"]), rollouts=rollouts
    )
    assert only(extraction).derived[0] == "6+5+4+3+2=20"
    assert reasons(extraction) == [("unverified wording", ("10+10=20",))]


def test_a_rewritten_form_that_rollouts_write_is_a_wording() -> None:
    claimed = node("180*5=900", rewritten=["The total number is 900"])
    assert "The total number is 900" in only(check(claimed)).expressions


@pytest.mark.parametrize(
    ("wording", "reason"),
    [
        # Found wherever the conclusion is, and in other places.
        ("180", "partial wording"),
        ("180 pens", "partial wording"),
        ("15*12", "partial wording"),
        # Other conclusions, whatever the model says.
        ("5*180=900", "foreign wording"),
        ("5*15=75", "foreign wording"),
    ],
)
def test_wordings_that_do_not_belong_to_the_anchor_are_out(wording: str, reason: str) -> None:
    extraction = check(node("15*12=180", wording))
    assert only(extraction).expressions == ("15 \\times 12 = 180", "12*15 = 180")
    assert reasons(extraction) == [(reason, (wording,))]


def test_wordings_of_one_value_are_believed_to_be_one_conclusion() -> None:
    candidate = only(check(node("15*12=180", "a total of 180 pens")))
    assert candidate.expressions == ("15 \\times 12 = 180", "12*15 = 180", "a total of 180 pens")
    assert candidate.support == 3


def test_two_rollouts_with_nothing_in_common_do_not_make_a_node() -> None:
    rollouts = texts("so x=12 here", "and y=12 there", "nothing")
    claimed = node("x=12", "y=12", rewritten=["x=12=y", "x=y=12"])
    extraction = check(claimed, rollouts=rollouts)
    assert extraction.candidates == ()
    assert [one.reason for one in extraction.dropped] == ["unsupported"]


def test_a_proposition_needs_its_own_support() -> None:
    rollouts = texts(
        "Hence n is even, so n = 2k.", "We see that n is even. Thus n = 2k.", "n is even and big"
    )
    extraction = check(
        node("n is even", "n = 2k", type="proposition"),
        node("even and big", "so n is", type="proposition"),
        rollouts=rollouts,
    )
    candidate = only(extraction)
    # The equation is the anchor; the sentence stands beside it by its own support.
    assert candidate.label == "n = 2k"
    assert set(candidate.expressions) == {"n = 2k", "n is even"}
    assert candidate.support == 3


def test_the_final_answer_is_known_by_value() -> None:
    candidate = only(check(node("5*180=900", label="anything")))
    assert candidate.is_final
    assert not only(check(node("5*180=900"), problem=replace(PENS, ground_truth="90"))).is_final


def test_nodes_that_say_the_same_are_one() -> None:
    extraction = check(node("15*12=180"), node("180 = 12*15"))
    assert only(extraction).label == "15 \\times 12 = 180"
    assert [one.reason for one in extraction.dropped] == ["duplicate"]


def test_candidates_come_in_order_of_position() -> None:
    extraction = check(node("5*180=900"), node("15*12=180"))
    labels = [one.label for one in extraction.candidates]
    assert labels == ["15 \\times 12 = 180", "180 \\cdot 5 = 900"]
    assert extraction.candidates[0].position < extraction.candidates[1].position


def test_kinds_are_what_the_form_shows() -> None:
    rollouts = texts(*["We get x^2+1 and 1729, n is a prime number, x<5, x=7."] * 2)
    extraction = check(
        node("x^2+1", type="value"),
        node("1729", type="equation"),
        node("n is a prime number", type="value"),
        node("x=7", type="proposition"),
        node("x<5", type="equation"),
        rollouts=rollouts,
    )
    kinds = {one.label: one.type for one in extraction.candidates}
    assert kinds == {
        "x^2+1": "expression",
        "1729": "value",
        "n is a prime number": "proposition",
        "x<5": "proposition",
        "x=7": "equation",
    }


def test_sizes_are_bounded() -> None:
    settings = LlmSettings(max_nodes=2, max_wordings=3)
    many = node("15*12=180", *[f"x_{i}=180" for i in range(10)])
    extraction = check(many, node("5*180=900"), node("75*12=900"), settings=settings)
    assert len(extraction.candidates) == 2
    assert reasons(extraction) == [
        ("over the limit", ("75*12=900",)),
        ("unverified wording", ("x_0=180", "x_1=180")),
        ("overlong wording", tuple(f"x_{i}=180" for i in range(2, 10))),
    ]


def test_labels_and_wordings_of_the_audit_are_cut() -> None:
    (dropped,) = check(node("y" * 10_000, label="z" * 10_000)).dropped
    assert len(dropped.label) <= 512
    assert max(map(len, dropped.expressions)) <= 512


def test_many_spellings_do_not_push_out_the_anchor() -> None:
    responses = [f"so 15*12=180 and total {'o' * i} cost 180 now" for i in range(1, 6)]
    rollouts = texts(*responses)
    claimed = node("15*12=180", *[f"total {'o' * i} cost 180 now" for i in range(1, 6)])
    settings = LlmSettings(max_wordings=3)
    candidate = only(check(claimed, rollouts=rollouts, settings=settings))
    assert candidate.expressions[0] == "15*12=180"
    assert len(candidate.expressions) == 3
    assert candidate.support == 5
