"""Settings values: their sources, their templates, and the messages about wrong ones.

Those of the server, which cover file, environment and command line, are in
``tests/server/test_config.py``.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter

from consensuspr.errors import InputError
from consensuspr.settings import (
    Settings,
    all_settings,
    load_settings,
    settings_template,
)


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True)
class Rules:
    """How nodes are chosen.

    Attributes:
        min_nodes: fewest that are
            kept.
        names: of ``sources``.
    """

    min_nodes: Annotated[int, Field(ge=1)] = 3
    names: tuple[str, ...] = ("a", "b")


class Paint(Settings):
    shade: Shade = Field(Shade.LIGHT, description="of the wall")
    sheet: Path | None = None


class House(Settings):
    rules: Rules = field(default_factory=Rules)
    paint: Paint = Paint()
    rooms: int = Field(4, ge=1, description="rooms in all")
    garden: bool = False
    weights: dict[str, float] = Field(default_factory=lambda: {"left": 0.5})
    doors: list[Path] = Field(default_factory=list)


def load(text: str, tmp_path: Path, **sources: Any) -> House:
    path = tmp_path / "house.toml"
    path.write_text(text)
    return load_settings(House, prefix="HOUSE", file=path, **sources)


def test_fields_of_a_dataclass_and_of_a_model_are_settings_too() -> None:
    assert list(all_settings(House)) == [
        "rules.min_nodes", "rules.names", "paint.shade", "paint.sheet", "rooms", "garden",
        "weights", "doors",
    ]  # fmt: skip
    assert all_settings(House)["rules.min_nodes"].default == 3


def test_each_source_reaches_a_group(tmp_path: Path) -> None:
    house = load(
        "rooms = 5\n[rules]\nmin_nodes = 7\nnames = ['x']\n[paint]\nsheet = 'p.png'\n",
        tmp_path,
        environment={
            "HOUSE_RULES_MIN_NODES": "8", "HOUSE_PAINT_SHADE": "dark", "HOUSE_DOORS": "a, /b",
        },
        overrides={"rules.min_nodes": 9, "rules.names": None},
    )  # fmt: skip
    assert house.rules == Rules(9, ("x",))
    assert house.paint == Paint(shade=Shade.DARK, sheet=tmp_path / "p.png")
    assert (house.rooms, house.doors) == (5, [Path("a"), Path("/b")])


def test_an_empty_text_says_that_a_setting_without_a_default_is_not_set(tmp_path: Path) -> None:
    assert load("[paint]\nsheet = ''\n", tmp_path) == House()
    empty = {"environment": {"HOUSE_PAINT_SHEET": ""}}
    assert load("[paint]\nsheet = 'p.png'\n", tmp_path, **empty) == House()


def test_an_empty_variable_is_an_empty_list(tmp_path: Path) -> None:
    house = load("doors = ['a']\n", tmp_path, environment={"HOUSE_DOORS": ""})
    assert house.doors == []


@pytest.mark.parametrize(
    ("text", "sources", "sentence"),
    [
        ("[rules]\nmin_node = 1", {}, r"unknown setting 'rules.min_node' in .*; did you mean"),
        ("[rules]\nmin_nodes = 0", {}, r"rules.min_nodes \(in .*\): must be at least 1, got 0"),
        ("[paint]\nshade = 'red'", {}, r"paint.shade \(in .*\): .*'light' or 'dark', got 'red'"),
        ("rules = 3", {}, r"unknown setting 'rules' in .*"),
        (
            "",
            {"environment": {"HOUSE_RULES_MIN_NODE": "1"}},
            "environment: HOUSE_RULES_MIN_NODE; did you mean HOUSE_RULES_MIN_NODES?",
        ),
        (
            "",
            {"environment": {"HOUSE_RULES_MIN_NODES": "x"}},
            r"rules.min_nodes \(environment variable HOUSE_RULES_MIN_NODES\): must be a whole num",
        ),
        (
            "",
            {"overrides": {"rules.min_nodes": 0}},
            r"rules.min_nodes \(--min-nodes\): must be at least 1, got 0",
        ),
        ("", {"overrides": {"walls": 1}}, "unknown setting 'walls' in the command line; known"),
    ],
)
def test_what_is_wrong_in_a_group_is_named(
    tmp_path: Path, text: str, sources: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        load(text, tmp_path, **sources)
    assert "\n" not in str(caught.value)


def test_a_setting_without_a_default_that_is_not_given() -> None:
    class Needs(Settings):
        source_path: Path

    with pytest.raises(InputError, match="source_path is not set; give --source-path"):
        load_settings(Needs, prefix="NEEDS")


# Every model that is filled from a file somewhere.
MODELS = [
    ("consensuspr.server.config", "ServerConfig"),
    ("consensuspr.launch.request", "Request"),
    ("consensuspr.cli.options", "RewardCommandSettings"),
    ("consensusbench.cli.compare", "CompareSettings"),
    ("consensusbench.cli.construction", "BuildSettings"),
    ("consensusbench.cli.diagnose", "DiagnoseSettings"),
    ("consensusbench.cli.evaluate", "EvaluateSettings"),
    ("consensusbench.cli.report", "PageSettings"),
    ("consensusbench.cli.sample", "SampleOptions"),
    (__name__, "House"),
]


@pytest.mark.parametrize(("module", "name"), MODELS, ids=[name for _, name in MODELS])
def test_a_template_is_toml_that_says_every_default(module: str, name: str) -> None:
    model = House if name == "House" else getattr(importlib.import_module(module), name)
    template = settings_template(model, prefix="X")
    found = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", template, flags=re.MULTILINE))
    for setting in all_settings(model).values():
        group, _, leaf = setting.name.rpartition(".")
        value = (found.get(group, {}) if group else found).pop(leaf)
        if setting.default is None:
            assert value == ""
        else:
            kind: Any = setting.field.annotation
            assert TypeAdapter(kind).validate_python(value) == setting.default, setting.name
    assert not any(found.values())


def test_a_template_says_what_each_setting_means() -> None:
    text = settings_template(House, prefix="HOUSE")
    assert "in capitals after HOUSE_." in text
    assert "\n# rooms in all\n# rooms = 4\n" in text
    assert "\n[rules]\n\n# Fewest that are kept.\n# min_nodes = 3\n" in text
    assert '# names = ["a", "b"]\n' in text
    assert '\n[paint]\n\n# of the wall\n# shade = "light"\n' in text
    assert '# sheet = ""  # not set\n' in text
