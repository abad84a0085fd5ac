"""What a caller gets for a batch: values, order, identity, refusals, deadlines, explanations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core import match_batch, normalize
from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest, UnknownDataset
from consensuspr.scoring import (
    AnswerRule,
    AnswerStatus,
    AnswerVerifier,
    DatasetIndex,
    Limits,
    RewardSpec,
    Rollout,
    Score,
    ScoreOptions,
    Scorer,
    Status,
    Verdict,
)
from consensuspr.scoring.types import NodeExplanation, OnUndecided

LINEAR = RewardSpec.linear()
GOOD = "She has 16 - 3 - 4 = 9 eggs and makes 9 * 2 = $18. The answer is \\boxed{18}."


def score_one(scorer: Scorer, rollout: Rollout, **kwargs: Any) -> Score:
    kwargs.setdefault("reward", LINEAR)
    (score,), _ = scorer.score([rollout], ScoreOptions(**kwargs))
    return score


def test_a_right_answer_with_two_of_three_nodes(real_scorer: Scorer) -> None:
    score = score_one(real_scorer, Rollout("duck", GOOD, num_tokens=42))
    assert score == Score(
        Status.OK,
        reward=0.5 + 0.5 * (2 / 3),
        acc=1.0,
        ncr=2 / 3,
        num_nodes=3,
        num_matched=2,
        matched=(True, True, False),
        tpn=21.0,
        answer="18",
        answer_method=score.answer_method,
        ncr_raw=2 / 3,
        guard=1.0,
        channel_numbers=bytes((2, 2, 0)),
    )
    assert score.answer_method != ""


@pytest.mark.parametrize("response", ["", b"", "   \n"])
def test_an_empty_response_is_ok_and_worth_nothing(
    real_scorer: Scorer, response: str | bytes
) -> None:
    score = score_one(real_scorer, Rollout("duck", response, num_tokens=5))
    assert (score.status, score.acc, score.ncr, score.reward) == (Status.OK, 0.0, 0.0, 0.0)
    assert (score.tpn, score.answer) == (None, None)
    assert score.matched == (False, False, False)


@pytest.mark.parametrize(
    "response",
    [
        b"\xff\xfe 9 * 2 = 18 \x80", b"9*2=18\0\0\0", "\0" * 1000 + " 9*2=18",
        "\ud800 9 * 2 = 18 \udfff",
    ],
)  # fmt: skip
def test_broken_text_is_scored_for_what_it_holds(
    real_scorer: Scorer, response: str | bytes
) -> None:
    score = score_one(real_scorer, Rollout("duck", response))
    assert (score.status, score.matched) == (Status.OK, (False, True, False))


def test_order_is_kept_and_equal_counts_give_equal_floats(scorer: Scorer) -> None:
    texts = ["9*2=18 RIGHT", "", "16-3-4=9", "y=777 WRONG", "16-3-4=9, 2*9=18, y=777"]
    batch = [Rollout("duck", texts[number % 5], rollout_id=str(number)) for number in range(500)]
    scores, _ = scorer.score(batch)
    assert [score.num_matched for score in scores] == [1, 0, 1, 1, 3] * 100
    assert {score.ncr for score in scores} == {0.0, 1 / 3, 1.0}
    assert np.std([score.ncr or 0.0 for score in scores if score.num_matched == 1]) == 0.0


PIECES = st.lists(
    st.sampled_from(["16-3-4=9", "9 * 2 = $18", "x=55", "\\boxed{18}", "####", " ", "\n"])
    | st.text(max_size=6)
)
ROLLOUTS = st.builds(
    Rollout,
    problem_id=st.sampled_from(["duck", "bare", "open", "nothing", "absent"]),
    response=PIECES.map(" ".join) | st.binary(max_size=40),
    ground_truth=st.none() | st.sampled_from(["18", "", "x"]),
    num_tokens=st.none() | st.integers(-2, 50),
    nodes=st.none() | st.lists(st.lists(st.sampled_from(["x=55", "9*2=18", "", "$$"]))),
)


@given(st.lists(ROLLOUTS, max_size=8), st.integers(0, 1))
def test_any_batch_is_scored_consistently(
    real_scorer: Scorer, batch: list[Rollout], epoch: int
) -> None:
    for spec in (LINEAR, RewardSpec.maximum(), RewardSpec.curriculum(), RewardSpec.outcome()):
        scores, _ = real_scorer.score(batch, ScoreOptions(spec, epoch, include_spans=True))
        assert len(scores) == len(batch)
        for rollout, score in zip(batch, scores, strict=True):
            assert score == score_one(
                real_scorer, rollout, reward=spec, epoch=epoch, include_spans=True
            )
            assert score.status is not Status.INTERNAL
            assert score.num_matched == sum(score.matched) <= score.num_nodes
            if score.ncr is not None:
                assert score.ncr == score.num_matched / score.num_nodes
                assert [span is not None for span in score.spans or ()] == list(score.matched)
            acc = np.nan if score.acc is None else score.acc
            ncr = np.nan if score.ncr is None else score.ncr
            if score.reward is not None:
                assert score.reward == spec.compute([acc], [ncr], epoch)[0]
                assert 0.0 <= score.reward <= 1.0
            if score.status is Status.OK:
                assert None not in (score.acc, score.ncr, score.reward)


@pytest.mark.parametrize("response", ["ééé 9 * 2 = 18", "ééé 9 * 2 = 18".encode()])
def test_spans_are_code_points_of_the_response(scorer: Scorer, response: str | bytes) -> None:
    score = score_one(scorer, Rollout("duck", response), include_spans=True)
    assert score.spans == (None, (4, 14), None)
    assert score_one(scorer, Rollout("duck", response)).spans is None


def test_the_rollout_overrides_the_dataset(scorer: Scorer, scripted: Any) -> None:
    score_one(scorer, Rollout("duck", "r", ground_truth="99"))
    score_one(scorer, Rollout("duck", "r", ground_truth="  "))
    score_one(scorer, Rollout("duck", "r"))
    assert [truth for truth, _ in scripted.seen] == ["99", "18", "18"]
    score = score_one(scorer, Rollout("duck", "x=55", nodes=[["x=55"], ["x=66"]]))
    assert score.matched == (True, False)


# --- identity


def other_set(folder: Path, row: str) -> DatasetIndex:
    (folder / "set.jsonl").write_text(row)
    return DatasetIndex.load(folder / "set.jsonl")


def test_the_rule_is_that_of_the_request_else_of_the_dataset(
    tmp_path: Path, scripted: Any, dataset: DatasetIndex
) -> None:
    ruled = other_set(tmp_path, '{"problem_id": "p", "answer_rule": "gsm8k"}\n')
    scorer = Scorer({"ruled": ruled, "free": dataset}, verifier=scripted)
    for name, asked, applied in [
        ("ruled", None, AnswerRule.GSM8K),
        ("ruled", AnswerRule.BOXED, AnswerRule.BOXED),
        ("ruled", AnswerRule.AUTO, AnswerRule.AUTO),
        ("free", None, AnswerRule.AUTO),
        ("free", AnswerRule.DAPO, AnswerRule.DAPO),
    ]:
        rollout = Rollout("p", "r", ground_truth="1")
        _, identity = scorer.score([rollout], ScoreOptions(dataset=name, answer_rule=asked))
        assert (identity.dataset, identity.answer_rule) == (name, applied)
        assert scripted.seen[-1] == ("1", applied.value)


# --- refusals


def test_an_unknown_dataset_names_those_that_exist(dataset: DatasetIndex, scripted: Any) -> None:
    scorer = Scorer({"b": dataset, "a": dataset}, verifier=scripted)
    with pytest.raises(UnknownDataset) as caught:
        scorer.score([], ScoreOptions(dataset="c"))
    assert str(caught.value) == "no dataset is called 'c'; known datasets: a, b"
    with pytest.raises(InvalidRequest) as refused:
        scorer.score([])
    assert str(refused.value) == "dataset is required, because there are several: a, b"


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"response": None}, "rollouts[1].response must be str or bytes, got NoneType"),
    ({"problem_id": 7}, "rollouts[1].problem_id must be str, got int"),
    ({"ground_truth": 18}, "rollouts[1].ground_truth must be str or None, got int"),
    ({"num_tokens": 1.5}, "rollouts[1].num_tokens must be int or None, got float"),
    ({"nodes": 5}, "rollouts[1].nodes must be a sequence or None, got int"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "sentence"), BAD_FIELDS)
def test_a_field_of_a_wrong_type_is_the_callers_error(
    scorer: Scorer, fields: dict[str, Any], sentence: str
) -> None:
    bad = Rollout(**{"problem_id": "duck", "response": "", **fields})
    with pytest.raises(InputError) as caught:
        scorer.score([Rollout("duck", ""), bad])
    assert str(caught.value) == sentence


def test_a_scorer_needs_a_dataset(scripted: Any, dataset: DatasetIndex) -> None:
    with pytest.raises(InputError, match="at least one dataset"):
        Scorer({}, verifier=scripted)
    with pytest.raises(InputError, match="threads must be 0 or more, got -1"):
        Scorer({"default": dataset}, verifier=scripted, threads=-1)


# --- deadlines


def test_a_deadline_that_has_passed_starts_no_work(scorer: Scorer, scripted: Any) -> None:
    with pytest.raises(DeadlineExceeded) as caught:
        scorer.score([Rollout("duck", "")] * 3, deadline=time.monotonic() - 1)
    assert "of a batch of 3" in str(caught.value)
    assert scripted.seen == []


def test_the_deadline_is_looked_at_between_portions(
    scorer: Scorer, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    portions: list[int] = []

    def slow(matchers: Sequence[Any], texts: Sequence[Any], **how: Any) -> Any:
        portions.append(len(texts))
        time.sleep(0.05)
        return match_batch(matchers, texts, **how)

    monkeypatch.setattr("consensuspr.scoring.scorer.match_batch", slow)
    monkeypatch.setattr("consensuspr.scoring.scorer.PORTION_BYTES", 100)
    monkeypatch.setattr("consensuspr.scoring.scorer.MAX_THREADS_COUNTED", 1)
    batch = [Rollout("duck", "x" * 50)] * 100
    with pytest.raises(DeadlineExceeded, match="before the node matching"):
        scorer.score(batch, deadline=time.monotonic() + 0.12)
    assert 1 <= len(portions) < 10
    assert set(portions) == {2}
    assert scripted.seen == []


# --- busy machines


class BusyVerifier(AnswerVerifier):
    """Leaves the first answer of a batch open."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def verify_batch(self, truths: Sequence[str], *_: Any) -> list[Verdict]:
        verdicts = [Verdict(True, "x", AnswerStatus.DECIDED, "scripted") for _ in truths]
        verdicts[0] = Verdict(None, "x", AnswerStatus.UNDECIDED, self.method)
        return verdicts


@pytest.mark.parametrize("policy", list(OnUndecided))
@pytest.mark.parametrize(
    ("method", "status"),
    [("load", Status.ANSWER_UNDECIDED), ("killed", Status.INTERNAL)],
)
def test_what_the_machine_kept_from_being_checked_is_no_wrong_answer(
    dataset: DatasetIndex, policy: OnUndecided, method: str, status: Status
) -> None:
    with BusyVerifier(method) as verifier:
        scorer = Scorer({"d": dataset}, verifier=verifier)
        options = ScoreOptions(on_undecided=policy)
        scores, _ = scorer.score([Rollout("duck", GOOD)] * 3, options)
    assert [score.status for score in scores] == [status, Status.OK, Status.OK]
    assert (scores[0].acc, scores[0].reward) == (None, None)
    assert (scores[0].ncr is None) == (status is Status.INTERNAL)
    assert scores[0].undecided_by_load == (method == "load")
    assert scores[1].reward is not None


def test_portions_and_threads_change_no_score(
    dataset: DatasetIndex, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [Rollout("duck", f"{n} " * (n % 50) + "9*2=18") for n in range(200)]
    expected, _ = Scorer({"d": dataset}, verifier=scripted).score(batch)
    monkeypatch.setattr("consensuspr.scoring.scorer.PORTION_BYTES", 64)
    monkeypatch.setattr("consensuspr.scoring.scorer.MATCHER_BYTES", 1)
    for threads in (0, 1, 3):
        scorer = Scorer({"d": dataset}, verifier=scripted, threads=threads)
        assert scorer.score(batch)[0] == expected


def test_large_matchers_are_not_held_all_at_once(
    scorer: Scorer, dataset: DatasetIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def watch(matchers: Sequence[Any], texts: Sequence[Any], **how: Any) -> Any:
        held.append(sum(matcher.nbytes for matcher in matchers))
        return match_batch(matchers, texts, **how)

    monkeypatch.setattr("consensuspr.scoring.scorer.match_batch", watch)
    batch = [Rollout("p", "x", nodes=[[f"{n}+{k}=9" for k in range(40)]]) for n in range(40)]
    scorer.score(batch)
    together = sum(held)
    monkeypatch.setattr("consensuspr.scoring.scorer.MATCHER_BYTES", together // 8)
    held.clear()
    scorer.score(batch)
    assert sum(held) == together
    assert max(held) <= together // 8 + together // 40 + 1


def test_limits_are_those_given(dataset: DatasetIndex, scripted: Any) -> None:
    scorer = Scorer({"d": dataset}, verifier=scripted, limits=Limits(max_response_bytes=10))
    units: list[tuple[str | bytes, int]] = [("x", 10), (b"x", 10), ("é", 5), ("\ud800", 3)]
    for unit, fitting in units:
        for count, status in ((fitting, Status.OK), (fitting + 1, Status.OVERSIZE)):
            assert score_one(scorer, Rollout("duck", unit * count)).status is status


def test_where_spans_are_asked_for_a_response_is_shorter(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To tell where something is takes many times the memory of telling that it is there."""
    monkeypatch.setattr("consensuspr.scoring.scorer.MAX_EXPLAINED_BYTES", 20)
    short, long = (Rollout("duck", "9*2=18".ljust(size)) for size in (20, 21))
    scores, _ = scorer.score([short, long], ScoreOptions(include_spans=True))
    assert [score.status for score in scores] == [Status.OK, Status.OVERSIZE]
    assert scores[1].message.endswith("21 bytes; the limit with spans is 20")
    assert scorer.explain(short).normal_form
    explained = scorer.explain(long)
    assert (explained.score.status, explained.normal_form) == (Status.OVERSIZE, "")
    assert score_one(scorer, long).status is Status.OK


def test_nodes_with_their_hits(real_scorer: Scorer) -> None:
    response = "α: 16 - 3 - 4 = 9, then $2 \\cdot 9 = 18$. Answer: 18"
    explanation = real_scorer.explain(Rollout("duck", response))
    left, money, never = explanation.nodes
    assert left == NodeExplanation(
        "left", "eggs left", True, False, left.span, "16-3-4=9", ("16-3-4=9",), "statement"
    )
    assert left.span is not None
    assert response[slice(*left.span)] == "16 - 3 - 4 = 9"
    assert (money.matched, money.is_final) == (True, True)
    assert (money.expression, money.channel) == ("9*2=18", "statement")
    assert money.span is not None
    assert response[slice(*money.span)] == "2 \\cdot 9 = 18"
    assert never == NodeExplanation("never", "out of reach", False, False, None, "", ("y=777",))
    assert explanation.normal_form == normalize(response)
    assert explanation.score.spans == (left.span, money.span, None)


@pytest.mark.parametrize(
    "rollout",
    [
        Rollout("duck", "9*2=18 RIGHT", num_tokens=9), Rollout("duck", b"9*2=18 HARD"),
        Rollout("open", "x=66"), Rollout("bare", "RIGHT"), Rollout("absent", "RIGHT"),
        Rollout("duck", "x=55", nodes=[["x=55"]]), Rollout("duck", "x=55", nodes=[[]]),
        Rollout("duck", "CRASH"),
    ],
)  # fmt: skip
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
