"""Keys that verl's configuration has no place for."""

from __future__ import annotations

from typing import Any

import pytest

from consensuspr.doctor.verl_config import added, first_unread, set_below

OWN = {
    "reward": {"num_workers": 8},
    "trainer": {"nnodes": 1, "v1": {"mode": "sync"}},
    "rollout": {"engine_kwargs": {"vllm": {"seed": 1}}, "sampler": {}, "extra": None},
    "ray_kwargs": {"ray_init": {"num_cpus": None}},
}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"trainer": {"nnodes": 2}}, []),
        ({"trainer": {"nodes": 2}}, ["trainer.nodes"]),
        ({"trainer": {"v1": {"x": {"y": 1, "z": 2}}}}, ["trainer.v1.x.y", "trainer.v1.x.z"]),
        ({"new": {"a": 1}}, ["new.a"]),
        # Passed on as a whole, or left to be filled.
        ({"rollout": {"engine_kwargs": {"vllm": {"anything": 1}}}}, []),
        ({"rollout": {"sampler": {"anything": 1}}}, []),
        ({"rollout": {"extra": {"anything": 1}}}, []),
        ({"ray_kwargs": {"ray_init": {"address": "auto"}}}, []),
        ({"reward": {"reward_kwargs": {"address": "x"}}}, []),
    ],
)
def test_added_keys(config: dict[str, Any], found: list[str]) -> None:
    assert [".".join(path) for path in added(config, OWN)] == found


@pytest.mark.parametrize(
    ("path", "read", "unread"),
    [
        ("trainer.nodes", {"nodes"}, None),
        ("trainer.nodes", {"trainer"}, "trainer.nodes"),
        ("new.a", {"a"}, "new"),
        ("new.a", {"new"}, "new.a"),
    ],
)
def test_the_first_key_that_nothing_reads(path: str, read: set[str], unread: str | None) -> None:
    assert first_unread(tuple(path.split(".")), OWN, frozenset(read)) == unread


def test_what_is_set_below_some_keys() -> None:
    config = {"old": {"a": None, "b": {"c": 3, "d": {}}}, "other": {"e": 1}}
    assert set_below(config, ["old", "absent"]) == {"old.b.c": 3}
