"""The values of scoring: how options are checked, and rows of files turned into them and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consensuspr.client import InlineNode, Score, ScoredBatch
from consensuspr.core import Matcher
from consensuspr.data import open_writer, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import (
    SCORED_TYPES,
    AnswerRule,
    AnswerStatus,
    OnUndecided,
    RewardSpec,
    Rollout,
    ScoreOptions,
    Scorer,
    Status,
    Verdict,
    rollout_from_row,
    scored_row,
)
from tests.score_logs import IDENTITY

ROWS: list[dict[str, Any]] = [
    {"problem_id": "duck", "response": "9*2=18 RIGHT", "num_tokens": 12, "model": "m", "answer": 3},
    {"problem_id": "absent", "response": "r", "status": "an older one"},
    {"problem_id": "absent", "response": "RIGHT", "ground_truth": "1", "rollout_id": "r9"},
]


def test_a_row_becomes_the_rollout_that_it_describes() -> None:
    assert rollout_from_row(ROWS[0]) == Rollout("duck", "9*2=18 RIGHT", num_tokens=12)
    expected = Rollout("absent", "RIGHT", ground_truth="1", rollout_id="r9")
    assert rollout_from_row(ROWS[2]) == expected


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_scored_rows_carry_the_columns_of_the_rollouts(
    tmp_path: Path, scorer: Scorer, name: str
) -> None:
    scores, _ = scorer.score([rollout_from_row(row) for row in ROWS])
    with open_writer(tmp_path / name, SCORED_TYPES) as out:
        for row, score in zip(ROWS, scores, strict=True):
            out.write(scored_row(row, score))
    first, second, third = read_rollouts(tmp_path / name)
    assert (first["model"], first["answer"], first["num_tokens"]) == ("m", 3, 12)
    assert first["matched"] == [False, True, False]
    assert (first["acc"], first["ncr"], first["tpn"]) == (1.0, 1 / 3, 12.0)
    assert (first["num_nodes"], first["num_matched"]) == (3, 1)
    assert first["extracted_answer"] == scores[0].answer is not None
    assert (first["reward"], first["status"]) == (0.5 + 0.5 / 3, "OK")
    assert second["status"] == Status.UNKNOWN_PROBLEM
    assert [second[key] for key in ("acc", "ncr", "tpn", "reward")] == [None] * 4
    assert second["matched"] == []
    assert (third["rollout_id"], third["acc"], third["reward"]) == ("r9", 1.0, None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"reward": "lineer"},
            "reward must be 'linear', 'max', 'curriculum', 'outcome' or a RewardSpec, got 'lineer'",
        ),
        (
            {"reward": 0.5},
            "reward must be 'linear', 'max', 'curriculum', 'outcome' or a RewardSpec, got 0.5",
        ),
        ({"epoch": -1}, "epoch must be a number in [0, 4294967295], got -1"),
        ({"epoch": 2**32}, "epoch must be a number in [0, 4294967295], got 4294967296"),
        ({"epoch": 0.5}, "epoch must be a number in [0, 4294967295], got 0.5"),
        (
            {"reward": RewardSpec.curriculum(2**32)},
            "switch_epoch must be a number in [0, 4294967295], got 4294967296",
        ),
        (
            {"answer_rule": "exact"},
            "answer_rule must be one of auto, dapo, boxed, gsm8k, got 'exact'",
        ),
        ({"on_undecided": "drop"}, "on_undecided must be one of count_wrong, mask, got 'drop'"),
        ({"run": "ü" * 65}, "run must have at most 128 bytes, got 130"),
        ({"run": "a\nb"}, "run must be printable text, got 'a\\nb'"),
        ({"run": 7}, "run must be str, got int"),
        (
            {"expect_digest": "sha256:AB"},
            "expect_digest must be sha256: and 64 hex digits, got 'sha256:AB'",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        ScoreOptions.checked(**{"reward": RewardSpec.linear(), **arguments})
    assert str(caught.value) == sentence


def test_names_stand_for_members_and_whole_numbers_for_epochs() -> None:
    options = ScoreOptions.checked(
        "max",
        np.int64(3),  # type: ignore[arg-type]
        "",
        answer_rule="dapo",
        on_undecided="mask",
    )
    assert options.reward == RewardSpec.maximum()
    assert (type(options.epoch), options.epoch, options.dataset) == (int, 3, None)
    assert options.answer_rule is AnswerRule.DAPO
    assert options.on_undecided is OnUndecided.MASK


LONG = "9*2=18 " * 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (RewardSpec.linear(), "RewardSpec.linear(alpha=0.5)"),
        (RewardSpec.maximum(guard=False), "RewardSpec.maximum(guard=False)"),
        (
            RewardSpec.curriculum(unanswered="zero"),
            "RewardSpec.curriculum(switch_epoch=1, unanswered='zero')",
        ),
        (
            Rollout("p", "short", num_tokens=3),
            "Rollout(problem_id='p', response='short', num_tokens=3)",
        ),
        (
            Rollout("p", LONG, nodes=[InlineNode(["a"])] * 9),
            f"Rollout(problem_id='p', response='{LONG[:27]}...{LONG[-28:]}', nodes=<9 InlineNode>)",
        ),
        (
            Rollout("p", LONG.encode()),
            f"Rollout(problem_id='p', response=b'{LONG[:26]}...{LONG[-28:]}')",
        ),
        (
            Score(Status.OK, 0.1 + 0.2, 0.0, 0.6, 5, 3, (True,) * 5, guard=1.0, answer="110"),
            "Score(status='OK', reward=0.3, acc=0.0, ncr=0.6, num_nodes=5, num_matched=3,"
            " answer='110')",
        ),
        (
            Score(Status.UNKNOWN_PROBLEM, message="no such problem"),
            "Score(status='UNKNOWN_PROBLEM', message='no such problem')",
        ),
        (
            ScoreOptions(RewardSpec.outcome(), 3),
            "ScoreOptions(reward=RewardSpec.outcome(), epoch=3)",
        ),
        (
            Verdict(True, "18", AnswerStatus.DECIDED, "equal"),
            "Verdict(correct=True, answer='18', status='DECIDED', method='equal')",
        ),
        (Matcher([["9*2=18"], ["16-3-4=9"]]), "Matcher(2 nodes, 2 patterns)"),
        (
            ScoredBatch([Score(Status.OVERSIZE)] * 6, IDENTITY),
            f"[{', '.join([str(Score(Status.OVERSIZE))] * 4)}, ... 2 more]",
        ),
    ],
)
def test_values_are_shown_in_short(value: object, text: str) -> None:
    assert repr(value) == text
