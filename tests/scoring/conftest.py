"""A small dataset and verifiers for the tests of the scorer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer
from consensuspr.scoring.answers import AnswerStatus, Verdict
from tests.rows import write_rows

PROBLEMS: list[dict[str, Any]] = [
    {
        "problem_id": "duck",
        "data_source": "gsm8k",
        "ground_truth": "18",
        "nodes": [
            {"node_id": "left", "label": "eggs left", "expressions": ["16-3-4=9"], "derived": []},
            {
                "node_id": "money",
                "label": "money",
                "expressions": ["9*2=18"],
                "derived": ["2*9=18"],
                "is_final": True,
            },
            {"node_id": "never", "label": "out of reach", "expressions": ["y=777"], "derived": []},
        ],
    },
    {"problem_id": "bare", "ground_truth": "5", "nodes": []},
    {
        "problem_id": "open",
        "nodes": [
            {"node_id": "a", "expressions": ["x=55"], "derived": []},
            {"node_id": "b", "expressions": ["x=66"], "derived": []},
        ],
    },
    {"problem_id": "nothing", "nodes": []},
]


class ScriptedVerifier(AnswerVerifier):
    """Decides by words in the response, so that every outcome can be had at will.

    ``RIGHT`` and ``WRONG`` are decided, ``HARD`` stays undecided, ``CRASH`` raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def verify(self, ground_truth: str, response: str | bytes, rule: Any = "auto") -> Verdict:
        text = response if isinstance(response, str) else response.decode("utf-8", "replace")
        self.seen.append((ground_truth, str(rule)))
        if "CRASH" in text:
            raise RuntimeError("scripted crash")
        if "HARD" in text:
            return Verdict(None, "hard", AnswerStatus.UNDECIDED, "budget")
        return Verdict("RIGHT" in text, "it", AnswerStatus.DECIDED, "scripted")

    def verify_batch(
        self,
        ground_truths: Sequence[str],
        responses: Sequence[str | bytes],
        rule: Any = "auto",
        deadline: float | None = None,
    ) -> list[Verdict]:
        pairs = zip(ground_truths, responses, strict=True)
        return [self.verify(truth, response, rule) for truth, response in pairs]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetIndex:
    return DatasetIndex.load(write_rows(tmp_path_factory.mktemp("dataset") / "set.jsonl", PROBLEMS))


@pytest.fixture
def scripted() -> Iterator[ScriptedVerifier]:
    with ScriptedVerifier() as verifier:
        yield verifier


@pytest.fixture
def scorer(dataset: DatasetIndex, scripted: ScriptedVerifier) -> Scorer:
    """A scorer whose answer check follows the words of the response."""
    return Scorer({"default": dataset}, verifier=scripted)


@pytest.fixture(scope="session")
def real_scorer(dataset: DatasetIndex) -> Iterator[Scorer]:
    """A scorer with the answer check that users get."""
    with AnswerVerifier() as verifier:
        yield Scorer({"default": dataset}, verifier=verifier)
