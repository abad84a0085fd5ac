"""A dataset probed: every figure of a small one worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.statements import Truth, truth_of
from consensusbench.quality import survey
from consensusbench.quality.attacks import (
    MAX_NUMBERS,
    Attack,
    attacks_on,
    letters_in,
    nouns_in,
    numbers_in,
    pairs_of,
    pairs_of_pairs,
    prose,
    quantities,
    values,
    within_budget,
    wrapped,
)
from consensusbench.quality.probes import ProbeReport, cheap_notes, probe_dataset
from consensusbench.quality.survey import (
    RolloutSurvey,
    SurveyedRollout,
    add_to_sample,
    match_unrelated,
)
from consensuspr.core import Matcher, match_batch
from consensuspr.data import Node
from consensuspr.scoring.guard import GuardBudget, counted

Write = Callable[..., Path]


def node(name: str, *expressions: str, final: bool = False) -> dict[str, Any]:
    return {"node_id": name, "expressions": list(expressions), "derived": [], "is_final": final}


# Of "sums": 6*7=42 falls to the pairs, =89 to common values, 31+4=35 stands in the text.
PROBLEMS: list[dict[str, Any]] = [
    {
        "problem_id": "a",
        "data_source": "sums",
        "problem": "There are 6 rows of 7 chairs.",
        "ground_truth": "89",
        "nodes": [node("n1", "6*7=42"), node("n2", "=89", final=True)],
    },
    {
        "problem_id": "b",
        "data_source": "sums",
        "problem": "We know that 31+4=35.",
        "ground_truth": "1000",
        "nodes": [node("n1", "31+4=35"), node("n2", "k=1000"), node("n3", "2*3=6")],
    },
    {
        "problem_id": "c",
        "data_source": "proofs",
        "problem": "Prove it.",
        "ground_truth": "1",
        "nodes": [node("n1", "y=x^2")],
    },
    {"problem_id": "d", "data_source": "proofs", "problem": "Empty.", "nodes": []},
]
ROLLOUTS = [
    {"problem_id": "a", "response": "6*7=42 is what we have, so k=1000.", "num_tokens": 10},
    {"problem_id": "b", "response": "31+4=35"},
    {"problem_id": "unheard-of", "response": "6*7=42"},
]


@pytest.fixture
def report(write_dataset: Write) -> ProbeReport:
    dataset = write_dataset(*PROBLEMS)
    rollouts = write_dataset(*ROLLOUTS, name="rollouts.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutSurvey, "typical_chars", lambda survey, source: 500)
        return probe_dataset(dataset, [rollouts])


def test_each_attack_earns_what_it_hits(report: ProbeReport) -> None:
    ncr = {one.attack: one.by_source["sums"].ncr_raw for one in report.attacks}
    pairs = (1 / 2 + 1 / 3) / 2  # 6*7=42, and of 31 and 4 the sum
    assert ncr == pytest.approx(
        dict.fromkeys(Attack, pairs)
        | {
            Attack.VALUES: (1 / 2 + 0) / 2,
            Attack.SUMS: (1 / 2 + 0) / 2,  # x + y = 89 holds "=89", too
            **dict.fromkeys((Attack.LETTERS, Attack.GRID), 0.0),
            Attack.QUANTITIES: 0.0,  # "6 rows" names no node
            # k=1000 is hit by the one rollout of a; nothing of a by the one of b.
            Attack.UNRELATED: (0 + 1 / 3) / 2,
        }
    )


def test_the_guard_lowers_what_states_too_much(report: ProbeReport) -> None:
    figures = {one.attack: one.by_source["sums"] for one in report.attacks}
    for attack in (Attack.DEEP, Attack.COMMENTS, Attack.PRINTED):
        assert figures[attack].ncr < figures[attack].ncr_raw / 3, attack
    assert figures[Attack.PAIRS].ncr == figures[Attack.PAIRS].ncr_raw


def test_attacks_that_earn_more_than_wrong_rollouts_are_reported(write_dataset: Write) -> None:
    rows = [
        {"problem_id": "b", "response": "k=1000", "correct": True},
        {"problem_id": "a", "response": "nothing", "correct": False},
        {"problem_id": "b", "response": "31+4=35", "acc": 0.0},
    ]
    rollouts = write_dataset(*rows, name="rollouts.jsonl")
    report = probe_dataset(write_dataset(*PROBLEMS), [rollouts])
    wrong = report.wrong["sums"]
    assert (wrong.rollouts, wrong.ncr, wrong.ncr_raw) == pytest.approx((2, 1 / 6, 1 / 6))
    cheap = {one.attack: one.ncr for one in report.cheap}
    assert cheap[Attack.PAIRS] == report.attack(Attack.PAIRS).by_source["sums"].ncr > 1 / 6
    assert {Attack.UNRELATED, Attack.QUANTITIES}.isdisjoint(cheap)
    (note,) = cheap_notes(report.cheap)
    assert note.startswith("attack `") and "% NCR on sums; wrong rollouts score 16.7 %" in note


@given(st.lists(st.fractions(0, 10**4, max_denominator=20).filter(bool), max_size=4, unique=True))
def test_pairs_of_pairs_are_true(numbers: list[Fraction]) -> None:
    assert {truth_of(text) for text, _ in pairs_of_pairs(numbers)[::40]} <= {Truth.TRUE}


def test_forms_of_the_same_equations() -> None:
    made = pairs_of([Fraction(6), Fraction(3)])
    forms = dict(wrapped(made))
    assert forms[Attack.COMMENTS].startswith("```python\n# 6*6=36\n# 6+6=12\n")
    assert forms[Attack.PRINTED].startswith("```python\nprint('6*6=36')\n")
    assert prose(within_budget(made, 2, 9)) == "6*6=36\n6+6=12"
    assert prose(within_budget(made, 99, 2)) == "6*6=36"
    assert prose(within_budget(made, 0, 99)) == ""


def test_figures_of_an_attack(write_dataset: Write, report: ProbeReport) -> None:
    figures = report.attack("values").by_source["sums"]
    # "=89" is beyond the numbers that the guard allows.
    assert (figures.ncr_raw, figures.ncr, figures.ncr_without_final) == (0.25, 0.0, 0.0)
    pairs = report.attack(Attack.PAIRS)
    assert (pairs.overall.problems, pairs.by_source["proofs"].problems) == (3, 1)
    # Without the problem's text there are no pairs: that is not an NCR of 0.
    report = probe_dataset(write_dataset(PROBLEMS[1], PROBLEMS[0] | {"problem": " "}))
    assert report.attack(Attack.PAIRS).overall.problems == 1
    assert report.attack(Attack.VALUES).overall.problems == 2


def test_without_rollouts_there_is_no_level_of_chance(write_dataset: Write) -> None:
    report = probe_dataset(write_dataset(*PROBLEMS))
    assert Attack.UNRELATED not in {one.attack for one in report.attacks}
    assert report.budgets == {"sums": 2000, "proofs": 2000}
    with pytest.raises(KeyError):
        report.attack(Attack.UNRELATED)


def test_an_attack_is_as_long_as_a_rollout_of_its_source(write_dataset: Write) -> None:
    rollouts = [{"problem_id": "a", "response": "x" * size} for size in (5, 10, 900)]
    path = write_dataset(*rollouts, name="rollouts.jsonl")
    report = probe_dataset(write_dataset(*PROBLEMS), [path])
    assert report.budgets == {"sums": 10, "proofs": 2000}
    assert report.attack(Attack.QUANTITIES).by_source["sums"].mean_chars == 3.0  # "1 rows", ""


def test_attacks_on_equations_and_values(write_dataset: Write) -> None:
    assert [text for text, _ in values()][:300] == [f"={value}" for value in range(1, 301)]
    assert letters_in("Let $s + \\frac{t}{60} = p$, and \\(AB = n_1\\).") == ["s", "t", "p", "n"]
    assert letters_in("A word, no $\\frac{1}{2}$.") == ["x", "y"]
    equations = ("t=34", "s+t=7", "t+s=9", "2s+3t=11", "500s+t=3", "t=41", "s+t=99")
    rows = {
        "problem_id": "e", "data_source": "", "problem": "Find $s$ if $t$ is known.",
        "nodes": [node(f"n{at}", text) for at, text in enumerate(equations)],
    }  # fmt: skip
    report = probe_dataset(write_dataset(rows))
    figures = {one.attack: one.overall for one in report.attacks}
    # Within the budget of 22 equations, three lines each, and 41 numbers: t = 34 comes too late.
    assert {
        attack: (round(7 * figures[attack].ncr, 6), round(7 * figures[attack].ncr_raw, 6))
        for attack in (Attack.LETTERS, Attack.SUMS, Attack.GRID)
    } == {Attack.LETTERS: (0, 1), Attack.SUMS: (2, 3), Attack.GRID: (2, 3)}
    assert {one.attack for one in report.cheap} == {Attack.SUMS, Attack.GRID}
    assert "28.6 % NCR on problems without a source; at most 2 % is usual" in (
        next(cheap_notes(report.cheap))
    )


@given(st.text(max_size=80), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_what_is_cut_keeps_to_the_budget(
    problem: str, statements: int, numbers: int, equations: int
) -> None:
    budget = GuardBudget(statements, numbers, equations=equations)
    matcher = Matcher([["a=b", "2*3=6", "x+y=z"]])
    for attack in attacks_on(problem, budget, 500):
        if attack.within != attack.text:
            assert attack.text.startswith(attack.within)
            (counts,) = counted(match_batch([matcher], [attack.within]))
            assert all(
                have <= most
                for have, most in zip(counts, (statements, numbers, equations), strict=True)
            )


def test_quantities_are_cut_at_their_length() -> None:
    assert quantities("4 miles in 2 hours", 32) == "1 miles, 1 hours, 2 miles"
    assert quantities("no numbers", 32) == ""


@pytest.mark.parametrize(
    ("problem", "numbers"),
    [
        ("Ann has 3 boxes of 1,200 pens at $0.50.", [3, 1200, Fraction(1, 2)]),
        ("Half of the 20, twice as many, a dozen.", [Fraction(1, 2), 20, 2, 12]),
        ("A .5 share of 3.25", [Fraction(1, 2), Fraction(13, 4)]),
        ("7 and seven and 7", [7]),
        ("0 apples", []),
        ("", []),
        (" ".join(map(str, range(1, 1000))), list(range(1, MAX_NUMBERS + 1))),
    ],
)
def test_numbers_are_found_in_figures_and_words(problem: str, numbers: list[Fraction]) -> None:
    assert numbers_in(problem) == numbers


@pytest.mark.parametrize(
    ("problem", "nouns"),
    [
        ("Tom walks 4 miles in 2 hours and 5 miles more.", ["miles", "hours"]),
        ("A 12-inch pipe costs $3", ["inch", "dollars"]),
        ("1 aaa 2 bbb 3 ccc 4 ddd 5 eee", ["aaa", "bbb", "ccc", "ddd"]),
        ("Prove that it is so.", []),
    ],
)
def test_nouns_stand_behind_numbers(problem: str, nouns: list[str]) -> None:
    assert nouns_in(problem) == nouns


_ROLLOUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.text(alphabet="xy=1", min_size=1, max_size=9)),
    max_size=40,
)


@given(_ROLLOUTS, st.randoms(use_true_random=False))
def test_a_sample_is_bounded_and_does_not_depend_on_the_order(
    rollouts: list[tuple[str, str]], random: object
) -> None:
    shuffled = list(rollouts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "MAX_SAMPLED", 5)
        first, second = sampled(rollouts), sampled(shuffled)
    assert first == second
    assert len(first) == min(5, len(set(rollouts)))
    assert {(one.problem_id, one.text) for one in first} <= set(rollouts)


def sampled(rollouts: list[tuple[str, str]]) -> list[SurveyedRollout]:
    sample: list[SurveyedRollout] = []
    for problem_id, text in rollouts:
        add_to_sample(sample, problem_id, text)
    return sample


def test_a_long_rollout_counts_with_its_beginning() -> None:
    [kept] = sampled([("p", "x" * 200_000)])
    assert len(kept.text) == survey.MAX_CHARS_EACH


SAMPLE = [
    SurveyedRollout(b"", "p1", "so 2*3=6"),
    SurveyedRollout(b"", "p2", "here 7+8=15, and 2*3=6"),
    SurveyedRollout(b"", "p3", "nothing at all"),
]
NODES_OF = [
    ("p1", [Node("n1", ("2*3=6",), derived=("6=2*3",)), Node("n2", ("9*9=81",))]),
    ("p2", [Node("n1", ("7+8=15",))]),
    ("p4", [Node("n1", ("2*3=6",)), Node("n2", ("7+8=15",)), Node("n3", ("x=1",))]),
]


@pytest.mark.parametrize("pool_nodes", [1, 3, 1024])
def test_own_rollouts_are_left_out(pool_nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "POOL_NODES", pool_nodes)
    found = match_unrelated(NODES_OF, SAMPLE)
    # p1 sees the rollouts of p2 and p3, of which one hits its first node.
    assert [len(hits) for hits in found] == [2, 2, 3]
    rates = [hits.mean(axis=0).tolist() for hits in found]
    assert rates == [[0.5, 0.0], [0.0], pytest.approx([2 / 3, 1 / 3, 0.0])]
