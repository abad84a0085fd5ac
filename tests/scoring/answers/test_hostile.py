"""What a policy under training may write: no hang, no evaluation, no harm to its neighbours."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from consensuspr.scoring import AnswerRule
from consensuspr.scoring.answers import AnswerStatus, AnswerVerifier, compare

# For the start of processes on a busy machine.
SLACK_S = 20.0

DETERMINANT = r"\det\begin{pmatrix}" + r"\\".join(["a&b&c&d&e&f&g"] * 7) + r"\end{pmatrix}"

FORMULAS = [
    "10^{10^{10}}", "(10^{10})!", r"\sum_{k=1}^{10^9} k^k", DETERMINANT,
    r"\gcd(10^{10^6}, 10^{10^6}+1)", r"\int_0^1 \sin(\cos(x^{x^{x}})) dx", "(a+b+c+d+e+f+g)^{190}",
    r"\prod_{i=1}^{99999} i^i", r"\binom{100000}{x}", r"\sin(2^{1000000})",
    r"\frac{" * 200 + "1" + "}{2}" * 200, r"\sqrt{" * 39 + "2" + "}" * 39, "[[[[" * 200,
    r"\left(" * 100 + "x" + r"\right)" * 100,
]  # fmt: skip

TEXTS = [
    "(" * 50_000, "12 34 " * 11_000, r"\[" * 32_000, "letters" * 9_000, "$" * 64_000, "{" * 64_000,
    "Answer: " * 8_000, "####" * 16_000, r"\boxed{" * 9_000, r"\boxed{}" * 8_000,
    r"\boxed " * 9_000, "answer is " * 6_000 + "x", " " * 64_000, "\n" * 64_000, "," * 64_000,
    "A:" * 32_000, "\ufb03" * 20_000, "1/" * 32_000,
]  # fmt: skip

PAYLOADS = [
    "__import__('os').system('touch {marker}')", "__import__('os').system('touch {marker}') or 7",
    r"\operatorname{{__import__('os').system('touch {marker}')}}(1)",
    "x.__class__.__base__.__subclasses__()", "(lambda: open('{marker}', 'w'))()",
    "exec(\"open('{marker}','w')\")", 'f\'{{open("{marker}", "w")}}\'',
    'S(\'open("{marker}", "w")\')', 'sympify(\'__import__("os").system("touch {marker}")\')',
    "1 if open('{marker}','w') else 2", r"\text{{__import__('os').system('touch {marker}')}}",
    "[open('{marker}','w') for x in (1,)][0]", "x_{{__import__('os').system('touch {marker}')}}",
]  # fmt: skip


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula[:24])
def test_a_hostile_formula_costs_its_budget_at_most(
    impatient: AnswerVerifier, formula: str
) -> None:
    started = time.monotonic()
    verdict = impatient.verify(r"x+\sqrt{2}", rf"\boxed{{{formula}}}")
    assert time.monotonic() - started < 0.4 + SLACK_S
    assert verdict.correct is not True
    if verdict.correct is None:
        assert verdict.status is AnswerStatus.UNDECIDED
        assert verdict.method in ("screened", "length", "budget", "memory", "load")


@pytest.mark.parametrize("formula", FORMULAS[:5], ids=lambda formula: formula[:24])
def test_the_known_poisons_do_not_even_reach_a_worker(
    verifier: AnswerVerifier, formula: str
) -> None:
    assert verifier.verify("x+1", rf"\boxed{{{formula}}}").method == "screened"


@pytest.mark.parametrize("rule", list(AnswerRule))
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:12]))
def test_a_long_text_is_read_in_no_time(
    verifier: AnswerVerifier, text: str, rule: AnswerRule
) -> None:
    for response in (text, rf"\boxed{{{text}}}", rf"so \boxed{{{text}", f"Answer: {text}"):
        started = time.thread_time()
        verdict = verifier.verify("7", response, rule)
        assert verifier.verify("7", response.encode(), rule) == verdict
        assert time.thread_time() - started < 2.0
        assert verdict.correct is not True


@pytest.mark.parametrize("rule", list(AnswerRule))
@pytest.mark.parametrize("payload", PAYLOADS)
def test_model_text_is_never_evaluated(
    verifier: AnswerVerifier, payload: str, rule: AnswerRule, tmp_path: Path
) -> None:
    marker = tmp_path / "evaluated"
    text = payload.format(marker=marker)
    responses = [
        text,
        rf"\boxed{{{text}}}",
        f"#### {text}",
        f"Answer: {text}",
        f"so we get ${text}$",
    ]
    golds = ["7", "x+1", r"\text{odd}", "(1,2)", r"\sqrt{2}"]
    verdicts = verifier.verify_batch(
        golds * len(responses), [response for response in responses for _ in golds], rule
    )
    assert not any(verdict.correct and verdict.answer != "7" for verdict in verdicts)
    # As ground truth as well: a dataset is not trusted either.
    verifier.verify_batch([text] * len(responses), [*responses[1:], "x"], rule)
    assert not marker.exists()


def test_large_answers_are_not_kept(verifier: AnswerVerifier) -> None:
    answers = ["3^{40000}", "9!!", "1," * 400 + "1", r"\binom{99}{9}"]
    compare.memoised_form.cache_clear()
    verifier.verify_batch(["7"] * len(answers), [rf"\boxed{{{one}}}" for one in answers], "boxed")
    assert compare.memoised_form.cache_info().currsize <= 1


@pytest.mark.parametrize("rule", list(AnswerRule))
def test_a_huge_ground_truth_is_no_danger(verifier: AnswerVerifier, rule: AnswerRule) -> None:
    for truth in ("$" * 200_000, "x=" * 100_000, r"\text{" * 50_000, "1" * 200_000):
        started = time.thread_time()
        assert verifier.verify(truth, r"Answer: 7 \boxed{7}", rule).correct is not True
        assert time.thread_time() - started < 2.0
