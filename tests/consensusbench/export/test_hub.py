"""A folder for the hub: rows, card, and reading by the library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.export.files import Export, ExportReport
from consensusbench.export.hub import CardText, export_hub
from consensuspr.data import Problem, read_problems
from consensuspr.errors import InputError
from consensuspr.scoring.dataset_index import DatasetIndex
from tests.consensusbench.conftest import problem
from tests.consensusbench.export.conftest import held_out, train

if TYPE_CHECKING:
    from tests.commands import Run
    from tests.consensusbench.export.conftest import ExportBench

REPOSITORY = Path(__file__).resolve().parents[3]
NO_BRACES = str.maketrans("", "", "{}")
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
    construction = {"layout": 1, "rollouts": [{"rollout_id": "r1", "model": "small|one"}]}
    odd = train(1, note="kept", tags=["a", 1], answer_rule="dapo")
    odd["metadata"] = {"level": 5, "construction": construction}
    odd["nodes"][0] |= {"label": "sum", "type": "equation", "support": 3, "position": 0.25}
    odd["nodes"][1] |= {"is_final": True, "derived": [], "position": 1, "models": ["x"]}
    odd["nodes"][1] |= {"weight": 0.25, "rare": odd["nodes"][1]["expressions"][:1]}
    odd["budget"] = {"statements": 20, "numbers": 33, "length": 450, "note": "kept"}
    other = held_out(2, metadata={"construction": construction}, weight=2**60)
    other["nodes"][0].pop("derived")
    other["budget"] = {"statements": 9, "numbers": 9}
    return [odd, other, held_out(3, data_source="", weight=None)]


def test_the_library_reads_it(load_dataset: Any, bench: ExportBench) -> None:
    bench.export(*rich_rows(), by=to_hub)
    loaded = load_dataset(str(bench.out))
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 1, "test": 2}
    assert loaded["train"].features == loaded["test"].features
    [row] = loaded["train"]
    assert (row["problem_id"], row["ground_truth"], row["split"]) == ("p1", "2", "train")
    first, second = row["nodes"]
    assert (first["label"], first["support"], first["position"]) == ("sum", 3, 0.25)
    assert (second["is_final"], second["derived"], second["models"]) == (True, [], '["x"]')
    assert (row["note"], row["tags"]) == ("kept", '["a", 1]')
    budget = {name: value for name, value in row["budget"].items() if value is not None}
    assert budget == {"statements": 20, "numbers": 33, "length": 450, "note": "kept"}
    assert (second["weight"], second["rare"]) == (0.25, second["expressions"][:1])


def without_nulls(problem: Problem, *own: str) -> Problem:
    """Return a problem without null keys, and without these own keys."""

    def kept(extra: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in extra.items() if v is not None and k not in own}

    nodes = tuple(replace(node, extra=kept(node.extra)) for node in problem.nodes)
    budget_extra = kept(problem.budget_extra)
    return replace(problem, nodes=nodes, extra=kept(problem.extra), budget_extra=budget_extra)


def test_nothing_is_lost_and_scores_stay_the_same(bench: ExportBench) -> None:
    rows = [row | {"split": "test"} for row in rich_rows()]
    bench.export(*rows, by=to_hub)
    path = bench.folder / "problems.jsonl"
    again = list(map(without_nulls, read_problems(bench.out / TEST)))
    assert again == list(map(without_nulls, read_problems(path)))
    digest = DatasetIndex.load(path).digest
    assert DatasetIndex.load(bench.out / TEST).digest == digest
    assert digest in (bench.out / "README.md").read_text()


@pytest.mark.parametrize("kept", [("p1", "p2", "p3"), ("p3",)])
@pytest.mark.parametrize("exported", [True, False])
def test_what_the_library_wrote_is_read_again(
    exported: bool, kept: tuple[str, ...], load_dataset: Any, bench: ExportBench, run: Run
) -> None:
    rows = [row | {"split": "test"} for row in rich_rows()]
    bench.export(*rows, by=to_hub)
    source = bench.folder / "problems.jsonl"
    loaded = (
        load_dataset(str(bench.out), split="test")
        if exported
        else load_dataset("json", data_files=str(source), split="train")
    )
    part = bench.folder / "part.parquet"
    loaded.filter(lambda row: row["problem_id"] in kept).to_parquet(part)
    own = ("models", "tags")  # lists stay JSON text
    again = [without_nulls(each, *own) for each in read_problems(part)]
    expected = [without_nulls(each, *own) for each in read_problems(source)]
    assert again == [each for each in expected if each.problem_id in kept]
    code, out, _ = run("validate", part)
    assert code == 0
    assert f"{len(kept)} problem" in out
    assert ": 0 errors" in out


def test_the_card_has_a_header_and_a_text(bench: ExportBench) -> None:
    source = "@misc{mine,\n  title = {Sums}\n}"
    text = CardText('Nodes: "mine"', "cc-by-4.0", ("en", "zh"), source)
    bench.export(*rich_rows(), by=lambda export: export_hub(export, text))
    header, body = card_of(bench.out)
    assert header["license"] == "cc-by-4.0"
    assert header["pretty_name"] == 'Nodes: "mine"'
    assert header["language"] == ["en", "zh"]
    assert header["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*"},
                {"split": "test", "path": "data/test-*"},
            ],
        }
    ]
    assert "| arithmetic | train | 1 | 2.00 |" in body
    assert "| **Total** | test | 2 | 2.00 |" in body
    assert "2 of 3 problems record" in body
    paper, own = re.findall(r"^@misc\{.*?^\}$", body, re.M | re.S)
    assert own == source
    cited = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    [title] = re.findall(r"title = \{(.*)\},", paper)
    assert title.translate(NO_BRACES) in cited
    [authors] = re.findall(r"author = \{(.*)\},", paper)
    for family, given in (name.split(", ") for name in authors.split(" and ")):
        assert f"{{ family-names: {family}, given-names: {given} }}" in cited


def test_a_card_of_the_user_is_left_alone(bench: ExportBench) -> None:
    bench.out.mkdir()
    (bench.out / "README.md").write_text("# Mine\n")
    with pytest.raises(InputError, match=r"README.md exists and was not written by an export"):
        bench.export(problem(1), by=to_hub)
    assert bench.files() == {"README.md": b"# Mine\n"}
    (bench.out / "README.md").unlink()
    for _ in range(2):
        bench.export(problem(1), by=to_hub)


def test_the_command(bench: ExportBench, run: Run) -> None:
    for silent in ((), (problem(3), problem(4))):
        path = bench.write(train(1), held_out(2), train(9, nodes=[]), *silent)
        options = ["--license", "mit", "--title", "Mine", "--language", "de"]
        code, out, err = run("export", path, "--format", "hf", "--output", bench.out, *options)
        assert code == 0
        assert ("warning: 2 problems have no split and" in err) is bool(silent)
        lines = out.splitlines()
        assert lines[1] == f"{bench.out / TEST}: 1 row (arithmetic 1)"
        assert lines[-1] == "left out: 1 without nodes (first: 'p9')"
    header, body = card_of(bench.out)
    assert (header["license"], header["language"]) == ("mit", ["de"])
    assert "# Mine\n" in body


def test_a_citation_that_is_not_bibtex_is_refused(bench: ExportBench, run: Run) -> None:
    (bench.folder / "sources.bib").write_text("Yan et al., 2026\n")
    options = ["--format", "hf", "--output", bench.out, "--bibtex", bench.folder / "sources.bib"]
    code, _, err = run("export", bench.write(problem(1)), *options)
    assert (code, bench.out.exists()) == (2, False)
    assert "BibTeX begins with an entry such as @article{…}, got 'Yan et al., 2026'" in err
