"""Finding the problem that a prompt holds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.http.problems import MAX_FOUND, MAX_PROMPT_BYTES, MIN_BYTES, build, open_texts

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
    assert time.perf_counter() - start < 2


def test_many_problems_with_one_beginning() -> None:
    """Time follows the prompt, not the number of problems that begin alike."""
    problems = [f"Compute the following sum of several numbers: 1+{n}" for n in range(2000)]
    texts = build(enumerate(problems))
    prompt = f"<|user|>\n{problems[1234]}\nLet's think step by step.<|end|>\n"
    start = time.perf_counter()
    for _ in range(20):
        found = texts.find(prompt)
    assert time.perf_counter() - start < 1
    assert found is not None
    assert [one.position for one in found] == [1234]
