"""The suites: each a module (or package) of this one with ``run(context) -> SuiteResult``.

Putting a module here makes it a suite; what it needs beside it goes into a package or into a
module without a ``run``.
"""

from __future__ import annotations

import ast
from pathlib import Path

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all suites, in order; nothing is imported for it."""
    modules = {path.stem: path for path in _FOLDER.glob("*.py") if path.stem != "__init__"}
    packages = {path.parent.name: path for path in _FOLDER.glob("*/__init__.py")}
    return sorted(name for name, path in (modules | packages).items() if _is_suite(path))


def _is_suite(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body)
