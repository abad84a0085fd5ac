"""The reference of matching, statements and equations, executed: examples, limits, version."""

from __future__ import annotations

import re
from typing import Any

import pytest

from consensuspr.core import NORMAL_FORM_VERSION, algebra, patterns, statements, tables
from consensuspr.core.patterns import Channel
from tests.pages import YES, cells, code, page, rows

MATCHING = page("reference/matching.md")
STATEMENTS = page("concepts/statements.md")
EQUATIONS = page("reference/equations.md")
FORMS = list(rows(MATCHING, "text", "normal form"))
MATCHES = list(rows(MATCHING, "node", "text", "match"))
REACHED = list(rows(MATCHING, "node", "text", "reached"))
STATED = list(rows(STATEMENTS, "node", "text", "match"))
EQUATED = list(rows(EQUATIONS, "node", "text", "match"))


def test_normal_forms(engine: Any) -> None:
    assert len(FORMS) > 50
    assert [n for n, text, form in FORMS if engine.normalize(code(text)) != code(form)] == []


def test_matches(engine: Any) -> None:
    assert len(MATCHES) > 14
    wrong = []
    for number, node, text, match in MATCHES:
        matcher = engine.Matcher([[code(node)]], statements=False)
        if matcher.match(code(text)) != [YES[match]]:
            wrong.append(number)
    assert wrong == []


def test_boxed(engine: Any) -> None:
    assert len(REACHED) > 6
    wrong = []
    for number, node, text, reached in REACHED:
        if engine.Matcher([[code(node)]]).match(code(text)) != [YES[reached]]:
            wrong.append(number)
    assert wrong == []


def test_stated(engine: Any) -> None:
    assert len(STATED) > 25
    wrong = []
    for number, node, text, match in STATED:
        (hit,) = engine.Matcher([[code(node)]]).hits(code(text))
        if (hit is not None and hit.channel is not Channel.PATTERN) != YES[match]:
            wrong.append(number)
    assert wrong == []


def test_equated(engine: Any) -> None:
    assert len(EQUATED) > 25
    wrong = []
    for number, node, text, match in EQUATED:
        if engine.Matcher([[code(node)]]).match(code(text)) != [YES[match]]:
            wrong.append(number)
    assert wrong == []


def test_limits_of_equations() -> None:
    limits = EQUATIONS.partition("\n## Limits\n")[2].replace(",", "")
    shown = set(map(int, re.findall(r"[0-9]+", limits)))
    assert shown == {
        *(algebra.MAX_TOKEN, algebra.MAX_SIDE_BYTES, algebra.MAX_CODE, algebra.MAX_DEPTH),
        *(algebra.MAX_SIDE_NAMES, algebra.MAX_OCCURRENCES, algebra.MAX_CHAIN, algebra.MAX_POWER),
        *(algebra.MAX_FACTORIAL, algebra.MAX_MODULUS, algebra.MAX_RENAMED),
    }


@pytest.mark.parametrize(
    "value",
    [
        *(statements.MAX_SIDE, statements.MAX_DEPTH, statements.MAX_STRETCH, statements.MAX_DIGITS),
        *(statements.MAX_EXPONENT, statements.MAX_UNIT_WORDS, statements.MAX_NAMED),
        *(statements.MAX_NAMES, statements.MAX_LINE),
    ],
)
def test_limits_of_statements(value: int) -> None:
    limits = STATEMENTS.partition("\n## Limits\n")[2]
    assert str(value) in re.findall(r"[0-9]+", limits)


def test_the_rules_are_numbered() -> None:
    rules = re.findall(r"^\*\*(\d+)\. ", MATCHING, flags=re.M)
    assert [int(number) for number in rules] == list(range(1, 19))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("open groups", tables.MAX_OPEN_GROUPS),
        ("rewrite", tables.MAX_REWRITE_BYTES),
        ("look-ahead", tables.LOOKAHEAD),
        ("unit words", tables.MAX_UNIT_WORDS),
        ("unit bracket", tables.MAX_UNIT_BRACKET),
        ("factor bracket", tables.MAX_FACTOR),
        ("boxed answer", patterns.MAX_ANSWER_BYTES),
    ],
)
def test_limit(name: str, value: int) -> None:
    (row,) = (row for line in MATCHING.splitlines() if (row := cells(line))[:1] == [name])
    assert int(row[1].split()[0]) == value


def test_version() -> None:
    assert f"`NORMAL_FORM_VERSION` is `{NORMAL_FORM_VERSION}`" in MATCHING
