"""The README's Python example runs as it stands against a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import StartServer


def test_the_python_example_runs(
    repository: Path, start_server: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:50051" in example
    server = start_server(repository / "examples" / "sample" / "dataset.jsonl")
    exec(compile(example.replace("127.0.0.1:50051", server.address), "README.md", "exec"), {})
    # As the README says: right, and the first of five nodes.
    message = "OK 0.6 1.0 0.2 (True, False, False, False, False)\n"
    assert capsys.readouterr().out == message
