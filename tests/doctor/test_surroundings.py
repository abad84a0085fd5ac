"""Nodes, workers and paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.client.training import RewardSettings
from consensuspr.doctor.checks import check_address, check_paths, check_workers, is_local

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:50051", True),
        ("127.9.9.9:1", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("0.0.0.0:50051", True),
        ("unix:/tmp/socket", True),
        ("dns:///localhost:50051", True),
        ("10.0.0.7:50051", False),
        ("head-node:50051", False),
        ("[2001:db8::1]:50051", False),
    ],
)
def test_addresses_that_mean_whoever_uses_them(address: str, local: bool) -> None:
    assert is_local(address) == local


@pytest.mark.parametrize(
    ("address", "nodes", "levels"),
    [
        ("127.0.0.1:1", 1, []),
        ("127.0.0.1:1", 2, ["FAIL"]),
        ("head:1", 2, ["ok"]),
    ],
)
def test_addresses_and_nodes(plan: Plan, address: str, nodes: int, levels: list[str]) -> None:
    run = plan({"trainer.nnodes": nodes})
    settings = RewardSettings(address=address)
    assert [f.level for f in check_address(run, address, settings)] == levels


def test_another_server_was_asked_than_training_will(plan: Plan, lines: Lines) -> None:
    settings = RewardSettings(address="head:1")
    assert lines(check_address(plan(), "other:2", settings)) == [
        "warn address: other:2 was asked here, the run will ask head:1 → set"
        " +reward.reward_kwargs.address=other:2, or leave out --address"
    ]


@pytest.mark.parametrize(
    ("workers", "level"), [(8, "ok"), (1, "ok"), (0, "FAIL"), (None, "FAIL"), (1000, "warn")]
)
def test_workers(plan: Plan, workers: Any, level: str) -> None:
    (found,) = check_workers(plan({"reward.num_workers": workers}))
    assert found.level == level


def test_the_score_log(tmp_path: Path, lines: Lines) -> None:
    folder = tmp_path / "not/there/yet"
    assert lines(check_paths(None, RewardSettings(score_log=folder))) == [
        f"ok score log: {folder} can be written to"
    ]
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("")
    (found,) = check_paths(None, RewardSettings(score_log=tmp_path / "file/below"))
    assert (found.level, found.found) == ("FAIL", f"{tmp_path / 'file'} is no folder")


def test_paths_that_workers_would_take_from_elsewhere(lines: Lines) -> None:
    found = lines(check_paths(None, RewardSettings(dataset_path=Path("data/problems.jsonl"))))
    assert found[0].startswith("warn dataset path: data/problems.jsonl is taken from the folder in")
