"""Sets read from the hub: a folder laid out as one, and a hub that cannot be reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensusbench.problems import HubChoice, source_input
from consensusbench.problems.sources import HubDataset, hub_rows, read_source
from consensuspr.data import Problem
from consensuspr.errors import DataError, HubUnavailable, InputError
from tests.consensusbench.problems.conftest import dapo, gsm8k, math500

if TYPE_CHECKING:
    from tests.consensusbench.conftest import WriteDataset

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


def problems(name: str, limit: int | None = None, **choice: Any) -> list[Problem]:
    return list(read_source(source_input(name, choice=HubChoice(**choice), limit=limit)))


@pytest.fixture
def gsm8k_folder(tmp_path: Path) -> str:
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    (folder / "README.md").write_text(GSM8K_CARD)
    for split, numbers in (("train", range(3)), ("test", range(3, 8))):
        rows = [gsm8k(f"What is {number} + 1?", str(number + 1)) for number in numbers]
        path = folder / "main" / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    return str(folder)


@pytest.mark.parametrize("limit", [None, 2, 100])
def test_parquet_with_a_configuration(gsm8k_folder: str, limit: int | None) -> None:
    found = problems("gsm8k", limit, hub_id=gsm8k_folder, config="main")
    texts = [f"What is {number} + 1?" for number in range(3, 8)]
    assert [problem.problem for problem in found] == texts[:limit]
    assert [problem.ground_truth for problem in found] == ["4", "5", "6", "7", "8"][:limit]


def test_another_split_keeps_what_the_set_is_used_for(gsm8k_folder: str) -> None:
    found = problems("gsm8k", hub_id=gsm8k_folder, config="main", split="train")
    assert [(one.ground_truth, one.split) for one in found] == [(n, "test") for n in "123"]


def test_json_lines_and_a_bad_row_named_by_its_number(write_dataset: WriteDataset) -> None:
    good, bad = math500(1, "Find $x$.", "p - q"), math500(2, " ", "1")
    folder = str(write_dataset(good, name="MATH-500/test.jsonl").parent)
    [problem] = problems("math-500", hub_id=folder)
    assert (problem.problem_id, problem.metadata["level"]) == ("math500-algebra-1", 3)
    write_dataset(good, bad, name="MATH-500/test.jsonl")
    with pytest.raises(DataError, match="MATH-500:2: the text of the problem is empty"):
        problems("math-500", hub_id=folder)


def test_nested_columns(tmp_path: Path) -> None:
    rows = [dapo("i-1", "Find $x$.", "34"), dapo("i-2", "Find $y$.", "35")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dapo-math-17k.parquet")
    found = problems("dapo-math-17k", hub_id=str(tmp_path))
    assert [(p.problem_id, p.problem, p.ground_truth) for p in found] == [
        ("dapo17k-i-1", "Find $x$.", "34"),
        ("dapo17k-i-2", "Find $y$.", "35"),
    ]


@pytest.mark.parametrize(
    ("name", "choice", "limit", "wanted"),
    [
        ("gsm8k", {}, None, ("openai/gsm8k", "main", "test", None, False)),
        ("gsm8k-train", {}, None, ("openai/gsm8k", "main", "train", None, False)),
        ("math-500", {}, 5, ("HuggingFaceH4/MATH-500", None, "test", None, True)),
        ("aime-2024", {}, None, ("HuggingFaceH4/aime_2024", None, "train", None, False)),
        ("aime-2025", {}, None, ("math-ai/aime25", None, "test", None, False)),
        (
            "dapo-math-17k",
            {"revision": "v1"},
            None,
            ("BytedTsinghua-SIA/DAPO-Math-17k", None, "train", "v1", False),
        ),
        ("gsm8k", {"hub_id": "a/b", "split": "dev"}, None, ("a/b", None, "dev", None, False)),
    ],
)
def test_what_is_asked_of_the_hub(
    name: str,
    choice: dict[str, Any],
    limit: int | None,
    wanted: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def load_dataset(hub_id: str, config: str | None, **options: Any) -> None:
        asked.append((hub_id, config, options["split"], options["revision"], options["streaming"]))
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(HubUnavailable):
        problems(name, limit, **choice)
    assert asked == [wanted]


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
    ("choice", "reason"),
    [
        ({"config": "none"}, "BuilderConfig 'none' not found"),
        ({"config": "main", "split": "dev"}, 'Unknown split "dev"'),
    ],
)
def test_what_the_hub_has_not_is_one_sentence(
    choice: dict[str, Any], reason: str, gsm8k_folder: str
) -> None:
    with pytest.raises(InputError, match=reason):
        problems("gsm8k", hub_id=gsm8k_folder, **choice)


def test_a_damaged_download_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "test.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(InputError, match="split test: cannot be read: "):
        list(hub_rows(HubDataset(str(tmp_path), None, "test")))


def test_without_the_package_the_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'pip install "consensuspr\[consensusbench\]"'):
        problems("gsm8k")


def test_rows_of_a_copy_in_this_projects_shape(write_dataset: WriteDataset) -> None:
    row = {"problem_id": "mine", "problem": "Find $x$.", "ground_truth": "1"}
    path = write_dataset(row, name="copy/test.jsonl")
    [problem] = problems("math-500", hub_id=str(path.parent))
    assert problem.problem_id == "mine"
