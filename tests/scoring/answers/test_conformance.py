"""Agreement with outside data, where it is at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from consensuspr.scoring.answers import AnswerVerifier

# A box before the end holds another number than the last sentence: here the last box is the answer.
KNOWN_DISAGREEMENTS = {"answer-074"}


def rows_of(path: Path) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_conformance(shared_dir: Path, verifier: AnswerVerifier) -> None:
    rows = rows_of(shared_dir / "conformance" / "answers.jsonl")
    verdicts = verifier.verify_batch([row["gold"] for row in rows], [row["pred"] for row in rows])
    disagreements = {
        row["id"]
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.correct is not row["equal"]
    }
    assert disagreements == KNOWN_DISAGREEMENTS


@pytest.mark.parametrize(
    ("name", "agreement", "without_sympy"),
    [
        ("gsm8k_gpt3", 0.999, 0.995), ("gsm8k_gpt4o_mini_and_older", 0.997, 0.995),
        ("math100_qwen25math", 0.995, 0.985), ("math_r1distill_long", 0.98, 0.985),
        ("aime24_gpt4o_claude35", 0.99, 0.98), ("aime24_qwen3_32b", 0.98, 0.985),
        ("olympiad_gptoss120b_very_long", 0.98, 0.985),
    ],
)  # fmt: skip
def test_labels_of_real_rollouts(
    name: str,
    agreement: float,
    without_sympy: float,
    shared_dir: Path,
    verifier: AnswerVerifier,
) -> None:
    rows = rows_of(shared_dir / "data" / "rollouts" / f"{name}.jsonl.gz")
    verdicts = verifier.verify_batch(
        [row["ground_truth"] for row in rows], [row["response"].encode() for row in rows]
    )
    agreed = sum(
        verdict.correct is row["correct"] for row, verdict in zip(rows, verdicts, strict=True)
    )
    fast = sum(verdict.method != "symbolic" for verdict in verdicts)
    assert agreed / len(rows) >= agreement
    assert fast / len(rows) >= without_sympy
