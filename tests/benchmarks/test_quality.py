"""The figures of docs/quality.md: how they are computed, and the floor that they must keep."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.__main__ import GOLD, READ, separation, signal_table
from benchmarks.quality.data import (
    AIME_STRONG,
    GOLD_NODES,
    GSM8K,
    READ_NODES,
    as_program,
    file_of,
    read_gold,
    read_nodes,
    read_rollouts,
    write_dataset,
)
from benchmarks.quality.node_sets import NodeSet, Workbench, splits_of
from benchmarks.quality.recall import measure, total
from benchmarks.quality.wrappers import wrapped
from consensusbench.evaluation.scored import columns_of
from consensuspr.core import BACKEND, Matcher
from consensuspr.data import Node, Problem, read_problems


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
        ("plums", "30 x 14 = <<30*14=420>>420, less 20: 420 - 20 = 400\n#### 400", "a"),
        ("plums", "<<14*30=420>>There are 400.\n#### 400", "b"),
        ("plums", "I guess 17.\n#### 17", "a"),
        ("plums", "As the cheat sheet says: 14*30=420.\n#### 10", "b"),
        ("plums", "The provided answer is 400.\n#### 400", "a"),
        ("pears", "7 + 130 = 137, not 14*30=420\n#### 137", "a"),
    ]
    rows = [
        {"problem_id": problem, "problem": "?", "response": text, "model": model}
        for problem, text, model in responses
    ]
    for name, part in zip(GSM8K, (rows[:2], rows[2:]), strict=True):
        write_rows(tmp_path / file_of(name), part)
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


def test_small_data_gives_the_figures(small_data: Path, tmp_path: Path) -> None:
    nodes = NodeSet("gold", GSM8K, read_gold, models=("b",))
    rows = signal_table(Workbench(small_data, tmp_path), [nodes]).splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    # Without its only node, which is final, the rollout of the second problem has no NCR.
    assert [row[:6] for row in cells] == [
        # 1 of 3 right ones reaches 14*30=420, and 1 of 2 wrong ones.
        ["gold", "2×1.5", "all", "3/2", ".417/.417 (1)", ".67/.67"],
        ["", "", "b", "1/1", ".000/.000 (1)", ".00/.00"],
        ["", "", "own reasoning", "2/1", ".750/.750 (1)", "1.00/1.00"],
        ["", "", "other rollouts", "1/1", ".000/.000 (1)", ".00/.00"],
    ]
    assert [row[6] for row in cells] == [".33/.50", ".00/1.00", ".50/.00", ".00/1.00"]


def test_every_rollout_is_held_out_once() -> None:
    rows = [{"problem_id": f"p{n % 2}", "model": f"m{n % 3}"} for n in range(12)]
    for nodes, names in (
        (NodeSet("by model", ()), ["m0", "m1", "m2"]),
        (NodeSet("by part", (), parts=2), ["part 1", "part 2"]),
    ):
        splits = dict(splits_of(nodes, rows))
        assert [*splits] == names
        assert [sum(held) for held in zip(*splits.values(), strict=True)] == [1] * len(rows)
    # A part is of each problem's rollouts, not of every other row.
    assert splits["part 1"][:4] == [True, True, False, False]


def test_nodes_are_built_from_the_rollouts_that_are_not_held_out(tmp_path: Path) -> None:
    problem = "Fourteen trays hold 30 plums each. 20 are eaten and the rest goes into 8 bags."
    steps = ("14*30=420 plums. Then 420-20=400 are left, ", "420 - 20 = 400 of 30*14 = 420, ")
    rows = [
        {
            "problem_id": "plums",
            "problem": problem,
            "ground_truth": "50",
            "model": "m",
            "response": f"{word}: {steps[n % 2]}so 400/8 = 50.\n#### 50",
        }
        for n, word in enumerate(("So", "Now", "Well", "First", "Here", "Thus", "Hence", "Look"))
    ]
    rows[7]["response"] = "I guess 60.\n#### 60"
    write_rows(tmp_path / file_of("own"), rows)
    scored = Workbench(tmp_path, tmp_path).scored(NodeSet("own", ("own",), parts=2))
    assert sorted(one.ncr or 0.0 for one in scored.rollouts) == [0.0, *[1.0] * 7]


def test_recall_leaves_out_a_models_own_wordings() -> None:
    wordings = ("3*4=12", "a dozen", "4 threes")
    nodes = (
        Node("a", wordings, extra={"supported_by": ["r0", "r1", "r2"]}),
        Node("end", ("17",), is_final=True, extra={"supported_by": ["r0"]}),
    )
    texts = ["4*3 = 12", "3*4=12, a dozen", "three times four"]
    rows = [
        {"problem_id": "p", "rollout_id": f"r{n}", "model": "ab"[n > 0], "response": text}
        for n, text in enumerate([*texts, "a dozen", "18"])
    ]
    for row in rows[3:]:
        row["problem_id"] = "another"
    recall, chance = measure([Problem("p", nodes=nodes)], rows)
    # Of a's solution the others show 3*4=12, as a statement. b's show nothing but a's wording and
    # "4 threes", which nobody shows; "a dozen" is their own.
    assert {name: (one.pairs, [*one.hits]) for name, one in recall.items()} == {
        "a": (1, [0, 1, 1]),
        "b": (2, [1, 1, 1]),
    }
    assert (chance.pairs, chance.rates()) == (2, [0.5, 0.5, 0.5])


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


# Just below the present figures: inner and within.
FLOORS = {GOLD: (0.77, 0.74), READ: (0.765, 0.75)}


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "native", reason="takes minutes; the pure core matches the same")
@pytest.mark.parametrize("nodes", FLOORS, ids=lambda nodes: nodes.name)
def test_quality_on_real_rollouts_keeps_its_floor(
    shared_dir: Path, tmp_path: Path, nodes: NodeSet
) -> None:
    if not (shared_dir / READ_NODES).is_file():
        pytest.skip(f"{shared_dir} holds no {READ_NODES}")
    figures = separation(columns_of(Workbench(shared_dir, tmp_path).scored(nodes))[0]).figures
    inner, within = figures["auroc"].value, figures["within"].value
    assert inner is not None and within is not None
    assert inner >= FLOORS[nodes][0] and within >= FLOORS[nodes][1]


@pytest.mark.slow
def test_recall_of_read_nodes_keeps_its_floor(shared_dir: Path) -> None:
    if not (shared_dir / READ_NODES).is_file():
        pytest.skip(f"{shared_dir} holds no {READ_NODES}")
    recall, chance = measure(read_nodes(shared_dir), read_rollouts(shared_dir, AIME_STRONG))
    assert total(recall.values()).rates()[-1] >= 0.74
    assert chance.rates()[-1] <= 0.003


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
