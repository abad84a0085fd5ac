"""The README's Python example runs as it stands against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.servers import served


def test_the_python_example_runs(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:50051" in example
    dataset = repository / "examples" / "sample" / "dataset.jsonl"
    with served(tmp_path, dataset, "--workers", "1") as address:
        exec(compile(example.replace("127.0.0.1:50051", address), "README.md", "exec"), {})
    # As the README says: right, and the first of five nodes.
    message = "OK 0.6 1.0 0.2 (True, False, False, False, False)\n"
    assert capsys.readouterr().out == message
