"""Rule dapo agrees with verl's math_dapo, odd corners included."""

from __future__ import annotations

import pytest

from consensuspr.scoring.answers import AnswerStatus
from consensuspr.scoring.answers.verifier import normalize_answer, verify_dapo


@pytest.mark.parametrize(
    "response",
    [
        "answer:7",
        "Answer: $7$.",
        "Answer: x=7",
        "Answer: 7 dollars",
        "Answer:\n7",
        "ANSWER :  7",
        "Answer: 8\nAnswer: 7",
        r"Answer: \boxed{7}",
        r"Answer: \text{7}",
        "the Answer: 7" + " " * 286,
        r"\boxed{7}",
        r"\boxed{6} no, \boxed{7}",
        "Answer: [INVALID]\n" + r"\boxed{7}",
    ],
)
def test_right(response: str) -> None:
    assert verify_dapo("7", response).correct is True
    assert verify_dapo("7", response.encode()).correct is True


@pytest.mark.parametrize(
    "response",
    [
        "Answer: 7.",
        "Answer: 7.0",
        "**Answer:** 7",
        "Answer: 14/2",
        "7",
        "#### 7",
        "The answer is 7",
        r"\boxed{7.0}",
        r"\boxed{ 7 }",
        "Answer: 7" + "." * 300,
        r"\boxed{7}" + "." * 100,
        "Answer: 7\nAnswer: 8",
        r"Answer: 8 \boxed{7}",
    ],
)
def test_wrong(response: str) -> None:
    assert verify_dapo("7", response).correct is False
    assert verify_dapo("7", response.encode()).correct is False


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("m+n = 15", "15"),
        ("1,234", "1234"),
        ("1,2", "12"),
        ("1,2,x", "1,2,x"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"90^\circ", "90"),
        (r"5\text{ cm}", "5"),
        (r"10\ \mbox{m}", "10"),
        ("$3$ apples", "3"),
        ("a cat", "cat"),
        ("12 square inches", "12"),
        (r"\overline{AB}", "AB"),
        (r"1{,}000", "1000"),
    ],
)
def test_normal_form(written: str, compared: str) -> None:
    assert normalize_answer(written) == compared


def test_the_box_is_compared_as_it_stands() -> None:
    assert verify_dapo(r"\frac{1}{2}", r"\boxed{\frac{1}{2}}").correct is True
    assert verify_dapo(r"\frac{1}{2}", r"\boxed{\frac12}").correct is False
    assert verify_dapo(r"\frac{1}{2}", r"Answer: \frac12").correct is True


def test_nothing_announced_is_no_answer() -> None:
    verdict = verify_dapo("7", "we get 7")
    assert (verdict.status, verdict.correct, verdict.answer) == (
        AnswerStatus.NO_ANSWER,
        False,
        None,
    )


def test_the_method_names_the_rule() -> None:
    assert verify_dapo("7", "Answer: 7").method == "dapo"
    assert verify_dapo("7", r"\boxed{7}").method == "dapo-boxed"
