"""Texts that are one problem, texts that are not, and the paper's prompt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consensusbench.problems.texts import rough_key, text_key, with_prompt


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Find  $x$.\n", " Find $x$."),
        ("Find $x$.", r"Find \(x\)."),
        ("Solve $$x=1$$ now.", "Solve\n\\[x = 1\\]\nnow."),
        ("If $a,b$ are", "If $a,\\, b$ are"),
        ("$x + 1 = 2$", "$x+1=2$"),
        (r"$\dfrac{1}{2}$ and $\tfrac12$", r"$\frac{1}{2}$ and $\frac12$"),
        (r"$\left( 1, 2 \right]$", "$(1,2]$"),
        ("number $c,$ the graphs", "number $c$, the graphs"),
        ("It costs $5.", r"It costs \$5."),
        ("Ann’s “half”", 'Ann\'s "half"'),
        (r"a\quad b~c\;d", "a b c d"),
    ],
)
def test_typesetting_makes_no_other_problem(first: str, second: str) -> None:
    assert text_key(first) == text_key(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Find $x$.", "Find $X$."),
        ("Add 1 2 and 3.", "Add 12 and 3."),
        ("$z^4 + z^2 + 1$", "$z^4 - z^2 + 1$"),
        ("Is a < b?", "Is a > b?"),
        (r"$\frac{1}{23}$", r"$\frac{12}{3}$"),
        (r"$\overline{r}_1$", r"$\overline{r_1}$"),
        (r"$\leftarrow$", r"$\arrow$"),
        (r"rows a\\,b", "rows a,b"),
        ("x_1", "x 1"),
        ("Which of 2.5", "Which of 25"),
    ],
)
def test_other_differences_count(first: str, second: str) -> None:
    assert text_key(first) != text_key(second)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (r"$\overline{r}_1$ of A.", r"$\overline{r_1}$ of a", True),
        ("(Two are prime.)", "Two are prime", True),
        ("$z^4 + z^2 + 1$", "$z^4 - z^2 + 1$", False),
        ("Is a < b?", "Is a > b?", False),
        ("已知 x=1，求 y。", "已知 x=1, 求 y.", True),
        ("?:", ":?", False),
    ],
)
def test_the_rough_key_keeps_letters_digits_and_signs(first: str, second: str, same: bool) -> None:
    assert (rough_key(text_key(first)) == rough_key(text_key(second))) is same


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
