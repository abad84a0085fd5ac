"""Which statements of several rollouts count as one conclusion."""

from __future__ import annotations

from fractions import Fraction

from consensusbench.extraction.rules import (
    Cluster,
    RulesSettings,
    add_phrases,
    cluster,
    read_conclusions,
    read_phrases,
)
from consensusbench.extraction.types import CorrectRollout


def clusters_of(*responses: str) -> list[Cluster]:
    return cluster(
        [read_conclusions(CorrectRollout("r", "m", one), RulesSettings()) for one in responses]
    )


def wordings(found: list[Cluster]) -> list[set[str]]:
    return [set(one.wordings) for one in found]


def test_one_structure_is_one_conclusion() -> None:
    assert wordings(clusters_of("3*10=30", "10 * 3 = 30", "30 = 3 * 10")) == [
        {"3*10=30", "10 * 3 = 30", "30 = 3 * 10"}
    ]


def test_two_ways_to_a_value_are_one_conclusion_where_no_rollout_takes_both() -> None:
    found = clusters_of("200-50=150", "300-150=150", "200-50=150")
    assert wordings(found) == [{"200-50=150", "300-150=150"}]
    assert found[0].rollouts == {0, 1, 2}


def test_a_rollout_that_computes_a_value_twice_shows_two_steps() -> None:
    both = "Ann: 2*4=8. Bob: 5+3=8."
    assert sorted(map(len, wordings(clusters_of(both, both, "2*4=8")))) == [1, 1]


def test_a_chain_is_one_step() -> None:
    chain = "10*3+8*5=30+40=70"
    found = [one for one in clusters_of(chain, chain) if one.value == 70]
    assert len(found) == 1


def test_an_assignment_says_what_the_computation_behind_it_says() -> None:
    both = "60/2=30, so x=30"
    assert wordings(clusters_of(both, both)) == [{"60/2=30", "x=30"}]


def test_a_quantity_named_by_a_word_is_a_wording_and_no_conclusion() -> None:
    assert clusters_of("total = 30", "total = 30") == []
    assert wordings(clusters_of("total = 30", "3*10=30")) == [{"total = 30", "3*10=30"}]


def test_two_variables_of_one_value_are_two_conclusions() -> None:
    both = "a=3, b=3"
    assert sorted(map(len, wordings(clusters_of(both, both)))) == [1, 1]


def test_formulas_are_told_apart() -> None:
    assert len(clusters_of("a+b=c", "a+b=d")) == 2


def test_the_best_supported_come_first() -> None:
    found = clusters_of("2+5=7, 4*6=24", "4*6=24")
    assert [one.value for one in found] == [24, 7]


def test_a_phrase_joins_the_best_supported_conclusion_of_its_value() -> None:
    responses = ["3*10=30", "3*10=30", "That is 30 minutes."]
    found = clusters_of(*responses)
    alone = add_phrases(found, [read_phrases(one, 100) for one in responses])
    assert dict(found[0].phrases) == {"30 minutes": 1}
    assert alone == []


def test_a_digit_with_a_word_needs_two_rollouts() -> None:
    responses = ["14/2=7", "A week has 7 days."]
    found = clusters_of(*responses)
    add_phrases(found, [read_phrases(one, 100) for one in responses])
    assert not found[0].phrases
    responses += ["So it takes 7 days.", "14/2=7"]
    found = clusters_of(*responses)
    add_phrases(found, [read_phrases(one, 100) for one in responses])
    assert dict(found[0].phrases) == {"7 days": 2}


def test_a_distinctive_number_that_no_formula_gives_stands_alone() -> None:
    responses = ["It costs 1250 in all.", "1250 euros"]
    alone = add_phrases(clusters_of(*responses), [read_phrases(one, 100) for one in responses])
    assert [(one.value, one.rollouts) for one in alone] == [(Fraction(1250), {0, 1})]
