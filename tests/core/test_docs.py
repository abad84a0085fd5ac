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
    limits = MATCHING.partition("\n## Limits\n")[2].replace(",", "")
    assert set(map(int, re.findall(r"[0-9]+", limits))) == {
        *(algebra.MAX_TOKEN, algebra.MAX_SIDE_BYTES, algebra.MAX_CODE, algebra.MAX_DEPTH),
        *(algebra.MAX_SIDE_NAMES, algebra.MAX_OCCURRENCES, algebra.MAX_CHAIN, algebra.MAX_POWER),
        *(algebra.MAX_FACTORIAL, algebra.MAX_MODULUS, algebra.MAX_RENAMED),
        *(statements.MAX_SIDE, statements.MAX_DEPTH, statements.MAX_STRETCH),
        *(statements.MAX_DIGITS, statements.MAX_EXPONENT, statements.MAX_UNIT_WORDS),
        *(statements.MAX_NAMED, statements.MAX_NAMES, statements.MAX_LINE),
        *(tables.MAX_OPEN_GROUPS, tables.MAX_UNIT_WORDS, patterns.MAX_ANSWER_BYTES),
    }


def test_the_rules_are_numbered() -> None:
    rules = re.findall(r"^(\d+)\. \*\*", MATCHING, flags=re.M)
    assert [int(number) for number in rules] == list(range(1, 19))


def test_version() -> None:
    assert re.search(rf"`NORMAL_FORM_VERSION`\s+is `{NORMAL_FORM_VERSION}`", MATCHING)
