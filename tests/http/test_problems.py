"""Which problem a rollout answers, by its label or by the text in its prompt."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.http.json_body import Bounds
from consensuspr.http.problems import (
    MAX_FOUND,
    MAX_PROMPT_BYTES,
    MIN_BYTES,
    Namer,
    ProblemLabel,
    ProblemTexts,
    build,
    open_texts,
    read_label,
)
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.types import InlineNode
from tests.http.conftest import DUCKS

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


def test_nodes_with_what_decides_ncr() -> None:
    nodes = '[{"expressions": ["x"], "is_final": true, "weight": 0.5}]'
    for length, budget in (("", GuardBudget(9, 20)), (', "length": 70', GuardBudget(9, 20, 70))):
        written = f'{{"statements": 9, "numbers": 20{length}}}'
        label = label_of(f'{{"nodes": {nodes}, "budget": {written}}}')
        assert label.nodes == [InlineNode(["x"], is_final=True, weight=0.5)]
        assert label.budget == budget


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
        (
            '{"budget": 3}',
            "must be an object of statements, numbers and optionally length, got '3'",
        ),
        (
            '{"budget": {"numbers": 3}}',
            "budget in labels[3] must be an object of statements, numbers",
        ),
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
        (DUCKS, ProblemLabel(problem_id="other"), "other", ""),  # what it says is not doubted
        ("hello", ProblemLabel(), "", "the prompt holds no problem of dataset 'default'"),
        (DUCKS, ProblemLabel(ground_truth="19"), "", "'ducks', but the label '19' is not its"),
        (TWINS, ProblemLabel(ground_truth="B"), "twin-b", ""),
        (TWINS, ProblemLabel(), "", "problems 'twin-a', 'twin-b', and which is meant is unknown"),
        (f"{DUCKS}\n\n{TWINS}", ProblemLabel(ground_truth="A"), "twin-a", ""),  # an example first
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


TEXTS = [
    "Compute 3+4",
    "Compute 3+45",
    "Compute 3+4 and then subtract 2",
    "Let $x$ be real.\n  Find  x.",
    "为什么 𝑥+1 等于 2 呢？",
    "Compute 3+4",  # the same text again
    "tiny",
    "",
]


@pytest.mark.parametrize(
    ("prompt", "positions"),
    [
        ("Compute 3+45", [1]),
        ("<|user|>\nCompute 3+4\nThink.<|end|>", [0, 5]),
        ("Compute 3+4 and then subtract 2, please", [2]),  # not the shorter one within
        ("Compute 3+4. Then stop.", [0, 5]),
        ("Compute 3+4.5", []),  # a piece of a number
        ("Compute 3+456", []),
        ("xCompute 3+45", []),  # a piece of a word
        ("Compute 3+45 or else Compute 3+4", [1, 0, 5]),
        ("Q: Let $x$ be real. Find x. A:", [3]),  # white space collapsed
        ("Q:Let $x$\tbe real.\n\n\nFind x.", [3]),
        ("问：为什么 𝑥+1 等于 2 呢？答：", [4]),
        ("compute 3+45", []),
        ("tiny", []),
        ("", []),
    ],
)
def test_finds_the_texts_that_stand_by_themselves(prompt: str, positions: list[int]) -> None:
    found = build(enumerate(TEXTS)).find(prompt)
    assert found is not None
    assert [one.position for one in found] == positions


def test_short_texts_are_left_out() -> None:
    assert len(build(enumerate(TEXTS))) == sum(len(text.encode()) >= MIN_BYTES for text in TEXTS)


@given(
    st.lists(st.text(min_size=8, max_size=80), min_size=1, max_size=20),
    st.data(),
)
def test_every_text_is_found_in_a_template(problems: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(0, len(problems) - 1))
    text = " ".join(problems[wanted].split())
    found = build(enumerate(problems)).find(f"<|user|> {text} <|end|> think")
    assert found is not None
    covering = [problems[one.position] for one in found]
    if len(text.encode("utf-8", "surrogatepass")) >= MIN_BYTES:
        # Or one that holds it together with words of the template.
        assert any(text in " ".join(problem.split()) for problem in covering)


def test_a_saved_index_finds_the_same(tmp_path: Path) -> None:
    made = build(enumerate(TEXTS))
    made.save(tmp_path / "texts")
    opened = open_texts(tmp_path / "texts")
    for prompt in (*TEXTS, "Compute 3+45 or else Compute 3+4"):
        assert opened.find(prompt) == made.find(prompt)


def test_no_texts_at_all(tmp_path: Path) -> None:
    build([]).save(tmp_path / "texts")
    assert open_texts(tmp_path / "texts").find("anything at all") == []


@pytest.mark.parametrize(
    "prompt",
    [
        "Compute 3+4 " * (MAX_FOUND + 1),
        "x" * (MAX_PROMPT_BYTES + 1),
        "呢" * (MAX_PROMPT_BYTES // 2),
        "Compute " * 50_000,
    ],
)
def test_a_prompt_that_names_everything_is_given_up_soon(prompt: str) -> None:
    texts = build(enumerate([*TEXTS, "Compute Compute"]))
    start = time.perf_counter()
    assert texts.find(prompt) is None
    assert time.perf_counter() - start < 20


def test_many_problems_with_one_beginning() -> None:
    """Time follows the prompt, not the number of problems that begin alike."""
    problems = [f"Compute the following sum of several numbers: 1+{n}" for n in range(2000)]
    texts = build(enumerate(problems))
    prompt = f"<|user|>\n{problems[1234]}\nLet's think step by step.<|end|>\n"
    start = time.perf_counter()
    for _ in range(20):
        found = texts.find(prompt)
    assert time.perf_counter() - start < 20
    assert found is not None
    assert [one.position for one in found] == [1234]
