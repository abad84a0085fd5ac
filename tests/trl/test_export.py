"""Rows that ``consensusbench export --format trl`` wrote train in the real ``GRPOTrainer``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="trl is not installed: run make test-trl")
pytest.importorskip("torch", reason="torch is not installed: run make test-trl")

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from consensusbench.export.files import Export
from consensusbench.export.trainers import export_trl
from consensuspr.client import RewardSpec
from consensuspr.client.trl import consensus_reward
from tests.rows import write_rows
from tests.trl.conftest import PROBLEMS
from tests.trl.test_grpo import Recorded, expected, model, tokenizer

# Of torch, transformers and trl.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("inline", [False, True])
def test_exported_rows_train(
    inline: bool, address: str, dataset_file: Path, tmp_path: Path
) -> None:
    rows = [problem | {"split": "train"} for problem in PROBLEMS if problem["nodes"]]
    rows.append(rows[0] | {"problem_id": "held-out", "problem": "What?", "split": "test"})
    source = write_rows(tmp_path / "problems.jsonl", rows)
    export_trl(Export(source, tmp_path / "data", inline_nodes=inline))
    dataset = load_dataset(
        "parquet",
        data_files={"train": str(tmp_path / "data" / "train.parquet")},
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    processing = tokenizer()
    processing.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    recorded = Recorded(consensus_reward(address=address, reward="linear", alpha=0.5))
    GRPOTrainer(
        model=model(),
        reward_funcs=recorded.function,
        train_dataset=dataset,
        processing_class=processing,
        args=GRPOConfig(
            output_dir=str(tmp_path / "run"),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            max_steps=2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
    ).train()
    assert len(recorded.batches) == 2
    for batch in recorded.batches:
        assert set(batch["problem_id"]) == {"toy/1", "toy/2"}
        assert ("nodes" in batch) is inline
        spec = RewardSpec.linear(0.5, unanswered="zero")
        assert batch["rewards"] == expected(batch, dataset_file, spec)
