"""What a caller of the verifier sees: verdicts by rule, verl's own rule, batches, the cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from consensuspr.scoring import AnswerRule
from consensuspr.scoring.answers import AnswerStatus, AnswerVerifier, Verdict
from consensuspr.scoring.answers.dapo import normalize_answer, verify_dapo

# (ground truth, answer, equal): cases of computer algebra
SYMBOLIC = [
    ("(1,2)", "1 < x < 2", False), (r"\sin^2 x + \cos^2 x", "1", True), (r"\log_2 8", "3", True),
    ("e^2", "7.389056", True),
    # What is calculated with infinity has no value, whatever computer algebra makes of it.
    ("5", r"\infty^{\infty}", False), (r"\frac{3}{7}", r"\infty^{2}", False),
    ("0", r"\infty!", False), (r"\infty", r"2^{\infty}", False),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "equal"), SYMBOLIC)
def test_computer_algebra(verifier: AnswerVerifier, gold: str, answer: str, equal: bool) -> None:
    verdict = verifier.verify(gold, rf"\boxed{{{answer}}}")
    assert (verdict.correct, verdict.method) == (equal, "symbolic")


@pytest.mark.parametrize(
    ("gold", "response", "answer", "method"),
    [
        ("18", r"\boxed{18}", "18", "canonical"), ("18", "Answer: 18.0", "18.0", "rational"),
        ("odd", r"\boxed{\text{Odd}}", r"\text{Odd}", "text"),
        ("(1, 2)", r"\boxed{(1.0, 2)}", "(1.0, 2)", "elements"),
        (r"\sqrt{2}", r"\boxed{1.414214}", "1.414214", "numeric"),
        (r"\sqrt{8}", r"\boxed{2\sqrt{2}}", r"2\sqrt{2}", "algebraic"),
        (r"\sqrt[3]{16}", r"\boxed{2\sqrt[3]{2}}", r"2\sqrt[3]{2}", "symbolic"),
    ],
)  # fmt: skip
def test_the_method_tells_how_much_generosity_it_took(
    verifier: AnswerVerifier, gold: str, response: str, answer: str, method: str
) -> None:
    expected = Verdict(True, answer, AnswerStatus.DECIDED, method)
    assert verifier.verify(gold, response) == expected
    assert verifier.verify(gold, response.encode()) == expected


@pytest.mark.parametrize(
    ("response", "right"),
    [
        (r"\boxed{7}", {"auto", "boxed", "dapo"}), (r"\boxed{7.0}", {"auto", "boxed"}),
        ("Answer: 7", {"auto", "dapo"}), ("Answer: 7.0", {"auto"}), ("**Answer:** 7", {"auto"}),
        ("#### 7", {"auto", "gsm8k"}), ("#### 7.00", {"auto", "gsm8k"}), ("it must be 7", {"auto"}),
        ("it must be 8", set()),
    ],
)  # fmt: skip
def test_strict_rules_are_strict(verifier: AnswerVerifier, response: str, right: set[str]) -> None:
    found = {rule.value for rule in AnswerRule if verifier.verify("7", response, rule).correct}
    assert found == right


@pytest.mark.parametrize(
    ("gold", "response", "correct"),
    [
        (r"so it is $\boxed{18}$", "18", True), ("He has 9 * 2 = 18\n#### 18", r"\boxed{18}", True),
        (r"\boxed{1}\boxed{2}", r"\boxed{2, 1}", True),
        ("$125$ miles", r"\boxed{125\textnormal{ miles}}", True),
        ("$21,16$ or $11$", "$21,16,11$", True), ("24", r"\boxed{Ann is 24}", True),
        ("24", r"\boxed{between 23 and 24}", False),
        ("(3,3),(1,1)", r"\boxed{(3, 3)} \text{ for part (a) and } \boxed{(1, 1)}", True),
        ("7", r"\boxed{3} and then \boxed{7}", True), ("7", r"\boxed{3} and \boxed{7}", True),
        ("3", r"\boxed{3, 7}", False), ("42", "42. The answer is well formatted", True),
        # words behind a mark with a colon are the answer, unless a number follows them
        ("42", "6 * 7 = 42. Answer: I do not know", False), ("42", "42. Answer: unknown", False),
        ("42", "so 42. Answer: I do not know the answer to this one, sorry.", False),
        ("42", "**Answer:** Ann's age.\n\nAnn is 42 years old.", True),
        ("42", "Answer: Let x be the number. Then x = 42.", True),
        ("42", "so 42. Checking the answer: correct.", True),
        # what a reason states is not the answer
        ("5", "The answer is x = 5, because 2x = 10.", True),
        ("42", "Answer: with n = 4, because n is even, we get 42", True),
        ("42", "Answer: In 2020, since the rate is up, the total is 42", True),
        ("10", r"\boxed{4 blue shoeboxes and 6 red shoeboxes}", False),
        ("24", r"\boxed{Jim is 8 years old}", False),
        ("3", r"\boxed{\text{Answer: Not enough information.}}", False),
        ("16", r"\boxed{N/A}", False),
        # beyond the fast path's numbers on both sides
        ("5", r"\boxed{\frac{x}{(10^{16})^{16}}<\frac{1}{(10^{16})^{16}}}", False),
        # words and signs that change the number beside them
        ("5", r"\boxed{minus 5 degrees celsius}", False),
        ("16", r"\boxed{sqrt(16) square units}", False), ("3", r"\boxed{3 squared}", False),
        ("0", r"\boxed{y(0)}", False), ("5", r"\boxed{[5,5]}", True),
    ],
)  # fmt: skip
def test_ground_truths_and_answers_as_people_write_them(
    verifier: AnswerVerifier, gold: str, response: str, correct: bool
) -> None:
    assert verifier.verify(gold, response).correct is correct


@pytest.mark.parametrize("rule", list(AnswerRule))
@pytest.mark.parametrize(
    "response", ["", "   ", "no idea, sorry about that", "\x00\x00", b"\xff\xfe"]
)
def test_no_answer_is_wrong_and_says_so(
    verifier: AnswerVerifier, rule: AnswerRule, response: str | bytes
) -> None:
    verdict = verifier.verify("7", response, rule)
    assert verdict.correct is False
    assert verdict.answer is None or rule is AnswerRule.AUTO
    if verdict.answer is None:
        assert verdict.status is AnswerStatus.NO_ANSWER


@pytest.mark.parametrize("gold", ["", "  ", "$$", r"\text{}"])
def test_an_empty_ground_truth_decides_nothing(verifier: AnswerVerifier, gold: str) -> None:
    expected = (None, None, AnswerStatus.UNDECIDED, "no-ground-truth")
    verdict = verifier.verify(gold, r"\boxed{7}")
    assert verdict._replace(answer=None) == expected


def test_a_batch_keeps_its_order(verifier: AnswerVerifier) -> None:
    golds = ["1", r"\sqrt[3]{16}", "2", r"\sin x", "3", r"\sqrt[3]{54}"]
    answers = ["1", r"2\sqrt[3]{2}", "5", r"\cos x", "3", r"3\sqrt[3]{2}"]
    verdicts = verifier.verify_batch(golds, [rf"\boxed{{{answer}}}" for answer in answers])
    assert [verdict.answer for verdict in verdicts] == answers
    slow = [verdict.method == "symbolic" for verdict in verdicts]
    assert slow == [False, True, False, True, False, True]
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False, True, True]
    assert verifier.verify_batch([], []) == []


def test_a_repeated_answer_is_computed_once(impatient: AnswerVerifier) -> None:
    poison = r"\boxed{(a+b+c+d+e+f+g)^{187}}"
    verdicts = impatient.verify_batch(["x+1"] * 50, [poison] * 50)
    assert {verdict.method for verdict in verdicts} == {"budget"}
    started = time.monotonic()
    assert impatient.verify("x+1", poison).method == "budget"
    assert time.monotonic() - started < 0.4, "less than its budget"


def test_the_deadline_ends_the_wait(verifier: AnswerVerifier) -> None:
    poison = r"\boxed{(a+b+c+d+e+f+g)^{188}}"
    started = time.monotonic()
    verdicts = verifier.verify_batch(
        ["x+1", "7"], [poison, r"\boxed{7}"], deadline=time.monotonic() + 0.1
    )
    assert time.monotonic() - started < 20
    assert [verdict.method for verdict in verdicts] == ["load", "canonical"]
    assert verdicts[0].correct is None
    # What a deadline left open is not remembered.
    assert verifier.verify("x+1", poison).method == "budget"


def test_only_while_a_worker_is_waited_for_others_are_let_go_first() -> None:
    waits: list[str] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append("begun")
        yield
        waits.append("ended")

    with AnswerVerifier(while_waiting=waiting) as verifier:
        assert verifier.verify("7", r"\boxed{7}").correct is True
        assert waits == [], "decided without a worker"
        for _ in range(2):
            verdict = verifier.verify(r"\sqrt[3]{16}", r"\boxed{2\sqrt[3]{2}}")
            assert (verdict.correct, verdict.method) == (True, "symbolic")
            assert waits == ["begun", "ended"], "the second time it was known"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("answer:7", True), ("Answer: $7$.", True), ("Answer: x=7", True),
        ("Answer: 7 dollars", True), ("Answer:\n7", True), ("ANSWER :  7", True),
        ("Answer: 8\nAnswer: 7", True), (r"Answer: \boxed{7}", True), (r"Answer: \text{7}", True),
        ("the Answer: 7" + " " * 286, True), (r"\boxed{7}", True),
        (r"\boxed{6} no, \boxed{7}", True), ("Answer: [INVALID]\n" + r"\boxed{7}", True),
        ("Answer: 7.", False), ("Answer: 7.0", False), ("**Answer:** 7", False),
        ("Answer: 14/2", False), ("7", False), ("#### 7", False), ("The answer is 7", False),
        (r"\boxed{7.0}", False), (r"\boxed{ 7 }", False), (r"\boxed{7", False),
        ("Answer: 7" + "." * 300, False), (r"\boxed{7}" + "." * 100, False),
        ("Answer: 7\nAnswer: 8", False), (r"Answer: 8 \boxed{7}", False),
    ],
)  # fmt: skip
def test_dapo(response: str, right: bool) -> None:
    compared = verify_dapo("7", response)
    assert (compared is not None and compared[0]) is right


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("m+n = 15", "15"), ("1,234", "1234"), ("1,2", "12"), ("1,2,x", "1,2,x"),
        (r"\frac12", r"\frac{1}{2}"), (r"\frac{1}{2}", r"\frac{1}{2}"), (r"\sqrt3", r"\sqrt{3}"),
        (r"90^\circ", "90"), (r"5\text{ cm}", "5"), (r"10\ \mbox{m}", "10"), ("$3$ apples", "3"),
        ("a cat", "cat"), ("12 square inches", "12"), (r"\overline{AB}", "AB"),
        (r"1{,}000", "1000"),
    ],
)  # fmt: skip
def test_normal_form(written: str, compared: str) -> None:
    assert normalize_answer(written) == compared


def test_the_method_names_the_part_of_the_rule() -> None:
    assert verify_dapo("7", "Answer: 7") == (True, "7", "dapo")
    assert verify_dapo("7", r"\boxed{7}") == (True, "7", "dapo-boxed")
    assert verify_dapo("7", "we get 7") is None
