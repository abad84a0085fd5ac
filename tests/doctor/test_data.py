"""What is said about problems without a reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from consensuspr.client.training import RewardSettings
from consensuspr.doctor.dataset_checks import Answers, Side, Survey, Tally, check_problems
from consensuspr.errors import Unavailable

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan


@pytest.fixture
def survey() -> Survey:
    """Two thousand rows of one file for each side."""
    made = Survey("{data_source}/{index}", "prompt", None)
    for count in made.sides.values():
        count.files, count.rows = 1, 2000
    return made


@pytest.fixture
def answers() -> dict[Side, Answers]:
    """One problem of each side has no reward."""
    return {
        side: Answers(asked=2000, known=1999, unscorable={"without nodes": Tally(1, "'p', here")})
        for side in Side
    }


def test_a_share_below_all_is_never_100_percent(
    survey: Survey, answers: dict[Side, Answers], lines: Lines
) -> None:
    for answer in answers.values():
        answer.unscorable = {}
    found = lines(check_problems(survey, answers, None, RewardSettings()))
    assert found[0].startswith("ok train problems: 1,999 (99.9 %) of 2,000 known to the server, ")


def test_what_the_trainer_does_is_said(
    survey: Survey, answers: dict[Side, Answers], plan: Plan, lines: Lines
) -> None:
    train, val = lines(check_problems(survey, answers, plan(), RewardSettings()))
    start = (
        "1 (0.1 %) of 2,000 have no reward under reward=linear: 1 without nodes (the first: 'p',"
        " here); "
    )
    assert train.startswith(f"FAIL train problems: {start}verl drops the sample and trains its")
    assert val.startswith(f"FAIL val problems: {start}validation goes on without them")
    old = plan({"trainer.use_v1": None})
    assert (
        "training stops at the first"
        in lines(check_problems(survey, answers, old, RewardSettings()))[0]
    )


def test_a_number_of_the_users_makes_it_a_warning(
    survey: Survey, answers: dict[Side, Answers], lines: Lines
) -> None:
    settings = RewardSettings(on_unscorable=-1.0)
    found = lines(check_problems(survey, answers, None, settings))
    assert [line.split()[0] for line in found] == ["warn", "warn"]
    assert "; they get on_unscorable=-1 →" in found[0]


def test_a_server_that_fails_in_the_middle(
    survey: Survey, answers: dict[Side, Answers], lines: Lines
) -> None:
    survey.server_error = Unavailable("it went away")
    assert lines(check_problems(survey, answers, None, RewardSettings())) == [
        f"FAIL {side} problems: the server failed while they were asked for: it went away → look"
        " at its log"
        for side in Side
    ]
