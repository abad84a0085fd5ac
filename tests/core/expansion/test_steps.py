"""Which trees one step of arithmetic leads to."""

from __future__ import annotations

import pytest

from consensuspr.core.expressions.derive import Scope, steps, write
from consensuspr.core.expressions.evaluate import evaluate
from consensuspr.core.expressions.parser import parse_side, tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5*100+700", ["500+700"]),
        ("15*2+8*3", ["30+24"]),
        ("(200+10)/3", ["210/3"]),
        ("10+20+30", ["30+30"]),
        ("10+20+30-5", ["30+30-5", "60-5"]),
        ("60*2/5", ["120/5", "12*2", "60*0.4"]),
        ("300-150-45", ["150-45", "300-195"]),
        ("20*30*2", ["600*2", "40*30", "20*60"]),
        ("6*7", []),
        ("6/7", []),
        ("2*(x+1)", []),
        ("3-5-1", ["3-6"]),  # 3-5 is negative
        ("10/3*2", ["20/3"]),  # 10/3 and 2/3 have no short decimal
        ("42", []),
    ],
)
def test_steps_keep_the_value_and_an_operation(text: str, expected: list[str]) -> None:
    tree = parse_side(tokenize(text)[:-1])
    trees = list(steps(tree))
    written = [write(step, Scope(arithmetic=True, quotients=True))[0].text for step in trees]
    assert all(evaluate(step) == evaluate(tree) for step in trees)
    assert written == expected
