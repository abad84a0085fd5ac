"""The statement channel: what is read as a statement, what it reaches, and how it is shown."""

from __future__ import annotations

import json
import pickle
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core.patterns import Channel, Hit
from consensuspr.core.pure.statements import expression_keys, read_statements
from consensuspr.core.statements import key_hash, operands_hash

TABLE = tomllib.loads(Path(__file__).with_name("statements.toml").read_text(encoding="utf-8"))
STATED = {Channel.STATEMENT, Channel.CODE}


def _cases() -> Iterator[Any]:
    numbers: dict[str, int] = {}
    for case in TABLE["case"]:
        for outcome in ("found", "missed"):
            for text in case.get(outcome, []):
                number = numbers[case["kind"]] = numbers.get(case["kind"], 0) + 1
                yield pytest.param(
                    case["expressions"], text, outcome == "found", id=f"{case['kind']}-{number}"
                )


CASES = list(_cases())


def channel(engine: Any, expressions: list[str], text: str, **options: Any) -> int:
    """Return how a text reaches a node of these expressions."""
    matcher = engine.Matcher([expressions], **options)
    return int(engine.match_batch([matcher], [text]).channels(0)[0])


def test_the_table_is_large_and_well_formed() -> None:
    assert len(CASES) >= 150
    assert all(set(case) <= {"kind", "expressions", "found", "missed"} for case in TABLE["case"])


@pytest.mark.parametrize(("expressions", "text", "match"), CASES)
def test_case(engine: Any, expressions: list[str], text: str, match: bool) -> None:
    stated = channel(engine, expressions, text) in STATED
    assert stated == match, f"{read_statements(text)} for {expression_keys(expressions[0])}"


def test_conformance(engine: Any, shared_dir: Path) -> None:
    rows = (shared_dir / "conformance" / "statements.jsonl").read_text(encoding="utf-8")
    cases = [json.loads(row) for row in rows.splitlines()]
    assert len(cases) >= 100
    wrong = [
        case["id"]
        for case in cases
        if engine.Matcher([case["expressions"]]).match(case["text"]) != [case["match"]]
    ]
    assert wrong == []
