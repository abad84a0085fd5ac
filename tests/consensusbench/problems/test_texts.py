"""Texts that are one problem, texts that are not, and the paper's prompt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consensusbench.problems.texts import rough_key, text_key, with_prompt


@pytest.mark.parametrize(
    ("first", "second", "same", "roughly"),
    [
        ("Find  $x$.\n", " Find $x$.", True, True),
        ("Find $x$.", r"Find \(x\).", True, True),
        ("Solve $$x=1$$ now.", "Solve\n\\[x = 1\\]\nnow.", True, True),
        ("If $a,b$ are", "If $a,\\, b$ are", True, True),
        (r"$\dfrac{1}{2}$ and $\tfrac12$", r"$\frac{1}{2}$ and $\frac12$", True, True),
        (r"$\left( 1, 2 \right]$", "$(1,2]$", True, True),
        ("It costs $5.", r"It costs \$5.", True, True),
        ("Ann’s “half”", 'Ann\'s "half"', True, True),
        (r"a\quad b~c\;d", "a b c d", True, True),
        ("Find $x$.", "Find $X$.", False, True),
        (r"$\overline{r}_1$ of A.", r"$\overline{r_1}$ of a", False, True),
        ("(Two are prime.)", "Two are prime", False, True),
        ("已知 x=1，求 y。", "已知 x=1, 求 y.", False, True),
        ("Which of 2.5", "Which of 25", False, True),
        ("Add 1 2 and 3.", "Add 12 and 3.", False, True),
        (r"$\frac{1}{23}$", r"$\frac{12}{3}$", False, True),
        ("x_1", "x 1", False, True),
        ("$z^4 + z^2 + 1$", "$z^4 - z^2 + 1$", False, False),
        ("Is a < b?", "Is a > b?", False, False),
        (r"$\leftarrow$", r"$\arrow$", False, False),
        ("?:", ":?", False, False),
    ],
)
def test_typesetting_makes_no_other_problem_and_signs_do(
    first: str, second: str, same: bool, roughly: bool
) -> None:
    keys = text_key(first), text_key(second)
    assert (keys[0] == keys[1]) is same
    assert (rough_key(keys[0]) == rough_key(keys[1])) is roughly


def test_a_long_text_takes_no_long_time() -> None:
    """Linear: a hostile megabyte is done in a moment, where a quadratic scan would take hours."""
    assert len(text_key("\\" * 1_000_000)) == 1_000_000
    assert text_key(" ," * 500_000) == "," * 500_000


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


def test_a_prompt_is_not_put_around_a_prompt() -> None:
    once = with_prompt("What is 1 + 1?")
    assert with_prompt(once) == once
    assert with_prompt(f" {once}\n") == once
