"""Which names a package's source code uses, found without running any of it.

A key of a configuration is read as an attribute (``config.trainer.nnodes``), as a text
(``config.get("nnodes")``) or as an argument (``f(**config)``).  A name that occurs in none of
these ways is read by nobody; a name that does occur may still belong to something else, so
that the answer errs towards silence.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

# Dotted ones too: OmegaConf.select(config, "trainer.nnodes").
_NAME = re.compile(r"[\w.\-]{1,200}")


def used_names(folders: Iterable[Path]) -> frozenset[str]:
    """Return the names used in all Python files below some folders; unreadable ones are skipped."""
    found: set[str] = set()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            found.update(_names_in(file))
    return frozenset(found)


def calls(file: Path, name: str) -> bool:
    """Tell whether a file calls a function of this name."""
    return any(
        isinstance(node, ast.Call) and _last_name(node.func) == name for node in _nodes(file)
    )


def hydra_config(file: Path) -> tuple[str | None, str | None]:
    """Return config_path and config_name that a file gives to ``@hydra.main``."""
    for node in _nodes(file):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hydra.main":
            given = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            path, name = given.get("config_path"), given.get("config_name")
            return (
                path if isinstance(path, str) else None,
                name if isinstance(name, str) else None,
            )
    return None, None


def _names_in(file: Path) -> Iterator[str]:
    for node in _nodes(file):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and _NAME.fullmatch(str(node.value)):
            yield from str(node.value).split(".")


def _nodes(file: Path) -> Iterator[ast.AST]:
    try:
        with warnings.catch_warnings():
            # Odd escapes in others' code are not ours to report.
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return iter(())
    return ast.walk(tree)


def _last_name(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None
