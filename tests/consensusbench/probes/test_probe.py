"""A dataset probed: every figure of a small one worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensusbench.quality.probes import Attack, ProbeReport, ProbeSettings, probe_dataset
from consensuspr.errors import InputError

Write = Callable[..., Path]


def node(name: str, *expressions: str, final: bool = False) -> dict[str, Any]:
    return {"node_id": name, "expressions": list(expressions), "derived": [], "is_final": final}


# Of "sums": 6*7=42 falls to the salad, =89 to the enumeration, 31+4=35 stands in the text.
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
    return probe_dataset(dataset, [rollouts], ProbeSettings(budget_chars=500, threads=1))


def test_each_attack_earns_what_it_hits(report: ProbeReport) -> None:
    ncr = {one.attack: one.by_source["sums"].ncr for one in report.attacks}
    assert ncr == pytest.approx(
        {
            Attack.ENUMERATION: (1 / 2 + 0) / 2,
            Attack.LIST: 0.0,  # "89," is no "=89"
            Attack.ASSIGNMENTS: (1 / 2 + 0) / 2,  # "x=89" holds "=89"
            Attack.PRODUCTS: (1 / 2 + 1 / 3) / 2,
            Attack.ECHO: (0 + 1 / 3) / 2,
            # 6*7=42; and of 31 and 4 the sum.
            Attack.NUMBER_SALAD: (1 / 2 + 1 / 3) / 2,
            Attack.QUANTITIES: 0.0,  # "6 rows" names no node
            # k=1000 is hit by the one rollout of a; nothing of a by the one of b.
            Attack.UNRELATED: (0 + 1 / 3) / 2,
        }
    )


def test_final_answer_nodes_are_told_apart(report: ProbeReport) -> None:
    figures = report.attack("enumeration").by_source["sums"]
    assert figures.ncr_without_final == 0.0
    # Of two problems one reaches a half.
    assert figures.share_reached == 0.5


def test_overall_is_over_all_problems_with_nodes(report: ProbeReport) -> None:
    echo = report.attack(Attack.ECHO)
    assert (echo.overall.problems, echo.by_source["proofs"].problems) == (3, 1)
    assert echo.overall.ncr == pytest.approx((0 + 1 / 3 + 0) / 3)
    assert echo.overall.mean_chars == pytest.approx((29 + 21 + 9) / 3)
    assert echo.overall.hits_per_1000_chars == pytest.approx(1000 * 1 / 59)


def test_what_cannot_be_tried_is_no_failed_attack(write_dataset: Write) -> None:
    """Without a problem's text there is nothing to echo: that is no NCR of 0."""
    report = probe_dataset(write_dataset(PROBLEMS[1], PROBLEMS[0] | {"problem": " "}))
    for attack in (Attack.ECHO, Attack.NUMBER_SALAD, Attack.QUANTITIES):
        assert report.attack(attack).overall.problems == 1
    assert report.attack(Attack.ECHO).overall.ncr == pytest.approx(1 / 3)
    assert report.attack(Attack.ENUMERATION).overall.problems == 2


def test_the_worst_problems_are_named_with_the_nodes_hit(report: ProbeReport) -> None:
    salad = report.attack(Attack.NUMBER_SALAD)
    assert [(one.problem_id, one.ncr, one.node_ids) for one in salad.worst] == [
        ("a", 0.5, ("n1",)),
        ("b", pytest.approx(1 / 3), ("n1",)),
    ]


def test_real_rollouts_are_there_to_compare_with(report: ProbeReport) -> None:
    density = report.density["sums"]
    assert report.unknown_rollouts == 1
    assert density.rollouts == 2
    assert density.ncr == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert density.median_chars == (34 + 7) / 2
    assert density.median_per_1000_chars == pytest.approx((1000 / 34 + 1000 / 7) / 2)
    assert density.median_per_1000_tokens == 100.0


def test_without_rollouts_there_is_no_level_of_chance(write_dataset: Write) -> None:
    report = probe_dataset(write_dataset(*PROBLEMS))
    assert Attack.UNRELATED not in {one.attack for one in report.attacks}
    assert (report.density, report.densest) == ({}, ())
    assert report.budgets == {"sums": 2000, "proofs": 2000}
    with pytest.raises(KeyError):
        report.attack(Attack.UNRELATED)


def test_an_attack_is_as_long_as_a_rollout_of_its_source(write_dataset: Write) -> None:
    rollouts = [{"problem_id": "a", "response": "x" * size} for size in (5, 10, 900)]
    path = write_dataset(*rollouts, name="rollouts.jsonl")
    report = probe_dataset(write_dataset(*PROBLEMS), [path])
    assert report.budgets == {"sums": 10, "proofs": 2000}
    # "=0" to "=2" have room in 10 characters, "=89" has not.
    assert report.attack(Attack.ENUMERATION).by_source["sums"].ncr == 0.0


def test_a_stuffed_rollout_is_the_densest(write_dataset: Write) -> None:
    dataset = write_dataset(*PROBLEMS)
    honest = "We look at the rows and at the chairs in them. " * 9 + "6*7=42"
    stuffed = "6*7=42 =89 " + "." * 200
    rows = [
        {"problem_id": "a", "response": honest},
        {"problem_id": "a", "response": stuffed, "rollout_id": "stuffed"},
        {"problem_id": "a", "response": "=89"},  # a bare answer is no stuffing
    ]
    report = probe_dataset(dataset, [write_dataset(*rows, name="rollouts.jsonl")])
    assert [one.rollout_id for one in report.densest] == ["stuffed", "row 1"]
    assert report.densest[0].hits_per_1000_chars == pytest.approx(2000 / 211)


def test_it_can_be_told_as_json(report: ProbeReport) -> None:
    said = json.loads(json.dumps(report.to_json()))
    assert [one["attack"] for one in said["attacks"]] == [one.value for one in Attack]
    assert said["attacks"][0]["description"] == 'the lines "=0" to "=300"'
    assert said["attacks"][0]["overall"]["problems"] == 3


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 character, got 0"):
        ProbeSettings(budget_chars=0)
