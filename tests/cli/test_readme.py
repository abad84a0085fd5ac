"""The README's Python example runs as it stands and prints what is written under it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_python_example_prints_its_output(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    [(example, output)] = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.M | re.S
    )
    monkeypatch.chdir(repository)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == output
