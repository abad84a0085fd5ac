"""The figures of docs/quality.md: how they are computed, and the floor that they must keep."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.__main__ import families_table, measure
from benchmarks.quality.data import (
    GOLD_NODES,
    ROLLOUTS,
    as_program,
    read_gold,
    read_responses,
    write_dataset,
)
from benchmarks.quality.wrappers import wrapped
from consensuspr.core import BACKEND, Matcher
from consensuspr.data import read_problems


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def small_data(tmp_path: Path) -> Path:
    """Two problems of our own in the form of the outside data, with rollouts for them."""
    steps = [
        {"step": 0, "expr": "14*30", "value": "420", "text": "14 trays hold 14*30 = 420 plums."},
        {"step": 1, "expr": "420-10-10", "value": "400", "text": "That leaves 400."},
    ]
    other = [{"step": 0, "expr": "130+7", "value": "137", "text": "130+7 = 137"}]
    write_rows(
        tmp_path / GOLD_NODES,
        [
            {"problem_id": "plums", "problem": "?", "ground_truth": "400", "nodes": steps},
            {"problem_id": "pears", "problem": "?", "ground_truth": "137", "nodes": other},
            {"problem_id": "empty", "problem": "?", "ground_truth": "1", "nodes": []},
        ],
    )
    responses = [
        ("plums", "30 x 14 = <<30*14=420>>420, less 20: 420 - 20 = 400\n#### 400", True),
        ("plums", "<<14*30=420>>There are 400.\n#### 400", True),
        ("plums", "I guess 17.\n#### 17", False),
        ("pears", "7 + 130 = 137, not 14*30=420\n#### 137", True),
        ("pears", "130 - 7 = 123\n#### 123", False),
        ("empty", "1", True),
    ]
    for path in ROLLOUTS.values():
        write_rows(
            tmp_path / path,
            [
                {"problem_id": problem, "response": text, "correct": correct, "model": "m"}
                for problem, text, correct in responses
            ],
        )
    return tmp_path


def test_gold_becomes_a_dataset_that_reads_back(small_data: Path) -> None:
    problems = read_gold(small_data)
    assert [problem.problem_id for problem in problems] == ["plums", "pears"]
    first, last = problems[0].nodes
    assert (first.expressions, first.is_final) == (("14*30=420",), False)
    assert "420-20=400" in (last.derived or ())
    assert last.is_final
    write_dataset(small_data / "gold.jsonl", problems)
    assert list(read_problems(small_data / "gold.jsonl")) == problems


def test_measuring_small_data(small_data: Path) -> None:
    problems = read_gold(small_data)
    [path, _] = ROLLOUTS.values()
    responses = read_responses(small_data / path, {"plums", "pears"})
    figures = measure(problems, responses, statements=True)
    assert (figures.rollouts, figures.right) == (5, 3)
    # Right rollouts reach 2 of 2, 0 of 2 and 1 of 1 nodes.
    assert figures.recall == pytest.approx(3 / 5)
    # One of 3 * 1 + 2 * 2 nodes of the other problem is hit.
    assert figures.false_positives == pytest.approx(1 / 7)
    # Of right and wrong rollouts 4 of 6 pairs are in order, the others level.
    assert figures.auroc[0] == pytest.approx(5 / 6)
    [row] = families_table(problems, {"all": responses}).splitlines()[2:]
    assert row.startswith("| all | 5, 3 | .") and "**.600**" in row


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("First 20 + 80 = 100, then 100 * 3 = 300.", ["step_1 = 20+80", "step_2 = step_1*3"]),
        ("300 = 100 * 3", ["step_1 = 100*3"]),
        # What does not hold, names and bare values are no steps.
        ("2 + 2 = 5, x = 3, 7 = 7, a + b = c", None),
    ],
)
def test_solutions_as_programs(text: str, code: list[str] | None) -> None:
    program = as_program(text)
    if code is None:
        assert program is None
    else:
        assert program is not None
        assert [line.strip() for line in program.splitlines() if "step_" in line][:-1] == code
        assert Matcher([["100*3=300"]], code="computed").match(program) == [True]


# Just below the present figures: recall, AUROC with and without the final-answer node, and the
# rate of false positives.
FLOORS = {
    "GPT-3": (0.82, 0.89, 0.825, 0.0034),
    "GPT-3.5, GPT-4o mini": (0.69, 0.835, 0.77, 0.0030),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOORS)
def test_quality_on_real_rollouts_keeps_its_floor(shared_dir: Path, name: str) -> None:
    if BACKEND != "native":
        pytest.skip("takes minutes on the pure-Python core, whose matches are the same")
    if not (shared_dir / GOLD_NODES).is_file():
        pytest.skip(f"{shared_dir} holds no {GOLD_NODES}")
    problems = read_gold(shared_dir)
    known = {problem.problem_id for problem in problems}
    figures = measure(problems, read_responses(shared_dir / ROLLOUTS[name], known), True)
    recall, auroc, auroc_without_final, false_positives = FLOORS[name]
    assert figures.recall >= recall and figures.false_positives <= false_positives
    assert figures.auroc[0] >= auroc and figures.auroc[1] >= auroc_without_final


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("# @", "```python\n@\n```", "```python\n# 24*7=168\n# 6/3=2\n```"),
        ("assert @l == @r", "plain", "assert 24*7 == 168\nassert 6/3 == 2"),
        ("digits glued by {}", "joined by |", "2{}4*7=1{}6{}8|6/3=2"),
        ("numbers $@$", "plain", "$24$*$7$=$168$\n$6$/$3$=$2$"),
        ("digits from ０", "plain", "２４*７=１６８\n６/３=２"),
        ("tokens {@}", "plain", "{24}{*}{7}{=}{168}\n{6}{/}{3}{=}{2}"),
        ("number words", "plain", "twenty-four*seven=one hundred sixty-eight\nsix/three=two"),
    ],
)
def test_a_wrapper_rewrites_each_line_and_encloses_all(line: str, text: str, expected: str) -> None:
    assert wrapped("24*7=168\n6/3=2", line, text) == expected
