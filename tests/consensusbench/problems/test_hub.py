"""Sets read from the hub: a folder in its layout, and a hub that cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensusbench.problems.sources import SOURCES, read_source, source_input
from consensuspr.data import Problem
from consensuspr.errors import HubUnavailable, InputError
from tests.consensusbench.problems.conftest import gsm8k

datasets = pytest.importorskip("datasets", reason="the extra consensusbench is not installed")

GSM8K_CARD = """\
---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
---
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what the library caches out of the user's home, and its bars off the terminal."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def problems(text: str, limit: int | None = None) -> list[Problem]:
    return list(read_source(source_input(text, limit)))


@pytest.fixture
def gsm8k_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    (folder / "README.md").write_text(GSM8K_CARD)
    for split, numbers in (("train", range(3)), ("test", range(3, 8))):
        rows = [gsm8k(f"What is {number} + 1?", str(number + 1)) for number in numbers]
        path = folder / "main" / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    monkeypatch.setitem(SOURCES, "gsm8k", replace(SOURCES["gsm8k"], hub_id=str(folder)))
    return str(folder)


@pytest.mark.parametrize("limit", [None, 2, 100])
@pytest.mark.usefixtures("gsm8k_folder")
def test_parquet_with_a_configuration(limit: int | None) -> None:
    found = problems("gsm8k", limit)
    texts = [f"What is {number} + 1?" for number in range(3, 8)]
    assert [problem.problem for problem in found] == texts[:limit]
    assert [problem.ground_truth for problem in found] == ["4", "5", "6", "7", "8"][:limit]


def test_offline_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnavailable) as caught:
        problems("math-500")
    sentence = str(caught.value)
    assert sentence.startswith("HuggingFaceH4/MATH-500: the hub cannot be reached (")
    assert sentence.endswith("download the file elsewhere and give it as NAME=PATH")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hub_config": "none"}, "BuilderConfig 'none' not found"),
        ({"hub_split": "dev"}, 'Unknown split "dev"'),
    ],
)
@pytest.mark.usefixtures("gsm8k_folder")
def test_missing_configurations_and_splits_are_one_sentence(
    changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "gsm8k", replace(SOURCES["gsm8k"], **changes))
    with pytest.raises(InputError, match=reason):
        problems("gsm8k")
