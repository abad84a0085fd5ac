"""The prompt is the paper's, and its answer line is what the reward's rule looks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consensusbench.export import with_prompt
from consensuspr.scoring import verify_answer


def test_the_prompt_is_the_papers(shared_dir: Path) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (shared_dir / "paper").glob("*.txt")]
    if not sources:
        pytest.skip("the outside data have no paper")
    [box] = re.findall(
        r"\\begin\{tcolorbox\}\[.*?title=Prompt for Quesiton Answering\](.*?)\\end\{tcolorbox\}",
        sources[0],
        flags=re.DOTALL,
    )
    plain = box.replace(r"\\", "").replace(r"\$", "$").replace(r"\textsc{your question here}", "Q?")
    quoted = [line.strip() for line in plain.splitlines() if line.strip()]
    assert with_prompt("Q?").split("\n\n") == quoted


@pytest.mark.parametrize("text", [r"Is $\frac{1}{2}$ {half}?", "  a\n\nb  ", "%s {0} $Answer"])
def test_a_problem_stands_in_the_prompt_as_it_is(text: str) -> None:
    assert f"\n\n{text.strip()}\n\n" in with_prompt(text)


def test_a_prompt_is_not_put_around_a_prompt() -> None:
    once = with_prompt("What is 1 + 1?")
    assert with_prompt(once) == once
    assert with_prompt(f" {once}\n") == once


def test_an_answer_as_asked_for_is_found_by_the_rule_of_the_recipes() -> None:
    assert verify_answer("2", "One and one.\n\nAnswer: $2$", rule="dapo").correct
