"""Right scores pass, wrong ones are named, undecided ones are no lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import LocalClient, Rollout, Score, Status
from consensuspr.loadtest.load import Target
from consensuspr.loadtest.result import ScoreCheck, check_samples
from consensuspr.loadtest.stats import ScoreSample
from consensuspr.scoring.types import Limits

Samples = list[ScoreSample]

ROLLOUTS = (
    Rollout("ducks", "16-3-4=9 and 9*2=18. \\boxed{18}", num_tokens=30),
    Rollout("ducks", "16-3-4=9. \\boxed{17}", rollout_id="second"),
    Rollout("bare", "Answer: 5"),
    Rollout("nobody", "Answer: 5"),
)


@pytest.fixture
def samples(dataset: Path) -> Samples:
    """The right score of each rollout."""
    with LocalClient(dataset) as local:
        return [ScoreSample(n, score) for n, score in enumerate(local.score(ROLLOUTS))]


def check(samples: Samples, target: Target) -> ScoreCheck:
    # The name is the server's; in process there is one dataset, whatever it is called.
    options = replace(target.options, dataset="small")
    return check_samples(samples, ROLLOUTS, replace(target, options=options))


def test_right_scores_are_equal(samples: Samples, target: Target) -> None:
    assert check(samples * 3, target) == ScoreCheck(compared=12)


@pytest.mark.parametrize(
    ("field", "lie", "shown"),
    [
        ("reward", 0.75, "0.75"),
        ("acc", 1.0, "1.0"),
        ("ncr", 1.0, "1.0"),
        ("num_nodes", 3, "3"),
        ("num_matched", 2, "2"),
        ("matched", (False, True), "(False, True)"),
        ("tpn", 7.0, "7.0"),
        ("answer", "18", "'18'"),
        ("status", Status.UNKNOWN_PROBLEM, "UNKNOWN_PROBLEM"),
        ("reward", None, "None"),
    ],
)
def test_a_wrong_score_is_named(
    samples: Samples, target: Target, field: str, lie: Any, shown: str
) -> None:
    samples[1] = ScoreSample(1, replace(samples[1].score, **{field: lie}))
    checked = check(samples, target)
    assert (checked.compared, checked.wrong) == (4, 1)
    assert checked.first is not None and checked.first.field == field
    said = str(checked.first)
    assert f"the server says {field}={shown}," in said
    assert "rollout 2 of those sent, rollout_id 'second', problem 'ducks'" in said


def test_the_first_wrong_one_of_several_is_named(samples: Samples, target: Target) -> None:
    bent = [ScoreSample(s.position, replace(s.score, reward=0.123)) for s in reversed(samples)]
    checked = check(bent, target)
    assert checked.wrong == 4
    assert checked.first is not None and checked.first.rollout.startswith("rollout 1 ")


UNDECIDED: dict[str, Any] = {"status": Status.ANSWER_UNDECIDED, "acc": 0.0, "reward": 0.5}


@pytest.mark.parametrize("method", ["load", "deadline", "symbolic"])
def test_an_undecided_answer_is_no_lie(samples: Samples, target: Target, method: str) -> None:
    samples[0] = ScoreSample(0, replace(samples[0].score, **UNDECIDED, answer_method=method))
    checked = check(samples, target)
    assert (checked.compared, checked.wrong, checked.undecided) == (4, 0, 1)
    assert (checked.unanswered, checked.unanswered_share) == (1, 0.25)


def test_what_nobody_can_decide_is_not_held_against_the_server(
    samples: Samples, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided(local: LocalClient, rollouts: list[Rollout], *_: Any, **__: Any) -> list[Score]:
        return [replace(samples[0].score, **UNDECIDED) for _ in rollouts]

    monkeypatch.setattr(LocalClient, "score_with", undecided)
    checked = check([ScoreSample(0, replace(samples[0].score, **UNDECIDED)), samples[0]], target)
    assert (checked.wrong, checked.undecided, checked.unanswered) == (0, 2, 0)


@pytest.mark.parametrize(
    ("checked", "says"),
    [
        (ScoreCheck(280), "280 scores compared with the in-process scorer: all equal"),
        (ScoreCheck(280, undecided=80), "scorer: 200 in full, 80 nodes only; no difference"),
        (ScoreCheck(280, undecided=280), "scorer: 0 in full, 280 nodes only; no difference"),
        (ScoreCheck(9, wrong=2, undecided=3), "scorer: 6 in full, 3 nodes only; 2 WRONG"),
        (ScoreCheck(9, wrong=2), "scorer: 2 WRONG"),
    ],
)
def test_says_what_was_compared(checked: ScoreCheck, says: str) -> None:
    assert str(checked).endswith(says)


def test_the_nodes_of_an_undecided_answer_are_compared(samples: Samples, target: Target) -> None:
    bent = replace(samples[0].score, **UNDECIDED, answer_method="load", num_matched=1)
    checked = check([ScoreSample(0, bent)], target)
    assert checked.wrong == 1
    assert checked.first is not None and checked.first.field == "num_matched"


def test_a_defect_of_the_server_is_counted_elsewhere(samples: Samples, target: Target) -> None:
    failed = replace(samples[0].score, status=Status.INTERNAL, reward=None, acc=None)
    assert check([ScoreSample(0, failed), samples[1]], target) == ScoreCheck(compared=1, skipped=1)


def test_the_limits_are_those_of_the_server(target: Target) -> None:
    refused = [ScoreSample(0, Score(Status.OVERSIZE, num_nodes=2))]
    assert check(refused, target).wrong == 1
    with LocalClient(target.dataset, limits=Limits(max_response_bytes=10)) as local:
        refused = [ScoreSample(0, local.score(ROLLOUTS[:1])[0])]
    assert refused[0].score.status is Status.OVERSIZE
    small = replace(target, info=replace(target.info, max_response_bytes=10))
    assert check(refused, small) == ScoreCheck(compared=1)


def test_nothing_to_check(target: Target) -> None:
    assert check([], target) == ScoreCheck()
