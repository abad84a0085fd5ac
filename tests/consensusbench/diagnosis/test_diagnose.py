"""What is usual, and all rollouts of a set together."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from consensusbench.evaluation.scored import ScoredRollout, ScoredSet
from consensusbench.quality.diagnose import Diagnosis, Reading, References, diagnose
from tests.consensusbench.diagnosis.conftest import facts, rollout


def test_the_usual_length_is_the_median_of_the_problem() -> None:
    lengths = (100, 200, 90_000)
    references = References([rollout("xx..", num_chars=size) for size in lengths])
    found = references.of(rollout())
    assert found is not None and found.in_tokens is None
    assert (found.in_chars.length, found.in_chars.per_node) == (200, 100)


def test_too_few_of_a_problem_fall_back_to_its_source() -> None:
    group = [rollout(num_chars=100, problem_id=f"p{n}", num_tokens=20) for n in range(3)]
    found = References(group).of(rollout(problem_id="p0"))
    assert found is not None and found.in_tokens is not None
    assert (found.in_chars.length, found.in_tokens.length) == (100, 20)
    assert References(group).of(rollout(problem_id="p0", data_source="other")) is None
    assert References(group[:2]).of(rollout(problem_id="p0")) is None


def test_rollouts_without_a_hit_say_nothing_of_the_length_per_node() -> None:
    group = [rollout("....", num_chars=100) for _ in range(3)] + [rollout("xxxx", num_chars=400)]
    found = References(group).of(rollout())
    assert found is not None
    assert (found.in_chars.length, found.in_chars.per_node) == (100, None)


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
    report = diagnose(ScoredSet({"p": facts()}, rollouts))
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
    report = diagnose(ScoredSet({"p": facts()}, rollouts))
    said = json.loads(json.dumps(report.to_json()))
    assert said["total"]["shares"]["sound"] == 4 / 8
    assert said["total"]["shares"]["unscored"] == 1 / 9
    [first, second] = said["groups"]
    assert (first["model"], first["shares"]["redundant_thinking"]) == ("m", 1 / 5)
    assert second["counts"]["unscored"] == 0
    assert said["thresholds"]["almost_ncr"] == 0.75


def test_readings_decide_over_scores(rollouts: list[ScoredRollout]) -> None:
    readings = [Reading(False, True)] * 4 + [Reading(None, None)] * 5
    report = diagnose(ScoredSet({"p": facts()}, rollouts), readings=readings)
    assert report.total == {Diagnosis.FORMAT_ERROR: 4, Diagnosis.UNSCORED: 5}


def test_format_errors_still_show_what_is_usual() -> None:
    # All are right in a way; the long one is held against them although none follows the rule.
    group = [rollout(num_chars=1000) for _ in range(3)] + [rollout(num_chars=5000)]
    readings = [Reading(False, True)] * 3 + [Reading(True, True)]
    report = diagnose(ScoredSet({"p": facts()}, group), readings=readings)
    assert report.verdicts[3].diagnosis is Diagnosis.REDUNDANT_THINKING


def test_examples_are_spread_over_a_class(rollouts: list[ScoredRollout]) -> None:
    report = diagnose(ScoredSet({"p": facts()}, rollouts))
    assert report.examples(Diagnosis.SOUND, 2) == [0, 2]
    assert report.examples(Diagnosis.SOUND, 9) == [0, 1, 2, 3]
    assert report.examples(Diagnosis.FORMAT_ERROR, 2) == []


def test_a_set_without_rollouts_has_no_shares() -> None:
    said = diagnose(ScoredSet({}, [])).to_json()
    assert said["total"]["shares"]["sound"] is None
