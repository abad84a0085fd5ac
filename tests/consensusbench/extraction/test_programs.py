"""Steps of program code as equations: what is read, what is left out, hostile code."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.programs import read_equations
from consensusbench.extraction.rules import RulesExtractor, RulesSettings
from consensusbench.extraction.statements import Truth, truth_of
from consensusbench.extraction.types import CorrectRollout
from consensuspr.core import Matcher
from consensuspr.data import Problem


def fenced(code: str) -> str:
    return f"We compute:\n```python\n{code}\n```\nDone."


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("april = 48\nmay = april / 2\ntotal = april + may", ["48/2=24", "48+24=72"]),
        ("a, b = 3, 4\nx = 16 - (a + b)", ["16-(3+4)=9"]),
        ("x = 5\nx += 3\nx *= 2", ["5+3=8", "8*2=16"]),
        ("print('of', 3 * 7)", ["3*7=21"]),
        ("def f(n):\n    half = 10 / 4\n    return half * 6 + n\nf(2)", ["10/4=2.5"]),
        ("def f():\n    return 6 * 7", ["6*7=42"]),
        ("y = int(6 / 2) + 1", ["(6/2)+1=4"]),
        ("y = Rational(3, 8) * 64", ["(3/8)*64=24"]),
        ("y = -3 * 2", ["-3*2=-6"]),
        ("y = 2 ** 3 ** 2", ["2^3^2=512"]),
        ("y = 8 / (4 / 2)\nz = 10 - (4 - 1)", ["8/(4/2)=4", "10-(4-1)=7"]),
        ("y: float = 1_000 * 1.5", ["1000*1.5=1500"]),
        # A result that is rounded is stated, and nothing is worked out from it.
        ("y = 50 / 7\nz = y * 3", ["50/7=7.14"]),
        # What may be assigned anew is unknown from then on.
        ("x = 2\nfor i in range(3):\n    x += 1\ny = x * 5\nz = 4 * 5", ["4*5=20"]),
        ("x = 2\nif x > 1:\n    x = 3\ny = x * 5", []),
        ("x = 2\nx = input()\ny = x * 5", []),
        ("y = 5 // 2\nz = round(5 / 2)\nw = 1 / 0", []),
        ("'3*4=12'\n# 3*4\nx = f'{3*4}'", []),
        ("x = (y := 5)\nz = y * 2", []),
        ("total = unknown * 3", []),
        ("9 ** 9 ** 9\n10 ** 17\n2 ** 1000", []),
        ("def broken(:\n    3 * 4", []),
    ],
)
def test_what_is_read(code: str, steps: list[str]) -> None:
    assert [one.text for one in read_equations(fenced(code))] == steps


def test_a_step_has_the_place_of_its_expression() -> None:
    response = fenced("a = 1\nb = 3 * 4")
    (step,) = read_equations(response)
    assert response[step.start :].startswith("3 * 4")


def test_prose_and_other_languages_are_no_programs() -> None:
    assert read_equations("So 3 * 4 = 12.\n```c\nint x = 3 * 4;\n```\n$x = 3*4$") == []


def test_parts_of_one_response_share_their_names() -> None:
    response = fenced("a = 6") + "\n" + fenced("b = a * 7")
    assert [one.text for one in read_equations(response)] == ["6*7=42"]


@pytest.mark.parametrize(
    "code",
    [
        "(" * 5000 + ")" * 5000,
        "x = " + "-" * 20_000 + "1",
        "x = " + "1+" * 10_000 + "1",
        "x = " + "9" * 20_000,
        "a" * 30_000 + " = 3 * 4",
        "\n".join(f"x{n} = {n} * 2" for n in range(1500)),
        "x = 3 * 4\n" * 10_000,
        "x = 1\n" * 6000,
        "x = '\\d'\x00",
        "x = \ud800",
    ],
)
def test_hostile_code_costs_little(code: str) -> None:
    start = time.process_time()
    read_equations(fenced(code))
    assert time.process_time() - start < 5


_NUMBERS = st.integers(1, 60).map(str) | st.sampled_from(["0.5", "2.25", "(3+4)", "(9-2)"])


@given(st.lists(st.tuples(_NUMBERS, st.sampled_from("+-*/")), min_size=1, max_size=4), _NUMBERS)
def test_steps_are_true_and_the_core_finds_them(parts: list[tuple[str, str]], last: str) -> None:
    code = "x = " + " ".join(f"{number} {sign}" for number, sign in parts) + f" {last}"
    response = fenced(code)
    for step in read_equations(response):
        assert truth_of(step.text) in (Truth.TRUE, Truth.ROUNDED), step.text
        left, _, right = step.text.rpartition("=")
        value = eval(code.partition("=")[2], {"__builtins__": {}})
        assert abs(Fraction(right) - Fraction(value)) <= Fraction(1, 100)
        # The core keeps fewer digits, and leaves equations of ones out.
        if len(left) < 20 and left.strip("1+-*/"):
            assert Matcher([[step.text]], code="computed").match(response) == [True], step.text


def test_nodes_come_of_rollouts_that_are_programs() -> None:
    problem = Problem("p", ground_truth="72", problem="48 clips in April, half as many in May.")
    programs = [
        fenced("april = 48\nmay = april / 2\ntotal = april + may\nprint(total)"),
        "def solution():\n    first = 48\n    second = first / 2\n    return first + second\n",
        "In May 48 / 2 = 24 clips, so 48 + 24 = 72.",
    ]
    rollouts = [CorrectRollout(str(at), f"m{at}", text) for at, text in enumerate(programs)]
    found = RulesExtractor().extract(problem, rollouts).candidates
    assert [(one.label, one.support, one.is_final) for one in found] == [
        ("48/2=24", 3, False),
        ("48+24=72", 3, True),
    ]
    without = RulesExtractor(RulesSettings(code=False, min_models=1)).extract(problem, rollouts[:2])
    assert without.candidates == ()
