"""The README's Python example runs as it stands against a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer


def test_the_python_example_runs(
    repository: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:50051" in example
    exec(compile(example.replace("127.0.0.1:50051", server.address), "README.md", "exec"), {})
    # Problem p1 of the small dataset has other nodes and another answer than the example.
    assert capsys.readouterr().out.split() == ["OK", "0.0", "0.0", "0.0", "(False,", "False)"]
