"""The page about training names every setting, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from consensuspr.client.training import RewardSettings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "train.md"


def test_every_setting_is_in_the_table() -> None:
    section = PAGE.read_text().split("## Settings of the reward")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    assert list(rows) == list(RewardSettings.model_fields)
    for name, field in RewardSettings.model_fields.items():
        default = field.default
        if isinstance(default, float):
            assert float(rows[name]) == default, name
        elif isinstance(default, str | int):
            assert rows[name].strip("`") == str(default), name
