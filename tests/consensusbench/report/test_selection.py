"""Which rollouts stand in the page."""

from __future__ import annotations

from consensusbench.quality.diagnose import Diagnosed, Diagnosis
from consensusbench.report.data import OF_A_STATUS, choose
from consensuspr.scoring.types import Status
from tests.consensusbench.report.conftest import scored


def test_every_kind_of_every_model_is_shown_before_any_is_shown_often() -> None:
    rollouts = [
        scored(row=row, model="a" if row % 2 else "b", acc=float(row < 900), matched=(True,))
        for row in range(1000)
    ]
    rollouts.append(scored(row=1000, model="a", status=Status.OVERSIZE, acc=None))
    diagnoses = {(0, 7): Diagnosed(Diagnosis.ALMOST_CORRECT, "made up")}
    chosen = choose(rollouts, diagnoses, 12)
    assert len(chosen) == 12
    assert {(r.acc, r.model) for r in chosen} == {
        (1.0, "a"), (1.0, "b"), (0.0, "a"), (0.0, "b"), (None, "a"),
    }  # fmt: skip
    assert {7, 1000} <= {r.row for r in chosen}


def test_the_telling_ones_come_first() -> None:
    plain = [scored(row=row, matched=(True, True)) for row in range(50)]
    [*_, telling] = [*plain, scored(row=50, matched=(False, False))]
    assert telling in choose([*plain, telling], {}, 1)


def test_a_choice_is_in_the_order_of_the_files_and_repeatable() -> None:
    rollouts = [scored(row=row, matched=(row % 3 == 0,)) for row in range(200)]
    chosen = choose(rollouts, {}, 20)
    assert chosen == sorted(chosen, key=lambda r: r.row)
    assert chosen == choose(rollouts, {}, 20)
    assert len({r.row for r in chosen}) == 20


def test_those_with_nodes_come_first_in_choice_and_order() -> None:
    nodeless = [
        scored(row=row, model=f"m{row}", status=Status.NO_NODES, acc=None) for row in range(50)
    ]
    good = [scored(row=row, matched=(True,)) for row in range(50, 100)]
    assert choose([*nodeless, *good], {}, 5) == choose(good, {}, 5)
    chosen = choose([*nodeless, *good], {}, 40)
    assert [bool(r.matched) for r in chosen] == [True] * 36 + [False] * 4
    everything = choose([*nodeless, *good], {}, 200)
    assert everything == [*good, *nodeless]
    assert len(choose([*nodeless, *good[:3]], {}, 30)) == 30  # what is free is theirs


def test_few_rollouts_are_all_shown_and_none_if_none_are_wanted() -> None:
    rollouts = [scored(row=row) for row in range(5)]
    assert choose(rollouts, {}, 200) == rollouts
    assert choose(rollouts, {}, 0) == []


def test_rollouts_without_a_score_do_not_crowd_out_the_others() -> None:
    failed = [scored(row=row, status=Status.NO_NODES, acc=None) for row in range(500)]
    good = [scored(row=row, matched=(True,)) for row in range(500, 1000)]
    chosen = choose([*failed, *good], {}, 100)
    assert len(chosen) == 100
    assert sum(r.status is Status.NO_NODES for r in chosen) == OF_A_STATUS
