"""The pages name all that the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.construction.types import REASON_WORDS
from consensusbench.problems.sources import SOURCES
from consensusbench.quality.attacks import Attack
from consensusbench.quality.diagnose import Diagnosis
from consensusbench.quality.validate import Code


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("check-nodes", [f"`{name}`" for name in (*Code, *Attack)]),
        ("evaluate", [diagnosis.words for diagnosis in Diagnosis]),
        ("prepare-data", [f"`{name}`" for name in SOURCES]),
        ("grow-a-dataset", [f"`{name}`" for name in REASON_WORDS]),
    ],
)
def test_a_guide_names_every_value(repository: Path, page: str, names: list[str]) -> None:
    text = (repository / f"docs/guides/{page}.md").read_text(encoding="utf-8")
    assert [name for name in names if name not in text] == []
