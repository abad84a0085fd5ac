"""examples/smollm2: its Llama against Hugging Face's, its sampler, its problems, a run in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: run make test-verl")
pytest.importorskip("transformers", reason="transformers is not installed: run make test-verl")

import torch
from arithmetic_grpo.model import response_log_probs
from typer.testing import CliRunner

from examples.smollm2.__main__ import app
from examples.smollm2.model import Llama, Sampler, tiny
from examples.smollm2.problems import parse, read
from examples.study.task import draw_stories

# On a busy machine, threads of torch wait for each other most of the time.
torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(300)

PROMPTS = [[5, 6, 7], [8], [20, 21, 22, 23, 24, 25], [9, 9], [30, 31]]


@pytest.fixture(scope="module")
def theirs() -> Any:
    """A model whose next token is far from certain, and depends on those before."""
    model, _ = tiny(seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return model


def test_llama_is_that_of_hugging_face(theirs: Any) -> None:
    ids = torch.randint(5, 90, (3, 20), generator=torch.Generator().manual_seed(0))
    ours = Llama(theirs)
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(ours(ids)), theirs(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("greedy", [True, False])
def test_samples_are_of_the_model_as_it_is_trained(theirs: Any, greedy: bool) -> None:
    """Prompts of several lengths, fewer than rows in the second call, weights that change."""
    ours, end, tokens = Llama(theirs), 1, 70
    sampler = Sampler(ours, end, rows=3, longest=6, max_tokens=tokens)
    sampler(PROMPTS, None)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.9)
    responses = sampler(PROMPTS, None if greedy else torch.Generator().manual_seed(7))
    again = torch.Generator().manual_seed(7)
    drawn = torch.cat([torch.rand(3, tokens, generator=again) for _ in range(2)])
    # Rows that end, and rows that are cut off.
    assert greedy or {response[-1] == end for response in responses} == {True, False}
    for prompt, response, numbers in zip(PROMPTS, responses, drawn[: len(PROMPTS)], strict=True):
        assert end not in response[:-1]
        with torch.no_grad():
            logits = ours.logits(ours(torch.tensor([prompt + response])))[0, len(prompt) - 1 : -1]
        chances = logits.softmax(-1)
        for token, of_token, number in zip(response, chances, numbers, strict=False):
            if greedy:
                assert of_token[token] >= of_token.max() - 1e-5
            else:
                before = float(of_token[:token].sum())
                assert before - 1e-4 <= number <= before + float(of_token[token]) + 1e-4


def test_log_probs_are_those_of_hugging_face(theirs: Any) -> None:
    responses = [[40, 41, 42], [50], [60, 61]]
    found = response_log_probs(Llama(theirs), PROMPTS[:3], responses)
    for prompt, response, row in zip(PROMPTS, responses, found, strict=False):
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(response)), response]
        torch.testing.assert_close(row[: len(response)], expected, rtol=1e-3, atol=1e-4)
        assert not row[len(response) :].any()


CLIPS = "May: 48/2 = <<48/2=24>>24.\nAll: 48+24 = <<48+24=72>>72.\n#### 72"


def test_annotations_are_nodes_and_not_in_the_solution() -> None:
    example = parse("clips", "How many?", CLIPS)
    assert example
    assert example.solution == "May: 48/2 = 24.\nAll: 48+24 = 72.\nAnswer: 72"
    nodes = [(node.expressions, node.is_final) for node in example.problem.nodes]
    assert nodes == [(("48/2=24",), False), (("48+24=72",), True)]
    assert example.problem.ground_truth == "72"


@pytest.mark.parametrize(
    "answer",
    [
        "It is 7.\n#### 7",
        "All: 3+4 = <<3+4=7>>7.\n#### 7",
        "All: 3+4 = <<3+4=7>>7, that is <<3+4=7>>7.\n#### 7",
        # Without the annotation, the text does not reach the first node.
        "She has some <<2*2=4>>more.\nAll: 3+4 = <<3+4=7>>7.\n#### 7",
    ],
)
def test_problems_without_usable_nodes_are_left_out(answer: str) -> None:
    assert parse("problem", "How many?", answer) is None


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """Problems of our own in GSM8K's format."""
    path = tmp_path / "train.jsonl"
    with path.open("w") as out:
        for story, _ in zip(draw_stories(1), range(24), strict=False):
            equations = [node.expressions[0] for node in story.nodes()]
            steps = "\n".join(f"{e} <<{e}>>{e.split('=')[1]}" for e in equations)
            result = equations[-1].split("=")[1]
            row = {"question": story.text, "answer": f"{steps}\n#### {result}"}
            out.write(json.dumps(row) + "\n")
    return path


def test_a_run_in_small(gsm8k: Path, tmp_path: Path) -> None:
    assert len(read(gsm8k)) == 24
    output = tmp_path / "results.json"
    arguments = ["run", "--gsm8k", str(gsm8k), "--output", str(output), "--smoke"]
    arguments += ["--learning-rate", "5e-5"]
    printed = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert printed.exit_code == 0
    results = json.loads(output.read_text())
    assert results["settings"]["learning_rate"] == 5e-5
    outcome, linear = results["runs"]
    assert [row["run"] for row in (outcome, linear)] == [
        {"arm": "outcome", "seed": 0}, {"arm": "linear", "seed": 0},
    ]  # fmt: skip
    # The same start, and the same random numbers.
    assert {name: values[0] for name, values in outcome["curve"].items()} == {
        name: values[0] for name, values in linear["curve"].items()
    }
    for row in (outcome, linear):
        assert row["train"]["step"] == [1, 2]
        assert row["curve"]["step"] == [0, 1, 2]
        assert row["final"]["step"] == 2
    shown = CliRunner().invoke(app, ["report", str(output)], catch_exceptions=False)
    assert shown.stdout in printed.stdout
    assert "| 0 | linear |" in shown.stdout
