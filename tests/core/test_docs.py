"""The page on matching, executed: examples, limits, version."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from consensuspr.core import NORMAL_FORM_VERSION, algebra, patterns, statements, tables
from consensuspr.core.patterns import Channel
from tests.pages import YES, code, page, rows

MATCHING = page("reference/matching.md")
STATEMENTS = page("concepts/statements.md")


def test_normal_forms(engine: Any) -> None:
    rules = MATCHING.partition("\n### Normal form\n")[2].partition("\n### ")[0]
    forms = re.findall(r"`([^`]+)`\s+→\s+`([^`]+)`", rules.replace("⏎", "\n"))
    assert len(forms) == rules.count("→") > 30
    assert [pair for pair in forms if engine.normalize(pair[0]) != pair[1]] == []


def by_statement(engine: Any, node: str, text: str) -> bool:
    (hit,) = engine.Matcher([[node]]).hits(text)
    return hit is not None and hit.channel is not Channel.PATTERN


@pytest.mark.parametrize(
    ("reached", "reaches", "rest", "least"),
    [
        ("match", lambda e, n, t: e.Matcher([[n]], statements=False).match(t)[0], [], 12),
        ("boxed", lambda e, n, t: e.Matcher([[n]]).match(t)[0], [], 5),
        ("stated", by_statement, ["because"], 20),
        ("equal", lambda e, n, t: e.Matcher([[n]]).match(t)[0], ["because"], 20),
    ],
)
def test_examples(
    engine: Any,
    reached: str,
    reaches: Callable[[Any, str, str], bool],
    rest: list[str],
    least: int,
) -> None:
    examples = list(rows(MATCHING + STATEMENTS, "node", "text", reached, *rest))
    assert len(examples) >= least
    wrong = []
    for number, node, text, shown, *_ in examples:
        if reaches(engine, code(node), code(text)) != YES[shown]:
            wrong.append(number)
    assert wrong == []


def test_limits() -> None:
    a, s, t = algebra, statements, tables
    table = rows(MATCHING.replace(",", ""), "limit", "patterns", "statements", "equations")
    assert {name: [*map(int, re.findall("[0-9]+", str(row)))] for _, name, *row in table} == {
        "nested brackets": [t.MAX_OPEN_GROUPS, s.MAX_DEPTH, a.MAX_DEPTH],
        "one side": [s.MAX_SIDE, a.MAX_SIDE_BYTES, a.MAX_CODE],
        "digits of a number": [s.MAX_DIGITS],
        "exponents": [s.MAX_EXPONENT, a.MAX_POWER],
        "factorials and binomials; modulus": [a.MAX_FACTORIAL, a.MAX_MODULUS],
        "unit words after a number": [t.MAX_UNIT_WORDS, s.MAX_UNIT_WORDS],
        "names": [s.MAX_NAMED, a.MAX_SIDE_NAMES, a.MAX_OCCURRENCES],
        "text read at once": [patterns.MAX_ANSWER_BYTES, s.MAX_STRETCH, a.MAX_TOKEN, a.MAX_CHAIN],
        "names of a program": [s.MAX_NAMES],
        "names that may differ from the node's": [a.MAX_RENAMED],
    }


def test_the_rules_are_numbered() -> None:
    rules = re.findall(r"^(\d+)\. \*\*", MATCHING, flags=re.M)
    assert [int(number) for number in rules] == list(range(1, 19))


def test_version() -> None:
    assert re.search(rf"`NORMAL_FORM_VERSION`\s+is `{NORMAL_FORM_VERSION}`", MATCHING)
