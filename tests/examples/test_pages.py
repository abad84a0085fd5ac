"""Pages that explain by example, and the notebooks: their code runs and prints what they show."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGES = [
    "docs/tutorials/first-reward.md",
    "docs/concepts/statements.md",
    "docs/reference/matching.md",
    "docs/concepts/answers.md",
    *(f"docs/concepts/{name}.md" for name in ("reward", "nodes", "ncr")),
]
NOTEBOOK = "examples/first_reward.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", flags=re.M | re.S)


def differences(cells: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> list[str]:
    """Run the code of a page in order; return what each cell printed if it shows another text."""
    names: dict[str, object] = {}
    wrong = []
    for code, shown in cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<page>", "exec"), names)
        if printed.getvalue() != shown:
            wrong.append(printed.getvalue())
    if client := names.get("client"):
        client.close()  # type: ignore[attr-defined]
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    text = (repository / page).read_text(encoding="utf-8")
    cells = BLOCK.findall(text)
    assert text.count("```python\n") == len(cells) > 0, "a block without its output"
    assert differences(cells) == []


def test_notebook(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir((repository / NOTEBOOK).parent)
    cells = json.loads((repository / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    run = [
        ("".join(cell["source"]), "".join(cell["outputs"][0]["text"]))
        for cell in cells
        if cell["cell_type"] == "code"
    ]
    page = (repository / PAGES[0]).read_text(encoding="utf-8").replace("examples/sample", "sample")
    assert [code for code, _ in run] == [code.rstrip() for code, _ in BLOCK.findall(page)]
    assert differences(run) == []
