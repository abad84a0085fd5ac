"""A folder for the hub: the library reads it, the card says what is in it, nothing is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.cli import main
from consensusbench.export import CardText, Export, ExportReport, LeftOut, export_hub
from consensusbench.export.files import ParquetFile
from consensusbench.export.hub import MAX_DISTINCT, ColumnTypes, ConstructionSummary
from consensuspr.data import Problem, read_problems, read_rows
from consensuspr.errors import InputError
from consensuspr.scoring.dataset_index import DatasetIndex
from tests.consensusbench.conftest import problem
from tests.consensusbench.export.conftest import held_out, train

if TYPE_CHECKING:
    from tests.consensusbench.export.conftest import ExportBench

TRAIN = "data/train-00000-of-00001.parquet"
TEST = "data/test-00000-of-00001.parquet"


@pytest.fixture
def load_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library's own function, with a cache of this test."""
    datasets = pytest.importorskip("datasets", reason="the extra consensusbench is not installed")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield datasets.load_dataset
    datasets.enable_progress_bars()


def to_hub(export: Export) -> ExportReport:
    return export_hub(export, CardText())


def card_of(folder: Path) -> tuple[dict[str, Any], str]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    _, header, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(header), text


def rich_rows() -> list[dict[str, Any]]:
    construction = {
        "layout": 1,
        "correct_rollouts": 3,
        "rollouts": [
            {"rollout_id": "r1", "model": "small|one", "sampling": {"temperature": 2.0}},
            {"rollout_id": "r2", "model": "large"},
        ],
        "provenance": {"consensuspr": "0.1.0", "selection": {"n": 5, "n_min": 3}},
    }
    odd = train(1, note="kept", tags=["a", 1], answer_rule="dapo")
    odd["metadata"] = {"level": 5, "construction": construction}
    odd["nodes"][0] |= {"label": "sum", "type": "equation", "support": 3, "position": 0.25}
    odd["nodes"][1] |= {"is_final": True, "derived": [], "position": 1, "models": ["x"]}
    odd["nodes"][1]["weight"] = 0.25
    odd["budget"] = {"statements": 20, "numbers": 33, "length": 450, "note": "kept"}
    other = held_out(2, metadata={"construction": construction}, weight=2**60)
    other["nodes"][0].pop("derived")
    other["budget"] = {"statements": 9, "numbers": 9}
    return [odd, other, held_out(3, data_source="", weight=None)]


def test_the_library_reads_it(load_dataset: Any, bench: ExportBench) -> None:
    import pyarrow.parquet as pq
    from datasets import Features

    bench.export(*rich_rows(), by=to_hub)
    header, _ = card_of(bench.out)
    written = Features.from_arrow_schema(pq.read_schema(bench.out / TRAIN).remove_metadata())
    assert header["dataset_info"]["features"] == written._to_yaml_list()
    loaded = load_dataset(str(bench.out))
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 1, "test": 2}
    assert loaded["train"].features == loaded["test"].features
    [row] = loaded["train"]
    assert (row["problem_id"], row["ground_truth"], row["split"]) == ("p1", "2", "train")
    first, second = row["nodes"]
    assert (first["label"], first["support"], first["position"]) == ("sum", 3, 0.25)
    assert (second["is_final"], second["derived"], second["models"]) == (True, [], '["x"]')
    assert (row["note"], row["tags"]) == ("kept", '["a", 1]')
    assert row["budget"] == {"statements": 20, "numbers": 33, "length": 450, "note": "kept"}
    assert second["weight"] == 0.25


def test_nothing_is_lost_and_scores_stay_the_same(bench: ExportBench) -> None:
    rows = [row | {"split": "test"} for row in rich_rows()]
    bench.export(*rows, by=to_hub)
    path = bench.folder / "problems.jsonl"

    def shown(one: Problem) -> dict[str, Any]:
        nodes = [
            (n.node_id, n.label, n.type, n.expressions, n.derived, n.support, n.is_final, n.weight)
            for n in one.nodes
        ]
        extra = {key: value for key, value in one.extra.items() if value is not None}
        return {
            "id": (one.problem_id, one.problem, one.ground_truth, one.data_source),
            "nodes": nodes,
            "other": (one.metadata, one.answer_rule, one.budget, extra),
        }

    assert [shown(one) for one in read_problems(bench.out / TEST)] == [
        shown(one) for one in read_problems(path)
    ]
    digest = DatasetIndex.load(path).digest
    assert DatasetIndex.load(bench.out / TEST).digest == digest
    assert digest in (bench.out / "README.md").read_text()


def test_the_card_is_made_for_the_hub_and_for_people(bench: ExportBench) -> None:
    text = CardText('Nodes: "mine"', "cc-by-4.0", ("en", "zh"))
    bench.export(*rich_rows(), by=lambda export: export_hub(export, text))
    header, body = card_of(bench.out)
    assert header["license"] == "cc-by-4.0"
    assert header["pretty_name"] == 'Nodes: "mine"'
    assert header["language"] == ["en", "zh"]
    assert header["size_categories"] == ["n<1K"]
    assert header["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*"},
                {"split": "test", "path": "data/test-*"},
            ],
        }
    ]
    info = header["dataset_info"]
    assert [split["num_examples"] for split in info["splits"]] == [1, 2]
    sizes = [(bench.out / name).stat().st_size for name in (TRAIN, TEST)]
    assert info["download_size"] == sum(sizes)
    assert "| arithmetic | train | 1 | 2.00 |" in body
    assert "| **Total** | test | 2 | 2.00 |" in body
    assert "2 of 3 problems say in" in body
    assert "| large | 2 |" in body and r"| small\|one | 2 |" in body
    assert "| selection.n_min | 3 |" in body and "| temperature | 2.0 |" in body


def test_a_benchmark_has_a_test_split_alone(load_dataset: Any, bench: ExportBench) -> None:
    report = bench.export(held_out(1), held_out(2, nodes=[]), by=to_hub)
    assert report.left_out == {LeftOut.NO_NODES: 1}
    assert list(load_dataset(str(bench.out))) == ["test"]
    header, body = card_of(bench.out)
    assert "license" not in header
    assert "The rows do not say how their nodes were made." in body
    # Another export must not leave the old split beside the new one.
    with pytest.raises(InputError, match=r"test-00000-of-00001.parquet is there from before"):
        bench.export(problem(5), by=to_hub)


def test_a_problem_without_split_is_for_training(bench: ExportBench) -> None:
    rows = [problem(number) for number in range(60)]
    bench.export(*rows, by=to_hub)
    assert not (bench.out / TEST).exists()
    bench.export(*rows, by=to_hub, val_fraction=0.5)
    assert {one.split for one in read_problems(bench.out / TEST)} == {"test"}


def test_a_card_of_somebody_else_is_left_alone(bench: ExportBench) -> None:
    bench.out.mkdir()
    (bench.out / "README.md").write_text("# Mine\n")
    with pytest.raises(InputError, match=r"README.md is there and was not written by an export"):
        bench.export(problem(1), by=to_hub)
    assert bench.files() == {"README.md": b"# Mine\n"}
    (bench.out / "README.md").unlink()
    for _ in range(2):
        bench.export(problem(1), by=to_hub)


def test_what_a_card_counts_is_bounded() -> None:
    making = ConstructionSummary()
    for number in range(MAX_DISTINCT + 9):
        provenance = {"seed": number}
        making.note({"construction": {"provenance": provenance, "rollouts": ["odd"]}})
    making.note({"construction": "by hand"})
    assert (making.problems, making.recorded) == (MAX_DISTINCT + 10, MAX_DISTINCT + 9)
    assert (len(making.builds), len(making.models)) == (MAX_DISTINCT, 0)


def test_the_command(bench: ExportBench, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench.write(train(1), held_out(2))
    options = ["--license", "mit", "--title", "Mine", "--language", "de", "--no-progress"]
    assert main(["export", str(path), "--format", "hf", "--output", str(bench.out), *options]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{bench.out / TRAIN}: 1 row (arithmetic 1)",
        f"{bench.out / TEST}: 1 row (arithmetic 1)",
    ]
    header, body = card_of(bench.out)
    assert (header["license"], header["language"]) == ("mit", ["de"])
    assert "# Mine\n" in body


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None], "string"),
        ([None], "string"),
        ([True, False], "bool"),
        ([1, 2**60], "int64"),
        ([1, 0.5], "double"),
        ([2**60, 0.5], "json"),
        ([2**64], "json"),
        ([1, True], "json"),
        ([1, "a"], "json"),
        ([[1]], "json"),
        ([{}], "json"),
    ],
)
def test_the_narrowest_type_that_loses_nothing(values: list[Any], kind: str) -> None:
    kinds = ColumnTypes()
    for value in values:
        kinds.note({"key": value})
    [field] = kinds.fields()
    assert field.type == (pa.string() if kind == "json" else pa.type_for_alias(kind))
    assert bool(field.metadata) is (kind == "json")


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
anything = scalars | st.lists(scalars, max_size=2)
keys = st.sampled_from(["a", "b", "ö"])


@given(st.lists(st.dictionaries(keys, anything, min_size=1), min_size=1, max_size=6))
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    kinds = ColumnTypes()
    for row in rows:
        kinds.note(row)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        with path.open("wb") as stream:
            out = ParquetFile(stream, pa.schema(kinds.fields()))
            for row in rows:
                out.write(kinds.settled(row))
            out.close()
        read = [row for _, row in read_rows(str(path), ())]
    known = {key for row in rows for key in row}
    assert read == [{key: row.get(key) for key in known} for row in rows]
    assert out.rows == len(rows)
