"""The recipe files: overrides that can be read, found where people look for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensuspr.errors import InputError
from consensuspr.launch.recipes import (
    COMMON,
    MODELS,
    STEP_CREDIT,
    SUFFIX,
    Override,
    read_recipe,
    recipe,
)
from consensuspr.launch.request import Algorithm
from consensuspr.scoring.rewards import RewardKind

# Of each topic a launch takes one.
TOPICS = ((COMMON,), tuple(Algorithm), tuple(MODELS.values()), tuple(RewardKind))
# ... and with an option one more, whose keys replace theirs.
NAMES = (*(name for topic in TOPICS for name in topic), STEP_CREDIT)


def test_every_file_is_a_recipe_and_every_recipe_a_file(repository: Path) -> None:
    shown = repository / "deploy/verl/recipes"
    assert {path.name for path in shown.iterdir()} == {name + SUFFIX for name in NAMES}
    for name in NAMES:
        assert read_recipe(shown / (name + SUFFIX)) == recipe(name)


def test_topics_share_no_key() -> None:
    """Otherwise what is trained would depend on the order in which files are read."""
    keys = [
        {Override.parse(line).key for name in topic for line in recipe(name)} for topic in TOPICS
    ]
    assert sum(map(len, keys)) == len(set().union(*keys))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, ".* No such file or directory"), (b"\xff=1", "cannot be read: 'utf-8' codec")],
)
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.overrides"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"mine.overrides: {sentence}"):
        read_recipe(path)
