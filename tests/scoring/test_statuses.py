"""Every status with every reward, and failures that stay with their rollout."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from consensuspr.core import match_batch
from consensuspr.scoring import (
    DatasetIndex,
    InlineNode,
    Limits,
    OnUndecided,
    RewardSpec,
    Rollout,
    Score,
    ScoreOptions,
    Scorer,
    Status,
)

NODES = "16-3-4=9, 9*2=18"  # two of the three nodes of "duck"

# The columns of the table: reward kinds, the curriculum in each of its stages.
REWARDS: list[tuple[str, RewardSpec, int]] = [
    ("linear", RewardSpec.linear(0.5), 0),
    ("max", RewardSpec.maximum(), 0),
    ("stage 1", RewardSpec.curriculum(), 0),
    ("stage 2", RewardSpec.curriculum(), 1),
    ("outcome", RewardSpec.outcome(), 0),
]
NOTHING = (None, None, None, None, None)
MIXED = 0.5 + 0.5 * (2 / 3)

# name, rollout, status, acc, ncr, rewards in the order of REWARDS, words of the message
CASES: list[tuple[str, Rollout, Status, Any, Any, tuple[Any, ...], str]] = [
    (
        "right", Rollout("duck", f"{NODES} RIGHT"),
        Status.OK, 1.0, 2 / 3, (MIXED, 1.0, 2 / 3, 1.0, 1.0), "",
    ),
    (
        "wrong", Rollout("duck", NODES),
        Status.OK, 0.0, 2 / 3, (1 / 3, 2 / 3, 2 / 3, 0.0, 0.0), "",
    ),
    (
        "empty", Rollout("duck", ""),
        Status.OK, 0.0, 0.0, (0.0, 0.0, 0.0, 0.0, 0.0), "",
    ),
    (
        "undecided", Rollout("duck", f"{NODES} HARD"),
        Status.ANSWER_UNDECIDED, 0.0, 2 / 3, (1 / 3, 2 / 3, 2 / 3, 0.0, 0.0),
        "the answer is undecided (budget) and counts as wrong",
    ),
    (
        "no nodes", Rollout("bare", "RIGHT"),
        Status.NO_NODES, 1.0, None, (None, None, None, 1.0, 1.0),
        "problem 'bare' has no nodes",
    ),
    (
        "no nodes and undecided", Rollout("bare", "HARD"),
        Status.NO_NODES, 0.0, None, (None, None, None, 0.0, 0.0),
        "problem 'bare' has no nodes; the answer is undecided (budget) and counts as wrong",
    ),
    (
        "neither nodes nor truth", Rollout("nothing", "RIGHT"),
        Status.NO_NODES, None, None, NOTHING,
        "problem 'nothing' has no nodes and no ground truth",
    ),
    (
        "unknown with a truth", Rollout("absent", "RIGHT", ground_truth="1"),
        Status.NO_NODES, 1.0, None, (None, None, None, 1.0, 1.0),
        "problem 'absent' is not in the dataset and came without nodes",
    ),
    (
        "an empty list of nodes", Rollout("duck", "RIGHT", nodes=[]),
        Status.NO_NODES, 1.0, None, (None, None, None, 1.0, 1.0),
        "problem 'duck' came with an empty list of nodes",
    ),
    (
        "no truth", Rollout("open", "x=55 RIGHT"),
        Status.NO_GROUND_TRUTH, None, 0.5, (None, None, 0.5, None, None),
        "problem 'open' has no ground truth",
    ),
    (
        "unknown with nodes", Rollout("absent", "x=55", nodes=[["x=55"]]),
        Status.NO_GROUND_TRUTH, None, 1.0, (None, None, 1.0, None, None),
        "problem 'absent' has no ground truth",
    ),
    (
        "unknown with both", Rollout("absent", "x=55", ground_truth="1", nodes=[["x=55"]]),
        Status.OK, 0.0, 1.0, (0.5, 1.0, 1.0, 0.0, 0.0), "",
    ),
    (
        "unknown", Rollout("absent", f"{NODES} RIGHT"),
        Status.UNKNOWN_PROBLEM, None, None, NOTHING,
        "problem 'absent' is not in the dataset",
    ),
    (
        "unknown with an empty list of nodes", Rollout("absent", "RIGHT", nodes=[]),
        Status.UNKNOWN_PROBLEM, None, None, NOTHING,
        "problem 'absent' is not in the dataset",
    ),
    (
        "unknown with a blank truth", Rollout("absent", "RIGHT", ground_truth=" "),
        Status.UNKNOWN_PROBLEM, None, None, NOTHING,
        "problem 'absent' is not in the dataset",
    ),
    (
        "invalid nodes", Rollout("duck", f"{NODES} RIGHT", nodes=[[]]),
        Status.INVALID_NODES, 1.0, None, NOTHING, "inline node 0 has no expressions",
    ),
    (
        "invalid nodes without truth", Rollout("absent", "RIGHT", nodes=[["x=5"], []]),
        Status.INVALID_NODES, None, None, NOTHING, "inline node 1 has no expressions",
    ),
    (
        "oversize", Rollout("duck", f"{NODES} RIGHT" + "x" * 2000),
        Status.OVERSIZE, None, None, NOTHING, "the response has 2022 bytes; the limit is 2000",
    ),
    (
        "oversize before all else", Rollout("absent", "x" * 2001, nodes=[[]]),
        Status.OVERSIZE, None, None, NOTHING, "the response has 2001 bytes; the limit is 2000",
    ),
    (
        "a crash of ours", Rollout("duck", f"{NODES} CRASH"),
        Status.INTERNAL, None, None, NOTHING,
        "the answer check failed with an internal error; the log has the traceback",
    ),
]  # fmt: skip
NAMES = [case[0] for case in CASES]


@pytest.fixture
def scorer(dataset: DatasetIndex, scripted: Any) -> Scorer:
    limits = Limits(max_response_bytes=2000)
    return Scorer({"default": dataset}, verifier=scripted, limits=limits)


def score(scorer: Scorer, rollouts: Sequence[Rollout], **kwargs: Any) -> list[Score]:
    return scorer.score(rollouts, ScoreOptions(**kwargs))[0]


@pytest.mark.parametrize("policy", OnUndecided)
@pytest.mark.parametrize("column", range(len(REWARDS)), ids=[name for name, _, _ in REWARDS])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_table(scorer: Scorer, case: Any, column: int, policy: OnUndecided) -> None:
    """A mask takes the reward of undecided answers, and changes nothing else but the message."""
    _, rollout, status, acc, ncr, rewards, message = case
    _, spec, epoch = REWARDS[column]
    (found,) = score(scorer, [rollout], reward=spec, epoch=epoch, on_undecided=policy)
    reward = rewards[column]
    if policy is OnUndecided.MASK and "HARD" in str(rollout.response):
        reward, message = None, message.replace("counts as wrong", "masks the reward")
    assert (found.status, found.acc, found.ncr) == (status, acc, ncr)
    assert (found.reward, found.message) == (reward, message)


def test_a_real_answer_past_its_budget_is_undecided(real_scorer: Scorer) -> None:
    rollout = Rollout("duck", "9*2=18. The answer is \\boxed{10^{10^{10}}}")
    (found,) = score(real_scorer, [rollout])
    assert (found.status, found.acc, found.ncr) == (Status.ANSWER_UNDECIDED, 0.0, 1 / 3)
    assert (found.reward, found.answer) == (0.5 / 3, "10^{10^{10}}")
    assert found.message.startswith("the answer is undecided (")
    (masked,) = score(real_scorer, [rollout], on_undecided=OnUndecided.MASK)
    assert (masked.status, masked.reward) == (Status.ANSWER_UNDECIDED, None)


def test_all_cases_in_one_batch_score_as_they_do_alone(scorer: Scorer) -> None:
    batch = [case[1] for case in CASES] * 3
    assert score(scorer, batch) == [score(scorer, [rollout])[0] for rollout in batch]


def test_statuses_without_a_value_have_no_trace_of_one(scorer: Scorer) -> None:
    for name, rollout, status, *_ in CASES:
        (found,) = score(scorer, [rollout], include_spans=True)
        if status in (Status.INTERNAL, Status.OVERSIZE, Status.UNKNOWN_PROBLEM):
            assert found == Score(status, message=found.message), name
        if found.ncr is None:
            assert (found.num_nodes, found.matched, found.spans) == (0, (), None), name
        assert (found.message == "") == (status is Status.OK), name


LONG = "x" * 4097
INVALID: list[tuple[Any, str]] = [
    ([["a"]] * 65, "65 inline nodes were sent; the limit is 64"),
    ([["a"] * 129], "inline node 0 has 129 expressions; the limit is 128"),
    (
        [InlineNode(["a"] * 80, derived=["b"] * 49)],
        "inline node 0 has 129 expressions; the limit is 128",
    ),
    ([["a"], [LONG]], "inline node 1 has an expression of 4097 bytes; the limit is 4096"),
    ([["é" * 2049]], "inline node 0 has an expression of 4098 bytes; the limit is 4096"),
    (
        [["y" * 4096] * 5],
        "the inline nodes have 20480 bytes of expressions; the limit is 16384",
    ),
    ([["a"], InlineNode([])], "inline node 1 has no expressions"),
    ([InlineNode([], derived=["a"])], "inline node 0 has no expressions"),
    (["x=5"], "inline node 0 is not a list of expressions"),
    ([InlineNode("x=5")], "inline node 0 is not a list of expressions"),
    ([None], "inline node 0 is not a list of expressions"),
    ([["x=5", 7]], "inline node 0 has a value of type int among its expressions"),
]


@pytest.mark.parametrize(("nodes", "sentence"), INVALID, ids=[s for _, s in INVALID])
def test_inline_nodes_past_a_limit(scorer: Scorer, nodes: Any, sentence: str) -> None:
    (found,) = score(scorer, [Rollout("duck", "RIGHT", nodes=nodes)])
    assert (found.status, found.message) == (Status.INVALID_NODES, sentence)
    assert (found.acc, found.ncr, found.reward) == (1.0, None, None)


# --- defects of ours


def test_a_scan_that_raises_costs_one_rollout(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fragile(matchers: Sequence[Any], texts: Sequence[Any], **how: Any) -> Any:
        if any("POISON" in text for text in texts):
            raise MemoryError("scripted")
        return match_batch(matchers, texts, **how)

    monkeypatch.setattr("consensuspr.scoring.scorer.match_batch", fragile)
    batch = [
        Rollout("duck", f"{NODES} RIGHT", rollout_id="r0"),
        Rollout("duck", "POISON RIGHT", rollout_id="r1"),
        Rollout("open", "x=55", rollout_id="r2"),
    ]
    with caplog.at_level(logging.ERROR):
        first, second, third = score(scorer, batch)
    assert (first.status, first.reward) == (Status.OK, MIXED)
    assert second == Score(
        Status.INTERNAL,
        message="the node matching failed with an internal error; the log has the traceback",
    )
    assert (third.status, third.ncr) == (Status.NO_GROUND_TRUTH, 0.5)
    assert "the node matching failed for rollout 'r1' of problem 'duck'" in caplog.text
    assert "MemoryError: scripted" in caplog.text


def test_a_defect_of_all_rollouts_is_logged_a_few_times(
    scorer: Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    found = score(scorer, [Rollout("duck", "CRASH")] * 200)
    assert {each.status for each in found} == {Status.INTERNAL}
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 5
