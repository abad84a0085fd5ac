"""What is exported arrives in verl's own dataset as it was written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

with warnings.catch_warnings():
    # Third parties' own, at import.
    warnings.simplefilter("ignore")
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from consensusbench.problems.texts import with_prompt
from consensuspr.client.training import inline_nodes
from tests.consensusbench.export.conftest import held_out, train

if TYPE_CHECKING:
    from tests.consensusbench.export.conftest import ExportBench

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Letters:
    """A tokenizer that takes each letter for a token."""

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> list[int]:
        return [ord(letter) for message in messages for letter in message["content"]]


@pytest.fixture
def verl_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open Parquet files as verl's trainer does, with the recipes' settings."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def read(*names: str) -> RLHFDataset:
        config = OmegaConf.create(
            {
                "prompt_key": "prompt",
                "max_prompt_length": 2048,
                "truncation": "error",
                "filter_overlong_prompts": True,
                "filter_overlong_prompts_workers": 1,
                "cache_dir": str(tmp_path / "verl"),
            }
        )
        return RLHFDataset([str(tmp_path / "out" / name) for name in names], Letters(), config)

    return read


@pytest.mark.parametrize("with_nodes", [False, True])
def test_a_row_arrives_intact(with_nodes: bool, verl_dataset: Any, bench: ExportBench) -> None:
    rows = [
        train(1),
        train(2, problem=r"$\frac{1}{2}$ – {x}?", data_source="étude"),
        train(3, problem="long " * 1000),
    ]
    bench.export(*rows, held_out(4), inline_nodes=with_nodes)
    dataset = verl_dataset("train.parquet")
    # The one that is too long is dropped by verl, as the recipes want it.
    assert [dataset[i]["extra_info"]["problem_id"] for i in range(len(dataset))] == ["p1", "p2"]
    batch = collate_fn([dataset[0], dataset[1]])
    assert batch["data_source"].tolist() == ["arithmetic", "étude"]
    assert batch["raw_prompt"][1] == [{"role": "user", "content": with_prompt(rows[1]["problem"])}]
    assert batch["reward_model"][0] == {"style": "rule", "ground_truth": "2"}
    extra_info = batch["extra_info"][1]
    assert (extra_info["split"], extra_info["index"]) == ("train", 1)
    nodes = inline_nodes(extra_info.get("nodes"))
    if not with_nodes:
        assert nodes is None
        return
    assert nodes is not None
    assert [(node.node_id, node.expressions, node.derived) for node in nodes] == [
        ("n1", ["2+1=3"], ["x=1"]),
        ("n2", ["y=2"], []),
    ]


def test_training_and_validation_have_the_same_columns(
    verl_dataset: Any, bench: ExportBench
) -> None:
    bare = held_out(2, nodes=[{"node_id": "n", "expressions": ["x"]}])
    bench.export(train(1), bare, inline_nodes=True)
    # verl puts files that are given together into one table, which needs equal types.
    assert len(verl_dataset("train.parquet", "val.parquet")) == 2
