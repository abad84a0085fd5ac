"""What the pages of matching, statements and equations say, executed: examples, limits, version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core import NORMAL_FORM_VERSION, algebra, patterns, statements, tables
from consensuspr.core.patterns import Channel

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "matching.md").read_text(encoding="utf-8").partition("\n## Derived forms\n")[0]
STATEMENTS = (DOCS / "statements.md").read_text(encoding="utf-8")
LINE_BREAK = "⏎"


def _cells(line: str) -> list[str]:
    """The cells of a table's row; a bar inside a cell is escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _text(cell: str) -> str:
    """What a cell in code marks stands for."""
    code = re.fullmatch(r"``? ?(.*?) ?``?", cell)
    assert code is not None, f"{cell} is not in code marks"
    return code[1].replace("\\|", "|").replace(LINE_BREAK, "\n")


def _rows(page: str, *header: str) -> Iterator[list[Any]]:
    """The rows of every table with this header, behind the numbers of their lines."""
    inside = False
    for number, line in enumerate(page.splitlines(), start=1):
        if not line.startswith("|"):
            inside = False
        elif _cells(line) == list(header):
            inside = True
        elif inside and not set(line) <= set("|-"):
            yield [number, *_cells(line)]


FORMS = list(_rows(TEXT, "text", "normal form"))
MATCHES = list(_rows(TEXT, "node", "text", "match"))
REACHED = list(_rows(TEXT, "node", "text", "reached"))
STATED = list(_rows(STATEMENTS, "node", "text", "match"))
EQUATIONS = (DOCS / "equations.md").read_text(encoding="utf-8")
EQUATED = list(_rows(EQUATIONS, "node", "text", "match"))


YES = {"yes": True, "no": False}


def test_normal_forms(engine: Any) -> None:
    assert len(FORMS) > 80
    assert [n for n, text, form in FORMS if engine.normalize(_text(text)) != _text(form)] == []


def test_matches(engine: Any) -> None:
    assert len(MATCHES) >= 20
    wrong = []
    for number, node, text, match in MATCHES:
        matcher = engine.Matcher([[_text(node)]], statements=False)
        if matcher.match(_text(text)) != [YES[match]]:
            wrong.append(number)
    assert wrong == []


def test_boxed(engine: Any) -> None:
    assert len(REACHED) >= 10
    wrong = []
    for number, node, text, reached in REACHED:
        if engine.Matcher([[_text(node)]]).match(_text(text)) != [YES[reached]]:
            wrong.append(number)
    assert wrong == []


def test_stated(engine: Any) -> None:
    assert len(STATED) > 40
    wrong = []
    for number, node, text, match in STATED:
        (hit,) = engine.Matcher([[_text(node)]]).hits(_text(text))
        if (hit is not None and hit.channel is not Channel.PATTERN) != YES[match]:
            wrong.append(number)
    assert wrong == []


def test_equated(engine: Any) -> None:
    assert len(EQUATED) > 25
    wrong = []
    for number, node, text, match in EQUATED:
        if engine.Matcher([[_text(node)]]).match(_text(text)) != [YES[match]]:
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
    rules = re.findall(r"^\*\*(\d+)\. ", TEXT, flags=re.M)
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
    (row,) = (cells for line in TEXT.splitlines() if (cells := _cells(line))[:1] == [name])
    assert int(row[1].split()[0]) == value


def test_version() -> None:
    assert f"`NORMAL_FORM_VERSION` is `{NORMAL_FORM_VERSION}`" in TEXT
