"""Score logs added up by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensuspr.errors import InputError
from consensuspr.score_log.curves import coarsen, read_curve
from consensuspr.score_log.formulas import mixed_formulas
from consensuspr.score_log.schema import reward_json
from consensuspr.scoring.rewards import RewardSpec
from tests.score_logs import write_log


def row(step: int | None, acc: float | None, matched: int, **more: Any) -> dict[str, Any]:
    reward = 0.5 * (acc or 0.0) + 0.125 * matched
    return {
        "time": int(1.0e15 if step is None else 1.0e15 + step * 1e6),
        "step": step,
        "split": "train",
        "reward": reward,
        "final_score": reward,
        "acc": acc,
        "ncr": matched / 4,
        "ncr_raw": matched / 4,
        "guard": 1.0,
        "num_nodes": 4,
        "num_matched": matched,
        "num_tokens": 100,
        "tpn": 100 / matched if matched else None,
        "status": "OK",
        **more,
    }


def log(run: Path, *processes: list[dict[str, Any]]) -> Path:
    for rows in processes:
        write_log(run, rows)
    return run


def test_the_samples_of_a_step_are_added_up_over_files(tmp_path: Path) -> None:
    first = [row(1, 1.0, 4), row(2, 0.0, 0)]
    second = [row(1, 0.0, 1), row(2, 0.0, 0)]
    one, two = read_curve(log(tmp_path, first, second), None)
    assert (one.first_step, one.samples, one.acc, one.ncr) == (1, 2, 0.5, 0.625)
    assert (one.ncr_of_right, one.ncr_of_wrong) == (1.0, 0.25)
    assert one.tpn == (100 / 4 + 100 / 1) / 2
    assert one.reward == pytest.approx((1.0 + 0.125) / 2)
    assert one.reward_from_wrong == pytest.approx(0.125 / 2)  # over all samples
    assert (two.acc, two.ncr, two.tpn, two.num_tokens) == (0.0, 0.0, None, 100)


def test_guarded_is_a_share(tmp_path: Path) -> None:
    rows = [row(1, 1.0, 4), row(1, 0.0, 4, ncr=0.1, ncr_raw=1.0, guard=0.1)]
    [point] = read_curve(log(tmp_path, rows), None)
    assert (point.ncr, point.ncr_raw, point.guarded) == (0.55, 1.0, 0.5)


def test_unknown_values_are_not_zero(tmp_path: Path) -> None:
    rows = [
        row(1, 1.0, 4),
        row(1, 1.0, 0, num_nodes=0, ncr=None, status="NO_NODES"),
        row(1, None, 0, ncr=None, reward=None, final_score=None, status="UNKNOWN_PROBLEM"),
        row(1, None, 2, num_tokens=None, tpn=None, status="NO_GROUND_TRUTH"),
    ]
    [point] = read_curve(log(tmp_path, rows), None)
    assert (point.acc, point.ncr, point.failed) == (1.0, 0.75, 3)
    assert point.ncr_of_wrong is None
    assert (point.num_tokens, point.tpn) == (100, 25.0)
    assert point.reward == pytest.approx((1.0 + 0.5 + 0.25) / 3)
    assert point.reward_from_wrong == 0.0
    assert point.to_json()["statuses"]["UNKNOWN_PROBLEM"] == 1


def test_splits_and_samples_without_a_step_are_kept_apart(tmp_path: Path) -> None:
    rows = [row(1, 1.0, 4), row(1, 0.0, 0, split="test"), row(None, 1.0, 4)]
    log(tmp_path, rows)
    assert [point.first_step for point in read_curve(tmp_path, "train")] == [None, 1]
    assert [point.acc for point in read_curve(tmp_path, "test")] == [0.0]


def test_a_run_that_was_started_again_counts_once(tmp_path: Path) -> None:
    killed = [row(step, 0.0, 0) for step in (1, 2, 3)]
    beside = [row(step, 0.0, 0, time=int(1.0e15 + step * 1e6 + 5e5)) for step in (1, 2)]
    resumed = [row(2, 1.0, 4, time=int(2.0e15), split="test")]
    resumed += [row(step, 1.0, 4, time=int(2.0e15 + step)) for step in (3, 4)]
    points = read_curve(log(tmp_path, killed, beside, resumed), "train")
    assert [(p.first_step, p.samples, p.acc) for p in points] == [
        (1, 2, 0.0),
        (2, 2, 0.0),
        (3, 1, 1.0),
        (4, 1, 1.0),
    ]


def test_many_steps_become_few_points(tmp_path: Path) -> None:
    points = read_curve(log(tmp_path, [row(step, 1.0, 4) for step in range(1, 8)]), None)
    assert [(p.first_step, p.last_step, p.samples) for p in coarsen(points, 3)] == [
        (1, 3, 3),
        (4, 5, 2),
        (6, 7, 2),
    ]
    assert len(coarsen(points, 100)) == 7
    assert coarsen([], 3) == []


def test_penalties_count_and_a_servers_log_has_none(tmp_path: Path) -> None:
    rows = [row(1, 1.0, 4, final_score=0.5), row(1, 1.0, 4, final_score=None)]
    [point] = read_curve(log(tmp_path, rows), None)
    assert point.reward == 0.75


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no score log"):
        read_curve(tmp_path, None)


LINEAR, UNGUARDED = RewardSpec.linear(0.3), RewardSpec.linear(0.3, guard=False)
STAGED = RewardSpec.curriculum(2)


@pytest.mark.parametrize(
    ("specs", "described"),
    [
        ([], []),
        ([LINEAR, LINEAR], []),
        (
            [STAGED, LINEAR, LINEAR],
            ["0.3 · Acc + 0.7 · NCR (2 samples)", "NCR, from epoch 2 Acc (curriculum) (1 sample)"],
        ),
        (
            [LINEAR, UNGUARDED],
            [
                "0.3 · Acc + 0.7 · NCR, guard=True (1 sample)",
                "0.3 · Acc + 0.7 · NCR, guard=False (1 sample)",
            ],
        ),
    ],
)
def test_several_formulas_are_announced(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    specs: list[RewardSpec],
    described: list[str],
) -> None:
    specs_of_rows = [None, *map(reward_json, specs)]
    read_curve(log(tmp_path, [row(1, 1.0, 4, reward_spec=spec) for spec in specs_of_rows]), None)
    mixed = f"the means mix samples of {len(described)} reward formulas: " + "; ".join(described)
    assert caplog.messages == ([mixed] if described else [])


def test_a_formula_of_another_release_is_counted_too() -> None:
    known = reward_json(LINEAR)
    assert mixed_formulas({known: 1200, '{"kind": "product"}': 3}) == [
        "0.3 · Acc + 0.7 · NCR (1,200 samples)",
        "a formula of another release (3 samples)",
    ]
