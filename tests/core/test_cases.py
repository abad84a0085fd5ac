"""The tables of worked cases: our own, and the shared ones where they are at hand."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TABLE = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))["case"]


def _cases() -> Iterator[Any]:
    numbers: dict[str, int] = {}
    for case in TABLE:
        for outcome in ("found", "missed"):
            for text in case.get(outcome, []):
                number = numbers[case["category"]] = numbers.get(case["category"], 0) + 1
                yield pytest.param(
                    case["expressions"],
                    text,
                    outcome == "found",
                    id=f"{case['category']}-{number}",
                )


CASES = list(_cases())


def test_every_rule_has_cases() -> None:
    assert {int(case["category"][:2]) for case in TABLE if case["category"][0].isdigit()} == set(
        range(1, 19)
    )
    assert all(set(case) <= {"category", "expressions", "found", "missed"} for case in TABLE)


@pytest.mark.parametrize(("expressions", "text", "match"), CASES)
def test_case(engine: Any, expressions: list[str], text: str, match: bool) -> None:
    matcher = engine.Matcher([expressions], statements=False)
    normal = [engine.normalize(expression) for expression in expressions]
    assert matcher.match(text) == [match], f"{normal} in {engine.normalize(text)!r}"


def test_conformance(engine: Any, shared_dir: Path) -> None:
    rows = (shared_dir / "conformance" / "matching.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(row) for row in rows]
    assert len(cases) >= 100
    for statements in (False, True):  # a statement reaches none that its pattern must not
        wrong = [
            case["id"]
            for case in cases
            if engine.Matcher([case["expressions"]], statements=statements).match(case["text"])
            != [case["match"]]
        ]
        assert wrong == []
