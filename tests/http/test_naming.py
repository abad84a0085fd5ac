"""What a label says, and which problem is meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consensuspr.errors import InputError
from consensuspr.http.json_body import Bounds
from consensuspr.http.problems import Namer, ProblemLabel, ProblemTexts, read_label
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import InlineNode

DUCKS = "Janet's ducks lay 16 eggs per day. She eats 3 and bakes with 4. What do 9 at $2 make?"
TWINS = "Which of the two twins is the older one?"


def label_of(written: str) -> ProblemLabel:
    body = written.encode()
    return read_label(body, Bounds(0, len(body)), "labels[3]")


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("null", ProblemLabel()),
        ('""', ProblemLabel()),
        ('"  "', ProblemLabel()),
        ('"42"', ProblemLabel(ground_truth="42")),
        ("42", ProblemLabel(ground_truth="42")),
        ("0.10", ProblemLabel(ground_truth="0.10")),  # as written
        ('"{1, 2}"', ProblemLabel(ground_truth="{1, 2}")),  # a set, no object
        ('"{}"', ProblemLabel(ground_truth="{}")),
        ('"{\\"a\\": 1}"', ProblemLabel(ground_truth='{"a": 1}')),
        ('{"problem_id": "p"}', ProblemLabel(problem_id="p")),
        ('{"problem_id": 7, "ground_truth": 42}', ProblemLabel(problem_id="7", ground_truth="42")),
        ('{"ground_truth": null}', ProblemLabel()),
        ('{"data_source": "toy"}', ProblemLabel(data_source="toy")),
        ('{"nodes": [["1+1=2", "2"]]}', ProblemLabel(nodes=[["1+1=2", "2"]])),
    ],
)
def test_labels(written: str, label: ProblemLabel) -> None:
    assert label_of(written) == label


@pytest.mark.parametrize("written", [{"problem_id": "p", "ground_truth": "4"}, {"nodes": []}])
def test_an_object_may_come_as_text(written: dict[str, Any]) -> None:
    assert label_of(json.dumps(json.dumps(written))) == label_of(json.dumps(written))


def test_nodes_with_names() -> None:
    label = label_of('{"nodes": [{"node_id": "a", "expressions": ["x"], "derived": ["y"]}]}')
    assert label.nodes == [InlineNode(expressions=["x"], node_id="a", derived=["y"])]


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("true", "labels[3] must be a string, a number or an object, got bool"),
        ("[1]", "labels[3] must be a string, a number or an object, got list"),
        ('{"problemid": "p"}', "labels[3] has the unknown key 'problemid'; known: problem_id"),
        ('"{\\"problem_id\\": \\"p\\", \\"x\\": 1}"', "labels[3] has the unknown key 'x'"),
        ('{"problem_id": ["p"]}', "problem_id in labels[3] must be a string, got list"),
        ('{"problem_id": true}', "problem_id in labels[3] must be a string, got bool"),
        ('{"nodes": "x"}', "nodes in labels[3] must be a list, got str"),
        ('{"nodes": ["x"]}', "a node in labels[3] must be a list of expressions"),
        ('{"nodes": [{"expression": []}]}', "a node in labels[3] must be"),
        ('{"nodes": [{"derived": "x"}]}', "derived of a node in labels[3] must be a list"),
    ],
)
def test_wrong_labels(written: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        label_of(written)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("prompt", "label", "problem_id", "reason"),
    [
        (DUCKS, ProblemLabel(), "ducks", ""),
        (f"<|user|>\n{DUCKS}\nThink.<|end|>", ProblemLabel(ground_truth=" 18"), "ducks", ""),
        (
            DUCKS,
            ProblemLabel(problem_id="other"),
            "other",
            "",
        ),  # what the label says is not doubted
        ("hello", ProblemLabel(), "", "the prompt holds no problem of dataset 'default'"),
        (
            DUCKS,
            ProblemLabel(ground_truth="19"),
            "",
            "'ducks', but the label '19' is not its ground",
        ),
        (TWINS, ProblemLabel(ground_truth="B"), "twin-b", ""),
        (
            TWINS,
            ProblemLabel(),
            "",
            "the problems 'twin-a', 'twin-b', and which is meant is unknown",
        ),
        (
            f"{DUCKS}\n\n{TWINS}",
            ProblemLabel(ground_truth="A"),
            "twin-a",
            "",
        ),  # a worked example first
        (f"{DUCKS}\n\nWhat is two plus three?", ProblemLabel(), "", "which is meant is unknown"),
        ("x" * (2 << 20), ProblemLabel(), "", "too long"),
    ],
)
def test_which_problem_is_meant(
    index: DatasetIndex,
    texts: ProblemTexts,
    prompt: str,
    label: ProblemLabel,
    problem_id: str,
    reason: str,
) -> None:
    naming = Namer(index, texts).name(prompt, label)
    assert naming.problem_id == problem_id
    assert reason in naming.reason
    assert bool(naming.reason) == (problem_id == "")
