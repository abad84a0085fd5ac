"""The scorer in the real inspect_ai, on the log of a real evaluation of its mock model."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is missing: make test-trainers")

# Of what inspect_ai imports.
pytestmark = pytest.mark.filterwarnings("ignore")

NAN = math.nan
# Sample, what the model answers, and reward, Acc, NCR and status of the score.
SAMPLES: list[tuple[dict[str, Any], Any, tuple[float, float, float], str]] = [
    ({"id": "toy/1", "target": "2"}, "1+1=2. Answer: 2", (0.75, 1.0, 0.5), "OK"),
    ({"id": 2, "metadata": {"problem_id": "toy/2"}}, "1+1=2", (0.25, 0.0, 0.5), "OK"),
    ({"id": 3, "metadata": {"data_source": "toy", "index": 1}}, "no", (0.0, 0.0, 0.0), "OK"),
    ({"id": "bare", "target": "5"}, "Answer: 5", (NAN, 1.0, NAN), "NO_NODES"),
    ({"id": "nobody"}, "1+1=2", (NAN, NAN, NAN), "UNKNOWN_PROBLEM"),
    ({"id": 6, "target": ["a", "2"]}, "Answer: 2", (NAN, NAN, NAN), "UNKNOWN_PROBLEM"),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of two epochs; its few-shot example is not the model's."""
    from inspect_ai.dataset import Sample
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageUser,
        ContentReasoning,
        ContentText,
        ModelOutput,
        ModelUsage,
        get_model,
    )

    def samples() -> list[Any]:
        chats = [
            [
                ChatMessageUser(content="What is two and two?"),
                ChatMessageAssistant(content="2+2=4"),
                ChatMessageUser(content=f"Question {at}"),
            ]
            for at in range(len(SAMPLES))
        ]
        return [Sample(input=chat, **row) for chat, (row, *_) in zip(chats, SAMPLES, strict=True)]

    def reply(chat: list[Any], *_: Any) -> Any:
        said = SAMPLES[int(chat[-1].text.split()[-1])][1]
        thought, _, rest = said.rpartition(". ")
        parts = [ContentReasoning(reasoning=thought), ContentText(text=rest)]
        output = ModelOutput.from_content("mockllm/model", parts if thought else rest)
        # Else the mock counts tokens by a file of the internet.
        output.usage = ModelUsage(output_tokens=10, total_tokens=10)
        return output

    folder = tmp_path_factory.mktemp("logs")
    [done] = inspect_ai.eval(
        inspect_ai.Task(dataset=samples(), epochs=2),
        model=get_model("mockllm/model", custom_outputs=reply),
        log_dir=str(folder),
        display="none",
        score=False,
    )
    assert done.status == "success", done.error and done.error.message
    return Path(done.location)


def values(sample: Any) -> tuple[float, ...]:
    value = sample.scores["nodes"].value
    return tuple(value.values()) if isinstance(value, dict) else (value,) * 3


def test_a_log_is_scored_by_the_command_line(
    log: Path, dataset_file: Path, address: str, tmp_path: Path
) -> None:
    scored = tmp_path / "scored.eval"
    command = [sys.executable, "-m", "inspect_ai", "score", str(log), "--action", "append"]
    command += ["--scorer", "consensuspr/nodes", "--output-file", str(scored)]
    settings = ["-S", f"address={address}", "-S", f"dataset_path={dataset_file}"]
    # Elsewhere: an egg-info that a build left in the working directory hides what is installed.
    done = subprocess.run(
        command + settings, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read = inspect_ai.log.read_eval_log(str(scored))
    for sample in read.samples:
        row, _, expected, status = next(case for case in SAMPLES if case[0]["id"] == sample.id)
        assert values(sample) == pytest.approx(expected, nan_ok=True), row
        score = sample.scores["nodes"]
        reason = None if status == "OK" else status
        assert (score.metadata["status"], score.reason) == (status, reason)
        assert score.metadata["tpn"] == (10 if expected[2] == 0.5 else None)
    # Over samples, as inspect_ai reduces epochs first.
    assert {
        score.name: (score.metrics["mean"].value, score.scored_samples, score.unscored_samples)
        for score in read.results.scores
    } == {
        "reward": (pytest.approx(1 / 3), 3, 3),
        "acc": (0.5, 4, 2),
        "ncr": (pytest.approx(1 / 3), 3, 3),
    }


def test_a_sample_that_the_service_does_not_score_is_unscored(log: Path) -> None:
    from consensuspr.client.inspect_ai import nodes

    away = nodes(address="127.0.0.1:1", timeout_s=0.5)
    read = inspect_ai.score(
        inspect_ai.log.read_eval_log(str(log)), away, action="append", display="none"
    )
    for sample in read.samples:
        score = sample.scores["nodes"]
        assert math.isnan(score.value) and score.reason == "scoring_failed"
        assert "127.0.0.1:1" in score.explanation
    assert {score.scored_samples for score in read.results.scores} == {0}
