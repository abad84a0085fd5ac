"""Each class by a rollout made for it, and each threshold from both sides."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from consensusbench.evaluation.scored import ScoredRollout, ScoredSet
from consensusbench.quality.diagnose import (
    DEFAULT_THRESHOLDS,
    Diagnosis,
    Reading,
    Reference,
    References,
    Thresholds,
    Usual,
    classify,
    diagnose,
    example_rows,
)
from consensuspr.scoring.types import Status
from tests.consensusbench.quality.conftest import rollout

# A right rollout of the problem usually has 1,000 characters and 250 to a node.
USUAL: dict[str, Usual] = {"characters": Usual(1000, 250)}


def diagnosed(
    hits: str = "xxxx",
    *,
    final: str = "...F",
    right: bool | None = True,
    lenient: bool | None = None,
    reference: Reference | None = USUAL,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    **changes: Any,
) -> Diagnosis:
    reading = Reading(right, right if lenient is None else lenient)
    scored = rollout(hits, final=final, **changes)
    return classify(scored, reading, reference, thresholds).diagnosis


@pytest.mark.parametrize(
    ("hits", "final", "diagnosis"),
    [
        # Of the nodes without the final answer three quarters have to be hit.
        ("xxx.", "...F", Diagnosis.ALMOST_CORRECT),
        ("xx..", "...F", Diagnosis.WRONG),
        ("xxx..", "....F", Diagnosis.ALMOST_CORRECT),
        ("xx...", "....F", Diagnosis.WRONG),
        # A final node that was hit by the way does not lift a wrong rollout.
        ("xx.x", "...F", Diagnosis.WRONG),
        # One hit is no path, even where it is all that there is to hit.
        ("x.", ".F", Diagnosis.WRONG),
        ("xx", ".F", Diagnosis.ALMOST_CORRECT),
        # Where every node states the answer, they are all that there is.
        ("xx", "FF", Diagnosis.ALMOST_CORRECT),
        ("....", "...F", Diagnosis.WRONG),
    ],
)
def test_wrong_rollouts(hits: str, final: str, diagnosis: Diagnosis) -> None:
    assert diagnosed(hits, final=final, right=False, acc=0.0) is diagnosis


def test_what_lists_everything_is_wrong_though_it_hits_all_nodes() -> None:
    assert diagnosed("xxxx", right=False, acc=0.0) is Diagnosis.ALMOST_CORRECT
    assert diagnosed("xxxx", right=False, acc=0.0, guard=0.05) is Diagnosis.WRONG


@pytest.mark.parametrize("hits", ["xxxx", "....", "xxx."])
def test_a_right_answer_that_the_rule_does_not_see_is_a_format_error(hits: str) -> None:
    assert diagnosed(hits, right=False, lenient=True, acc=0.0) is Diagnosis.FORMAT_ERROR


@pytest.mark.parametrize(
    ("hits", "final", "num_chars", "diagnosis"),
    [
        ("....", "...F", 100, Diagnosis.DIRECT_ANSWER),  # 25 characters a node
        ("....", "...F", 101, Diagnosis.SOUND),
        (".", ".", 60, Diagnosis.DIRECT_ANSWER),  # or 60 in all
        (".", ".", 61, Diagnosis.SOUND),
        # The final answer alone is no path; one node of three on the way to it is.
        ("...x", "...F", 50, Diagnosis.DIRECT_ANSWER),
        ("x..x", "...F", 50, Diagnosis.SOUND),
        ("x....x", ".....F", 50, Diagnosis.DIRECT_ANSWER),  # 0.2 is still low
    ],
)
def test_direct_answers(hits: str, final: str, num_chars: int, diagnosis: Diagnosis) -> None:
    assert diagnosed(hits, final=final, num_chars=num_chars) is diagnosis


@pytest.mark.parametrize(
    ("hits", "num_chars", "diagnosis"),
    [
        ("xxxx", 4000, Diagnosis.REDUNDANT_THINKING),  # 1,000 a node, 4 times the length
        ("xxxx", 3999, Diagnosis.SOUND),
        ("xx..", 2000, Diagnosis.SOUND),  # 1,000 a node, but only twice the length
        ("....", 9000, Diagnosis.SOUND),  # no node, no length per node
    ],
)
def test_redundant_by_length_per_node(hits: str, num_chars: int, diagnosis: Diagnosis) -> None:
    assert diagnosed(hits, num_chars=num_chars) is diagnosis


def test_tokens_count_where_they_are_known() -> None:
    both = USUAL | {"tokens": Usual(100, 25)}
    redundant = Diagnosis.REDUNDANT_THINKING
    assert diagnosed(reference=both, num_chars=1000, num_tokens=400) is redundant
    assert diagnosed(reference=USUAL, num_chars=1000, num_tokens=400) is Diagnosis.SOUND
    assert diagnosed(reference=both, num_chars=9000, num_tokens=100) is Diagnosis.SOUND


@pytest.mark.parametrize(
    ("end", "diagnosis"),
    [(500, Diagnosis.REDUNDANT_THINKING), (501, Diagnosis.SOUND)],
)
def test_redundant_by_what_follows_the_final_node(end: int, diagnosis: Diagnosis) -> None:
    spans = ((0, 9), None, None, (end - 9, end))
    assert diagnosed("x..x", num_chars=2500, spans=spans) is diagnosis
    # Without a final node that was hit there is no end to go on after.
    assert diagnosed("x...", num_chars=2500, spans=(*spans[:3], None)) is Diagnosis.SOUND


def test_nothing_is_redundant_where_nothing_is_usual() -> None:
    assert diagnosed(num_chars=10**6, reference=None) is Diagnosis.SOUND


@pytest.mark.parametrize("changes", [{"status": Status.NO_NODES}, {"right": None}])
def test_unscored_rollouts(changes: dict[str, Any]) -> None:
    assert diagnosed(**changes) is Diagnosis.UNSCORED


def test_the_usual_length_is_the_median_of_the_problem() -> None:
    lengths = (100, 200, 90_000)
    references = References([rollout("xx..", num_chars=size) for size in lengths])
    found = references.of(rollout())
    assert found == {"characters": Usual(200, 100)}


def test_too_few_of_a_problem_fall_back_to_its_source() -> None:
    group = [rollout(num_chars=100, problem_id=f"p{n}", num_tokens=20) for n in range(3)]
    found = References(group).of(rollout(problem_id="p0"))
    assert found is not None
    assert (found["characters"].length, found["tokens"].length) == (100, 20)
    assert References(group).of(rollout(problem_id="p0", data_source="other")) is None
    assert References(group[:2]).of(rollout(problem_id="p0")) is None


@pytest.fixture
def rollouts() -> list[ScoredRollout]:
    sound = [rollout(num_chars=size) for size in (900, 1000, 1100, 1000)]
    return [
        *sound,
        rollout(num_chars=30_000),
        rollout("....", num_chars=20, model="n"),
        rollout("xxx.", acc=0.0, model="n"),
        rollout("....", acc=0.0, model="n"),
        rollout("xxxx", acc=0.0, answer_method="budget"),
    ]


def test_rollouts_are_counted_by_model_and_source(rollouts: list[ScoredRollout]) -> None:
    report = diagnose(ScoredSet({}, rollouts))
    assert report.groups == {
        ("m", "sums"): Counter(
            {Diagnosis.SOUND: 4, Diagnosis.REDUNDANT_THINKING: 1, Diagnosis.UNSCORED: 1}
        ),
        ("n", "sums"): Counter(
            {Diagnosis.DIRECT_ANSWER: 1, Diagnosis.ALMOST_CORRECT: 1, Diagnosis.WRONG: 1}
        ),
    }
    assert report.total.total() == len(rollouts)


def test_shares_are_of_what_was_scored(rollouts: list[ScoredRollout]) -> None:
    report = diagnose(ScoredSet({}, rollouts))
    result = json.loads(json.dumps(report.to_json()))
    assert result["total"]["shares"]["sound"] == 4 / 8
    assert result["total"]["shares"]["unscored"] == 1 / 9
    [first, second] = result["groups"]
    assert (first["model"], first["shares"]["redundant_thinking"]) == ("m", 1 / 5)
    assert second["counts"]["unscored"] == 0
    assert result["thresholds"]["almost_ncr"] == 0.75


def test_readings_decide_over_scores(rollouts: list[ScoredRollout]) -> None:
    readings = [Reading(False, True)] * 4 + [Reading(None, None)] * 5
    report = diagnose(ScoredSet({}, rollouts), readings=readings)
    assert report.total == {Diagnosis.FORMAT_ERROR: 4, Diagnosis.UNSCORED: 5}


def test_format_errors_still_show_what_is_usual() -> None:
    # All are right in a way; the long one is held against them although none follows the rule.
    group = [rollout(num_chars=1000) for _ in range(3)] + [rollout(num_chars=5000)]
    readings = [Reading(False, True)] * 3 + [Reading(True, True)]
    report = diagnose(ScoredSet({}, group), readings=readings)
    assert report.verdicts[3].diagnosis is Diagnosis.REDUNDANT_THINKING


def test_examples_are_spread_over_a_class(rollouts: list[ScoredRollout]) -> None:
    for at, one in enumerate(rollouts):
        rollouts[at] = replace(one, rollout_id=str(at))
    scored = ScoredSet({}, rollouts)
    report = diagnose(scored)
    for count, chosen in ((2, ["0", "2"]), (9, ["0", "1", "2", "3"])):
        examples = example_rows(scored, report, count)
        assert [row["rollout_id"] for row in examples["sound"]] == chosen
    assert examples["format_error"] == []
