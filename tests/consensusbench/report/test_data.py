"""Cutting responses: nothing is lost, marked wrongly or too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.quality.diagnose import Diagnosed, Diagnosis
from consensusbench.report.data import (
    OF_A_STATUS,
    Block,
    BlockKind,
    RewardStudy,
    alpha_sweep,
    choose,
    coverage_by_position,
    cut,
    fixed_rewards,
    reached_by_order,
    summarize_problems,
)
from consensuspr.scoring.marks import WHOLE_CHARS, Mark, Piece
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Status
from tests.consensusbench.report.conftest import scored


def text_of(blocks: list[Block]) -> str:
    return "".join(piece.text for block in blocks for piece in block.pieces)


def test_a_short_response_is_whole_and_its_hit_is_marked() -> None:
    [block] = cut("so 6*7=42, done", [Mark(3, 9, 2)], 1000)
    assert block.kind is BlockKind.SHOWN
    assert block.pieces == (Piece("so "), Piece("6*7=42", 2, (2,), (2,)), Piece(", done"))


def test_of_overlapping_hits_the_inner_one_is_on_top_and_each_ends_once() -> None:
    [block] = cut("5*2=10", [Mark(0, 6, 1), Mark(4, 6, 2)], 1000)
    assert block.pieces == (Piece("5*2=", 1, (1,)), Piece("10", 2, (2,), (2, 1)))


def test_a_long_response_is_folded_between_its_hits() -> None:
    text = "a" * 4000 + "6*7=42" + "b" * 4000
    blocks = cut(text, [Mark(4000, 4006, 1)], 100_000)
    assert [block.kind for block in blocks] == [
        BlockKind.SHOWN, BlockKind.FOLDED, BlockKind.SHOWN, BlockKind.FOLDED, BlockKind.SHOWN,
    ]  # fmt: skip
    assert text_of(blocks) == text
    [marked] = [piece for block in blocks for piece in block.pieces if piece.node]
    assert marked.text == "6*7=42"


def test_parts_begin_and_end_between_words() -> None:
    text = "word " * 1000 + "6*7=42" + " word" * 1000
    blocks = cut(text, [Mark(5000, 5006, 1)], 100_000)
    assert text_of(blocks) == text
    for block in blocks:
        shown = "".join(piece.text for piece in block.pieces)
        assert {part for part in shown.split() if part != "6*7=42"} == {"word"}


def test_what_does_not_fit_is_left_out_and_the_hits_stay() -> None:
    text = "a" * 50_000 + "6*7=42" + "b" * 50_000
    blocks = cut(text, [Mark(50_000, 50_006, 1)], 2000)
    assert [block.kind for block in blocks] == [
        BlockKind.SHOWN, BlockKind.LEFT_OUT, BlockKind.SHOWN, BlockKind.LEFT_OUT, BlockKind.SHOWN,
    ]  # fmt: skip
    assert sum(block.chars for block in blocks) == len(text)
    assert "6*7=42" in text_of(blocks)


def test_hits_go_before_what_is_folded_away() -> None:
    text = "a" * 4000 + "6*7=42" + "b" * 4000
    blocks = cut(text, [Mark(4000, 4006, 1)], 4000)  # room for one of the two gaps, or for the hit
    assert "6*7=42" in text_of(blocks)


def test_an_empty_response_has_no_blocks() -> None:
    assert cut("", [], 1000) == []


@given(
    st.integers(0, 3 * WHOLE_CHARS),
    st.lists(st.tuples(st.integers(0, 9500), st.integers(1, 60), st.integers(1, 12)), max_size=8),
    st.integers(0, 9500),
)
def test_blocks_are_the_response_in_order(
    length: int, spans: list[tuple[int, int, int]], max_chars: int
) -> None:
    text = "".join(chr(97 + at % 26) for at in range(length))
    hits = [Mark(start, start + size, node) for start, size, node in spans]
    blocks = cut(text, hits, max_chars)
    assert sum(block.chars for block in blocks) == length
    embedded = [block for block in blocks if block.kind is not BlockKind.LEFT_OUT]
    assert sum(block.chars for block in embedded) <= max_chars
    at = 0
    for block in blocks:
        if block.kind is not BlockKind.LEFT_OUT:
            assert "".join(piece.text for piece in block.pieces) == text[at : at + block.chars]
        at += block.chars
    if max_chars >= length:
        inside = [hit for hit in hits if hit.end <= length]
        ends = sorted(node for block in blocks for piece in block.pieces for node in piece.ends)
        assert ends == sorted(hit.node for hit in inside)


def test_nodes_by_their_order() -> None:
    curve = reached_by_order(
        [
            scored(matched=(True, True, False, False, False)),  # one node in each fifth
            scored(matched=(True, False)),  # the second and the fourth fifth
        ]
    )
    assert curve.rollouts == 2
    assert [x for x, _ in curve.points] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert [y for _, y in curve.points] == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_no_nodes_is_no_curve() -> None:
    assert reached_by_order([scored()]).points == ()
    assert coverage_by_position([scored(matched=(True,), spans=None)]).points == ()


def test_coverage_grows_where_hits_end_and_ends_at_mean_ncr() -> None:
    rollouts = [
        # hits end after 10 % and at the very end; the third node is missed
        scored(matched=(True, True, False), spans=((0, 10), (90, 100), None), num_chars=100),
        scored(matched=(False,), spans=(None,), num_chars=50),
    ]
    points = dict(coverage_by_position(rollouts, steps=10).points)
    assert points[0.0] == 0.0
    assert points[0.1] == pytest.approx(1 / 6)
    assert points[0.9] == pytest.approx(1 / 6)
    assert points[1.0] == pytest.approx((2 / 3 + 0) / 2)


def test_a_span_that_ends_between_steps_counts_at_the_next() -> None:
    points = coverage_by_position(
        [scored(matched=(True,), spans=((0, 11),), num_chars=100)], steps=10
    ).points
    assert points[1] == (0.1, 0.0)
    assert points[2] == (0.2, 1.0)


def test_a_problem_is_the_mean_of_what_is_known() -> None:
    [one, other] = summarize_problems(
        [
            scored("p1", acc=1.0, matched=(True, True)),
            scored("p1", acc=0.0, matched=(True, False)),
            scored("p2", acc=None, matched=(), status=Status.UNKNOWN_PROBLEM),
            scored("p1", acc=0.0, matched=(False, False)),
            scored("p1", acc=None, matched=(), status=Status.OVERSIZE),
        ],
        {},
    )
    assert (one.problem_id, one.rollouts) == ("p1", 4)
    assert one.acc == pytest.approx(1 / 3)
    assert one.ncr == 0.5
    assert (one.ncr_right, one.ncr_wrong) == (1.0, 0.25)
    assert one.node_rates == pytest.approx((2 / 3, 1 / 3))
    assert one.surprise == pytest.approx(1 / 6)
    assert (other.acc, other.ncr, other.node_rates, other.surprise) == (None, None, (), -1.0)


HALF, ALL, NONE = (True, False), (True, True), (False, False)


def study_of_two_groups() -> RewardStudy:
    """One group of a right rollout with NCR .5 and a wrong one with NCR 1; one of equals."""
    return RewardStudy(
        [
            scored("p1", acc=1.0, matched=HALF),
            scored("p1", acc=0.0, matched=ALL),
            scored("p2", acc=0.0, matched=NONE),
            scored("p2", acc=0.0, matched=NONE),
            scored("p3", acc=1.0, matched=ALL),  # alone: no group
            scored("p4", acc=None, matched=ALL),  # not judged: left out
        ]
    )


@pytest.mark.parametrize(
    ("alpha", "right", "wrong", "signal", "misordered"),
    [
        # right: NCR .5 and 1; wrong: NCR 1, 0 and 0
        (0.0, 0.75, 1 / 3, 0.5, 1.0),
        (0.25, 0.25 + 0.75 * 0.75, 0.75 / 3, 0.5, 1.0),
        # 1/3 + 2/3 · .5 = 2/3: both get the same, which is no order either
        (1 / 3, 1 / 3 + 2 / 3 * 0.75, 2 / 9, 0.0, 1.0),
        (0.5, 0.875, 1 / 6, 0.5, 0.0),
        (1.0, 1.0, 0.0, 0.5, 0.0),
    ],
)
def test_the_linear_reward(
    alpha: float, right: float, wrong: float, signal: float, misordered: float
) -> None:
    figures = study_of_two_groups().figures("linear", RewardSpec.linear(alpha), alpha)
    assert figures.right == pytest.approx(right)
    assert figures.wrong == pytest.approx(wrong)
    assert figures.gap == pytest.approx(right - wrong)
    assert (figures.signal, figures.misordered) == (signal, misordered)


def test_max_and_outcome() -> None:
    largest, outcome = fixed_rewards(study_of_two_groups())
    # max pays the wrong rollout with all nodes as much as the right one: no difference left
    assert (largest.right, largest.signal, largest.misordered) == (1.0, 0.0, 1.0)
    assert (outcome.right, outcome.wrong) == (1.0, 0.0)
    assert (outcome.signal, outcome.misordered) == (0.5, 0.0)


def test_rollouts_of_different_models_are_no_group() -> None:
    study = RewardStudy([scored(matched=ALL, model="a"), scored(matched=NONE, model="b")])
    assert study.groups == 0
    assert study.figures("x", RewardSpec.linear(0.0)).signal is None


def test_nothing_to_study_is_no_figure() -> None:
    for figures in alpha_sweep(RewardStudy([scored(acc=None)])):
        assert (figures.right, figures.wrong, figures.gap) == (None, None, None)
        assert (figures.signal, figures.misordered) == (None, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["p1", "p2", "p3"]), st.booleans(), st.integers(0, 4)),
        max_size=12,
    ),
    st.integers(0, 20),
)
def test_it_agrees_with_looking_at_every_pair(
    rows: list[tuple[str, bool, int]], twentieths: int
) -> None:
    alpha = twentieths / 20
    rollouts = [
        scored(p, acc=float(right), matched=(True,) * hits + (False,) * (4 - hits))
        for p, right, hits in rows
    ]

    def reward(right: bool, hits: int) -> float:
        return alpha * right + (1 - alpha) * hits / 4

    groups: dict[str, list[tuple[bool, float]]] = {}
    for p, right, hits in rows:
        groups.setdefault(p, []).append((right, reward(right, hits)))
    several = [group for group in groups.values() if len(group) > 1]
    differ = [any(abs(r - group[0][1]) > 1e-9 for _, r in group) for group in several]
    pairs = [
        w >= r - 1e-9
        for group in groups.values()
        for is_right, r in group
        for other_right, w in group
        if is_right and not other_right
    ]
    figures = RewardStudy(rollouts).figures("linear", RewardSpec.linear(alpha), alpha)
    assert figures.signal == (sum(differ) / len(differ) if differ else None)
    expected = sum(pairs) / len(pairs) if pairs else None
    assert figures.misordered == (None if expected is None else pytest.approx(expected))


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
