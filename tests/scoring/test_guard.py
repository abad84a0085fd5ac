"""The guard, the channels and what else decides NCR: by the formula, by the scorer, by the spec."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core.patterns import Channel
from consensuspr.errors import InputError, InvalidRequest
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    InlineNode,
    RewardSpec,
    Rollout,
    Score,
    ScoreOptions,
    Scorer,
    Status,
)
from consensuspr.scoring.guard import (
    MIN_RIGHT,
    GuardBudget,
    GuardCounts,
    GuardFigures,
    GuardWatch,
    characters,
    figures_of,
    length_of,
)
from consensuspr.scoring.rewards import NcrKind
from consensuspr.scoring.types import CHANNELS

NODES = [
    {"node_id": "half", "expressions": ["48/2=24"], "weight": 0.5},
    {"node_id": "word", "expressions": ["f=17"], "weight": 0.25},
    {"node_id": "sum", "expressions": ["48+24=72"], "weight": 0.25, "is_final": True},
]
LIGHT = [{key: node[key] for key in node if key != "weight"} for node in NODES]
HONEST = "She sold 48 / 2 = 24 in May, and 48 + 24 = 72 in all. The answer is 72."
ROWS = [
    {"problem_id": "weights", "ground_truth": "72", "nodes": NODES},
    {"problem_id": "none", "ground_truth": "72", "nodes": LIGHT},
    {"problem_id": "zeros", "ground_truth": "72", "nodes": [{**n, "weight": 0} for n in NODES]},
    {"problem_id": "final", "ground_truth": "72", "nodes": LIGHT[2:]},
    {
        "problem_id": "budget",
        "ground_truth": "72",
        "nodes": LIGHT,
        "budget": {"statements": 1, "numbers": 100, "length": len(HONEST)},
    },
]
CODE = "```python\nmay = 48 / 2\nprint(48 + may)\n```\nSo the answer is 72."
PAIRS = list(itertools.product(range(1, 60), (2, 24)))
LISTED = "\n".join(f"{a} + {b} = {a + b}, {a} * {b} = {a * b}" for a, b in PAIRS) + "\n48/2 = 24"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    """A scorer of the rows above."""
    path: Path = tmp_path_factory.mktemp("guard") / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with AnswerVerifier(workers=1) as verifier:
        yield Scorer({"default": DatasetIndex.load(path)}, verifier=verifier)


def score_of(scorer: Scorer, rollout: Rollout, **spec: Any) -> Score:
    (score,), _ = scorer.score([rollout], ScoreOptions(RewardSpec.linear(**spec)))
    return score


# --- the formula


@pytest.mark.parametrize(
    ("budget", "nodes", "length", "statements", "numbers"),
    [
        (None, 0, 0, 8, 20),
        (None, 3, 100, 14, 29),
        (None, 3, 542, 14, 29),  # .6 * sqrt(L) is still below
        (None, 3, 10_000, 60, 90),
        (None, 40, 10_000, 88, 140),
        (GuardBudget(20, 30, 1600), 3, 1, 20, 30),
        (GuardBudget(20, 30, 1600), 3, 1600, 20, 30),
        (GuardBudget(20, 30, 1600), 3, 3600, 30, 45),
        (GuardBudget(20, 30, 1600), 3, 6399, 40, 60),  # the default does not count yet
        (GuardBudget(20, 30, 1600), 3, 6400, 48, 72),  # from here on it is the least
        (GuardBudget(20, 60, 1600), 3, 6400, 48, 120),
        (GuardBudget(20, 30), 3, 1, 20, 30),  # its length is not known
        (GuardBudget(20, 30), 3, 6400, 48, 72),
        (GuardBudget(1, 1), 3, 1, 14, 29),
    ],
)
def test_what_a_response_may_state(
    budget: GuardBudget | None, nodes: int, length: int, statements: float, numbers: float
) -> None:
    figures = figures_of(GuardCounts(5, 6, 7), budget, nodes, length)
    assert (figures.statements, figures.numbers, figures.equations) == (5, 6, 7)
    assert figures.max_statements == pytest.approx(statements, rel=1e-3)
    assert figures.max_numbers == pytest.approx(numbers, rel=1e-3)


@pytest.mark.parametrize(
    ("statements", "numbers", "equations", "factor"),
    [
        (0, 0, 0, 1.0), (10, 20, 5, 1.0), (20, 20, 0, 0.5), (10, 80, 0, 0.25), (20, 80, 0, 0.125),
        (40, 40, 0, 0.125), (0, 0, 10, 0.5), (20, 20, 20, 0.125),
    ],
)  # fmt: skip
def test_the_factor(statements: int, numbers: int, equations: int, factor: float) -> None:
    assert GuardFigures(statements, 10.0, numbers, 20.0, equations, 5.0).factor == factor


@pytest.mark.parametrize(
    ("budget", "length", "allowed"),
    [
        (None, 100, 14), (None, 10_000, 60), (GuardBudget(20, 30, 1600), 1600, 24),
        (GuardBudget(20, 30, 1600, 9), 1600, 9), (GuardBudget(20, 30, 1600, 9), 6400, 48),
    ],
)  # fmt: skip
def test_what_equations_a_response_may_state(
    budget: GuardBudget | None, length: int, allowed: float
) -> None:
    assert figures_of(GuardCounts(0, 0, 0), budget, 3, length).max_equations == allowed


@pytest.mark.parametrize("text", ["", "abc", "größe", "日本 😀", "a\ud800b"])
def test_a_response_is_as_long_in_bytes(text: str) -> None:
    assert characters(text) == characters(text.encode("utf-8", "surrogatepass")) == len(text)


def test_channels_have_the_numbers_of_the_core() -> None:
    assert {name: number for number, name in enumerate(CHANNELS) if name} == {
        channel.name.lower(): channel.value for channel in Channel
    }


def test_too_many_right_ones_lowered_are_told_once() -> None:
    watch = GuardWatch()
    for _ in range(MIN_RIGHT):
        assert watch.add(0, 0) is None
    explained = [watch.add(1, n % 50 == 0) for n in range(2 * MIN_RIGHT)]
    assert explained[: MIN_RIGHT - 1] == [None] * (MIN_RIGHT - 1)
    [sentence] = [text for text in explained if text is not None]
    assert sentence.startswith("the guard lowered NCR of 10 of 500 right rollouts (2.0%): ")
    calm = GuardWatch()
    assert {calm.add(1, n % 200 == 0) for n in range(5 * MIN_RIGHT)} == {None}


# --- the scorer


def varied(characters: int) -> str:
    """Return so many characters of words that differ."""
    words = itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=3)
    return "".join(f" {''.join(word)}ly" for word in words)[:characters]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0), ("one two", 0), ("So 3*4=12 and 12+5=17 in all.", 24),  # two phrases
        (LISTED, 0), (LISTED + " " * 9000, 0), (LISTED + " and so on" * 900, 36),
        ("\\textcolor{red}{3}*4=12\n" * 900, 24), (varied(9000), 9000),
        (varied(9000).encode(), 9000), ("三加四等于七" * 2, 12),
    ],
)  # fmt: skip
def test_length_grows_with_different_phrases(text: str | bytes, length: int) -> None:
    assert length_of(text) == length


@pytest.mark.parametrize(
    ("response", "channels", "ncr", "is_lowered"),
    [
        (HONEST, ("statement", "", "statement"), 2 / 3, False),
        (HONEST.encode(), ("statement", "", "statement"), 2 / 3, False),
        (CODE, ("", "", "code"), 1 / 3, False),  # 24 is not written
        ("f = 17 and 48/2 = 24", ("statement", "pattern", ""), 2 / 3, False),
        ("Nothing.", ("", "", ""), 0.0, False), (LISTED, ("statement", "", "statement"), 0.1, True),
        (LISTED.encode(), ("statement", "", "statement"), 0.1, True),
    ],
)  # fmt: skip
def test_what_is_listed_is_worth_little(
    guarded: Scorer, response: str | bytes, channels: tuple[str, ...], ncr: float, is_lowered: bool
) -> None:
    score = score_of(guarded, Rollout("none", response))
    assert score.channels == channels
    assert score.matched == tuple(map(bool, channels))
    assert score.ncr_raw == sum(score.matched) / 3
    assert score.guard is not None and score.ncr is not None
    assert score.ncr == score.ncr_raw * score.guard
    assert (score.guard < 1.0) is is_lowered
    assert score.ncr <= ncr


def test_without_guard_and_statements_it_is_the_papers_own(guarded: Scorer) -> None:
    paper = {"guard": False, "statements": False}
    for response, matched in ((HONEST, 2), (CODE, 0), (LISTED, 2), ("f = 17", 1)):
        score = score_of(guarded, Rollout("none", response), **paper)
        assert (score.num_matched, score.ncr, score.ncr_raw, score.guard) == (
            matched, matched / 3, matched / 3, 1.0,
        )  # fmt: skip
        assert set(score.channels) <= {"", "pattern"}


@pytest.mark.parametrize(
    ("problem", "spec", "ncr", "nodes"),
    [
        ("weights", {"ncr": "weighted"}, 0.75, 3),
        ("weights", {"ncr": "weighted", "final_nodes": False}, 2 / 3, 2),
        ("weights", {"final_nodes": False}, 1 / 2, 2), ("weights", {}, 2 / 3, 3),
        ("none", {"ncr": NcrKind.WEIGHTED}, 2 / 3, 3),
        ("zeros", {"ncr": NcrKind.WEIGHTED}, 2 / 3, 3), ("none", {"final_nodes": False}, 1 / 2, 2),
    ],
)  # fmt: skip
def test_which_nodes_count_and_for_how_much(
    guarded: Scorer, problem: str, spec: dict[str, Any], ncr: float, nodes: int
) -> None:
    dataset = guarded.datasets["default"].entry(problem)
    assert dataset is not None
    given = [InlineNode(n.expressions, n.node_id, (), n.is_final, n.weight) for n in dataset.nodes]
    for rollout in (Rollout(problem, HONEST), Rollout("mine", HONEST, "72", nodes=given)):
        score = score_of(guarded, rollout, **spec)
        assert score.ncr == score.ncr_raw == ncr
        assert (score.num_nodes, len(score.matched)) == (nodes, 3)
        assert score.num_matched == nodes - 1


@pytest.mark.parametrize(
    ("problem", "spec", "shares"),
    [
        ("weights", {"ncr": "weighted"}, (1 / 2, 1 / 4, 1 / 4)),
        ("weights", {"ncr": "weighted", "final_nodes": False}, (2 / 3, 1 / 3, 0.0)),
        ("weights", {"final_nodes": False}, (1 / 2, 1 / 2, 0.0)),
        ("zeros", {"ncr": NcrKind.WEIGHTED}, (1 / 3, 1 / 3, 1 / 3)),
        ("none", {}, (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_with_spans_it_says_what_each_node_adds(
    guarded: Scorer, problem: str, spec: dict[str, Any], shares: tuple[float, ...]
) -> None:
    options = ScoreOptions(RewardSpec.linear(**spec), include_spans=True)
    for response in (HONEST, LISTED, "Nothing."):
        (score,), _ = guarded.score([Rollout(problem, response)], options)
        assert score.shares == shares
        earned = sum(share for share, hit in zip(shares, score.matched, strict=True) if hit)
        assert score.ncr_raw == pytest.approx(earned)


def test_nothing_but_final_nodes_is_no_nodes(guarded: Scorer) -> None:
    score = score_of(guarded, Rollout("final", HONEST), final_nodes=False)
    assert (score.status, score.ncr, score.acc) == (Status.NO_NODES, None, 1.0)
    assert (
        score.message
        == "problem 'final' has final nodes only, which do not count (final_nodes=False)"
    )


def test_weights_that_no_problem_has_are_refused(scorer: Scorer) -> None:
    with pytest.raises(InvalidRequest) as caught:
        score_of(scorer, Rollout("duck", ""), ncr="weighted")
    assert str(caught.value) == (
        "dataset 'default' has no problem with a weight for each node, which ncr='weighted' needs;"
        " `consensusbench build ROLLOUTS --budgets DATASET --output FILE` adds weights, a new build"
        " positions"
    )
    node = InlineNode(["x=55"], weight=1.0)
    assert score_of(scorer, Rollout("new", "x=55", nodes=[node]), ncr="weighted").ncr == 1.0


@pytest.mark.parametrize(
    ("rollout", "factor"),
    [
        (Rollout("budget", HONEST), 0.5),
        (Rollout("budget", HONEST + varied(len(HONEST))), 1 / math.sqrt(2)),
        (Rollout("budget", (HONEST + varied(len(HONEST))).encode()), 1 / math.sqrt(2)),
        (Rollout("budget", HONEST + varied(3 * len(HONEST))), 1.0),
        (Rollout("new", HONEST, nodes=[["48/2=24"]], budget=GuardBudget(1, 9, 999)), 0.5),
        (Rollout("new", HONEST, nodes=[["48/2=24"]], budget=GuardBudget(9, 1, 999)), 1 / 4),
        (Rollout("new", HONEST, nodes=[["48/2=24"]], budget=GuardBudget(9, 1)), 1.0),
        (Rollout("new", HONEST, nodes=[["48/2=24"]]), 1.0),
        (Rollout("none", HONEST, budget=GuardBudget(1, 1)), 1.0),  # of nodes that it does not bring
    ],
)
def test_a_budget_of_the_problem_takes_the_place_of_the_default(
    guarded: Scorer, rollout: Rollout, factor: float
) -> None:
    assert score_of(guarded, rollout).guard == pytest.approx(factor)
    assert score_of(guarded, rollout, guard=False).guard == 1.0
    # Thoughts that are not scored add no length.
    text = rollout.response if isinstance(rollout.response, bytes) else rollout.response.encode()
    thinking = replace(rollout, response=b"<think>" + b"?" * 9000 + b"</think>" + text)
    assert score_of(guarded, thinking, after_think=True).guard == pytest.approx(factor)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"budget": {"statements": 1}}, "the budget is a dict, not a GuardBudget"),
        (
            {"budget": GuardBudget(0, 1)},
            "the budget's statements must be a whole number from 1 to 4294967295, got 0",
        ),
        (
            {"budget": GuardBudget(1, True)},
            "the budget's numbers must be a whole number from 1 to 4294967295, got True",
        ),
        (
            {"budget": GuardBudget(1, 1, -1)},
            "the budget's length must be a whole number from 0 to 2147483647, got -1",
        ),
        (
            {"nodes": [InlineNode(["x"], weight=-1.0)]},
            "inline node 0 has the weight -1.0, which is not a number from 0 to 1e+06",
        ),
        (
            {"nodes": [InlineNode(["x"], weight=math.nan)]},
            "inline node 0 has the weight nan, which is not a number from 0 to 1e+06",
        ),
    ],
)
def test_a_bad_budget_or_weight_is_told(
    guarded: Scorer, extra: dict[str, Any], message: str
) -> None:
    score = score_of(guarded, Rollout("new", "x", **{"nodes": [["x"]], **extra}))
    assert (score.status, score.message) == (Status.INVALID_NODES, message)


def test_the_explanation_shows_the_arithmetic(guarded: Scorer) -> None:
    options = ScoreOptions(RewardSpec.linear(final_nodes=False))
    explained = guarded.explain(Rollout("none", LISTED), options)
    assert explained.guard is not None
    assert explained.score.guard == explained.guard.factor
    assert explained.guard.max_statements == 2 * 3 + 8  # lines of numbers have no length
    assert [(node.channel, node.counts) for node in explained.nodes] == [
        ("statement", True), ("", True), ("statement", False),
    ]  # fmt: skip
    without = guarded.explain(Rollout("none", LISTED), ScoreOptions(RewardSpec.linear(guard=False)))
    assert without.guard is None


# --- the spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"guard": "no"}, "guard must be True or False, got 'no'"),
        ({"statements": 1}, "statements must be True or False, got 1"),
        ({"after_think": "yes"}, "after_think must be True or False, got 'yes'"),
        ({"final_nodes": None}, "final_nodes must be True or False, got None"),
        ({"ncr": "light"}, "ncr must be one of plain, weighted, position, got 'light'"),
    ],
)
def test_a_bad_choice_is_one_sentence(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        RewardSpec.maximum(**spec)
    assert str(caught.value) == message
