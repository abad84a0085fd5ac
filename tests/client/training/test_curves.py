"""Score logs added up by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client.training.curves import coarsen, read_curve
from consensuspr.errors import DataError


def row(step: int | None, acc: float, matched: int, **more: Any) -> dict[str, Any]:
    return {
        "time": 1.0e9 if step is None else 1.0e9 + step,
        "step": step,
        "split": "train",
        "reward": 0.5 * acc + 0.125 * matched,
        "acc": acc,
        "ncr": matched / 4,
        "num_nodes": 4,
        "num_matched": matched,
        "num_tokens": 100,
        "status": "OK",
        **more,
    }


def log(folder: Path, *files: list[dict[str, Any]], tail: str = "") -> Path:
    for number, rows in enumerate(files):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"scores-host-{number}.jsonl").write_text(text + tail)
    return folder


def test_the_samples_of_a_step_are_added_up_over_files(tmp_path: Path) -> None:
    first = [row(1, 1.0, 4), row(2, 0.0, 0)]
    second = [row(1, 0.0, 1), row(2, 0.0, 0)]
    one, two = read_curve(log(tmp_path, first, second, tail='{"step": 3'), None)
    assert (one.first_step, one.samples, one.acc, one.ncr) == (1, 2, 0.5, 0.625)
    assert one.ncr_of_wrong == 0.25
    assert one.tpn == 200 / 5  # all tokens over all matched nodes
    assert one.reward == pytest.approx((1.0 + 0.125) / 2)
    assert (two.acc, two.ncr, two.tpn, two.num_tokens) == (0.0, 0.0, None, 100)


def test_what_the_guard_lowered_is_a_share_also_of_older_logs(tmp_path: Path) -> None:
    rows = [row(1, 1.0, 4), row(1, 0.0, 4, ncr=0.1, ncr_raw=1.0, guard=0.1)]
    [point] = read_curve(log(tmp_path, rows), None)
    assert (point.ncr, point.ncr_raw, point.guarded) == (0.55, 1.0, 0.5)


def test_what_is_not_known_is_not_counted_as_zero(tmp_path: Path) -> None:
    rows = [
        row(1, 1.0, 4),
        row(1, 1.0, 0, num_nodes=0, ncr=0.0, status="NO_NODES"),
        row(1, 0.0, 0, num_nodes=0, status="UNKNOWN_PROBLEM"),
        row(1, 0.0, 2, status="NO_GROUND_TRUTH"),
    ]
    [point] = read_curve(log(tmp_path, rows), None)
    assert (point.acc, point.ncr, point.failed) == (1.0, 0.75, 3)
    assert point.ncr_of_wrong is None
    assert point.to_json()["statuses"]["UNKNOWN_PROBLEM"] == 1


def test_splits_and_samples_without_a_step_are_kept_apart(tmp_path: Path) -> None:
    rows = [row(1, 1.0, 4), row(1, 0.0, 0, split="test"), row(None, 1.0, 4)]
    log(tmp_path, rows)
    assert [point.first_step for point in read_curve(tmp_path, "train")] == [None, 1]
    assert [point.acc for point in read_curve(tmp_path, "test")] == [0.0]


def test_a_run_that_was_started_again_counts_once(tmp_path: Path) -> None:
    killed = [row(step, 0.0, 0) for step in (1, 2, 3)]
    beside = [row(step, 0.0, 0, time=1.0e9 + step + 0.5) for step in (1, 2)]
    resumed = [row(2, 1.0, 4, time=2.0e9, split="test")]
    resumed += [row(step, 1.0, 4, time=2.0e9 + step) for step in (3, 4)]
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
        (4, 6, 3),
        (7, 7, 1),
    ]
    assert len(coarsen(points, 100)) == 7
    assert coarsen([], 3) == []


@pytest.mark.parametrize("line", ["{}", "[]", "nonsense", '{"step": "x"}'])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    log(tmp_path, [row(1, 1.0, 4)], tail=line + "\n")
    with pytest.raises(DataError, match=r"scores-host-0.jsonl:2: is no row of a score log"):
        read_curve(tmp_path, None)


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no score log"):
        read_curve(tmp_path, None)
