"""The tables of worked cases: our own, and the shared ones if they are at hand.

A table is one test: thousands of tests would take longer to manage than to run.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core.patterns import Channel
from tests.core.conftest import Engine

PATTERNS, STATEMENTS = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))["case"]
    for name in ("cases.toml", "statements.toml")
)


def cases_of(table: list[dict[str, Any]]) -> Iterator[tuple[list[str], str, str, bool]]:
    """Yield expressions, text, the credit for code, and whether the text reaches the node."""
    for case in table:
        for outcome in ("found", "missed"):
            for text in case.get(outcome, []):
                code = case.get("code", "computed")
                yield case["expressions"], text, code, outcome == "found"


def test_every_rule_has_cases() -> None:
    categories = [case["category"] for case in PATTERNS]
    assert {int(name[:2]) for name in categories if name[0].isdigit()} == set(range(1, 19))
    assert all(case.keys() <= {"category", "expressions", "found", "missed"} for case in PATTERNS)
    keys = {"kind", "expressions", "code", "found", "missed"}
    assert all(case.keys() <= keys for case in STATEMENTS)
    assert len(list(cases_of(STATEMENTS))) >= 150


def test_patterns(engine: Engine) -> None:
    wrong = [
        (expressions, text)
        for expressions, text, _, found in cases_of(PATTERNS)
        if engine.Matcher([expressions], statements=False).match(text) != [found]
    ]
    assert wrong == []


def test_statements(engine: Engine) -> None:
    wrong = []
    for expressions, text, code, found in cases_of(STATEMENTS):
        (hit,) = engine.Matcher([expressions], code=code).hits(text)
        if (hit is not None and hit.channel != Channel.PATTERN) != found:
            wrong.append((expressions, text))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("matching", {"statements": False}),
        ("matching", {}),  # a statement reaches none that its pattern must not
        ("statements", {"code": "computed"}),
    ],
)
def test_conformance(engine: Engine, shared_dir: Path, name: str, options: Any) -> None:
    rows = (shared_dir / "conformance" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(row) for row in rows]
    assert len(cases) >= 100
    wrong = [
        case["id"]
        for case in cases
        if engine.Matcher([case["expressions"]], **options).match(case["text"]) != [case["match"]]
    ]
    assert wrong == []
