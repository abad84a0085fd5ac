"""The suites: each a module of this package with ``run(context) -> SuiteResult``.

Putting a module here makes it a suite; what it needs beside it goes elsewhere.
"""

from __future__ import annotations

from pathlib import Path


def names() -> list[str]:
    """Return the names of all suites, in order; nothing is imported for it."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in files if not path.stem.startswith("__"))
