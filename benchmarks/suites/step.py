"""A whole training step's rewards, and single samples as they come in, against plain Python.

Measured in verl's own environment (:mod:`benchmarks.children.verl_step`), because both sides
run as verl runs them; here is what both get, and what they have to find in it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import texts
from benchmarks.harness import verl_python
from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context
from benchmarks.texts import Batch

TITLE = "A whole step, and single samples, in verl's reward code"


def run(context: Context) -> SuiteResult:
    """Measure where verl is; say what to install where it is not."""
    return verl_python.measured(_measure, "step", TITLE, context)


def _measure(context: Context) -> SuiteResult:
    from benchmarks.children import verl_step  # needs verl

    return verl_step.measure(context)


# Long rollouts of reasoning models; the shorter ones would have to be joined.
_LONG = ("math_r1distill_long", "aime24_qwen3_32b", "olympiad_gptoss120b_very_long")


@dataclass(frozen=True)
class Step(Batch):
    """One step's rollouts; ``kind`` is where the texts come from, for a table."""

    kind: str

    def check(self, side: str, rewards: Sequence[float], tolerance: float = 0.0) -> None:
        """Compare rewards, half of Acc and half of NCR, with what is written into the texts.

        ``tolerance`` is for verl's tensors, which hold 32-bit numbers.

        Raises:
            ValueError: one is wrong; nothing is to be reported then.
        """
        for at, (row, reward) in enumerate(zip(self.rows, rewards, strict=True)):
            ncr = sum(row["expected"]) / len(row["expected"])
            right = 0.5 * row["correct"] + 0.5 * ncr
            if not abs(reward - right) <= tolerance:
                raise ValueError(f"{side}: rollout {at} gets {reward}, not {right}")


def make_step(count: int, size: int, seed: int, data: Path | None, folder: Path) -> Step:
    """Return ``count`` rollouts of about ``size`` bytes; their dataset is written to ``folder``.

    Real long rollouts where there are any, cut to size, with the nodes' steps and an answer
    written into them; generated ones otherwise.
    """
    made = texts.batch(count, size, seed, folder)
    if data is None:
        return Step(made.dataset, made.problems, made.rows, "generated")
    pieces = texts.cut(texts.real_rollouts(data, *_LONG), size)
    rows = _planted(pieces, made.problems, seed)[:count]
    return Step(made.dataset, made.problems, rows, "real")


def _planted(
    pieces: Sequence[str], problems: Sequence[Mapping[str, Any]], seed: int
) -> list[dict[str, Any]]:
    """Write about half of a problem's nodes into real texts, and an answer below."""
    rng = random.Random(f"planted {seed}")
    rows: list[dict[str, Any]] = []
    for problem in problems:
        for _ in range(texts.PER_PROBLEM):
            expected = [rng.random() < 0.5 for _ in problem["nodes"]]
            correct = rng.random() < 0.5
            paragraphs = pieces[len(rows) % len(pieces)].split("\n")
            for node, present in zip(problem["nodes"], expected, strict=True):
                if present:
                    line = f"So we have {node['expressions'][0]} here."
                    paragraphs.insert(rng.randrange(len(paragraphs)), line)
            answer = int(problem["ground_truth"]) + (0 if correct else 1)
            rows.append(
                {
                    "problem_id": problem["problem_id"],
                    "response": "\n".join([*paragraphs, f"\nAnswer: {answer}"]),
                    "ground_truth": problem["ground_truth"],
                    "expected": expected,
                    "correct": correct,
                }
            )
    return rows
