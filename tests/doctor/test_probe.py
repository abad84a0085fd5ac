"""What the child process finds in verl's configuration and source code, without verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensuspr.doctor.probe import added, calls, first_unread, hydra_config, set_below, used_names

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


CODE = '''
"""A docstring that names in_a_docstring does not read it."""
import hydra

# in_a_comment
in_an_assignment = 1

class Config:
    in_a_field: int = 1

@hydra.main(config_path="config", config_name="trainer", version_base=None)
def main(config, as_argument=None):
    config.trainer.as_attribute
    config.get("as_text")
    OmegaConf.select(config, "dotted.text")
    loop.migrate(config)
'''


def test_names_count_where_a_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/main.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("def (")
    names = used_names([tmp_path])
    assert {"as_attribute", "as_text", "as_argument", "dotted", "text"} <= names
    assert not names & {"in_a_docstring", "in_a_comment", "in_an_assignment", "in_a_field"}


def test_calls_and_configuration_of_a_trainer(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(CODE)
    assert hydra_config(file) == ("config", "trainer")
    assert calls(file, "migrate")
    assert not calls(file, "as_text")


def test_a_module_without_hydra(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("x = 1")
    assert hydra_config(file) == (None, None)
