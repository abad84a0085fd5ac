"""The recipes: files of Hydra overrides, one a topic, put together by name.

A file holds one override a line; blank lines and lines that begin with ``#`` are for people.
Files and not code, so that what verl is given can be read, copied and compared without us.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from consensuspr.errors import InputError

COMMON = "common"
ALGORITHMS = ("grpo", "dapo")
REWARDS = ("outcome", "linear", "max", "curriculum")
# Sizes of Qwen3-Base that have a recipe; any other model is named by its path or hub name.
MODELS = {"1.7b": "qwen3-1.7b", "4b": "qwen3-4b", "8b": "qwen3-8b"}

SUFFIX = ".overrides"
_FOLDER = "recipe_files"


def recipe(name: str) -> list[str]:
    """Return the overrides of a recipe of ours."""
    source = files("consensuspr.launch").joinpath(_FOLDER, name + SUFFIX)
    return _overrides(source.read_text(encoding="utf-8"))


def read_recipe(path: Path) -> list[str]:
    """Return the overrides of a user's own file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return _overrides(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None


def _overrides(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
