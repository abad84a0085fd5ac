"""Outside data: nodes at hand, and rollouts of GSM8K, MATH and AIME.

A gold node is one calculation of GSM8K's own solution of a problem; its equation is
``expression=value``.  It states the final answer if its value is the answer.  The nodes of AIME
2024 were written by reading right solutions.

Program code is rare in the outside data, so a set of it is made by rule: each step that a solution
writes as an equation becomes a line of Python, with names instead of earlier results, in one of
three styles (:func:`as_program`).  It has the steps of its source and none of its words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from benchmarks.texts import json_lines, real_rows
from consensusbench.extraction.rules import read_chains
from consensusbench.extraction.statements import Truth, truth_of
from consensuspr.core import derive_forms
from consensuspr.data import Node, Problem, Row, open_writer, problem_to_row, read_problems

GOLD_NODES = Path("data/nodes/gsm8k_test_calc_nodes.jsonl.gz")
READ_NODES = Path("data/nodes/aime24_read_nodes.jsonl.gz")
# Rollouts of the same problems, by name below ``data/rollouts``.
GSM8K = ("gsm8k_gpt3", "gsm8k_gpt4o_mini_and_older")
MATH = ("math100_qwen25math",)
AIME = ("aime24_gpt4o_claude35", "aime24_qwen3_32b")
# The solutions that the nodes of AIME were written from.
AIME_STRONG = ("aime24_strong_read",)
# GSM8K's models were trained to write <<48/2=24>> for a calculator: the node itself.
CALCULATOR = re.compile(r"<<[^<>]*>>")

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ARITHMETIC = re.compile(r"[\d.()+*/^-]+")


def file_of(name: str) -> Path:
    """Return the path of a file of rollouts below the folder of outside data."""
    return Path(f"data/rollouts/{name}.jsonl.gz")


def read_rollouts(shared: Path, names: Sequence[str]) -> list[Row]:
    """Return rollouts without calculator annotations, each with its problem and ground truth."""
    rows = list(real_rows(shared / "data", *names))
    problems = {}
    if any("problem" not in row for row in rows):
        problems = {one.problem_id: one for one in read_problems(shared / READ_NODES)}
    for row in rows:
        row["response"] = CALCULATOR.sub("", row["response"])
        if problem := problems.get(row["problem_id"]):
            row |= {
                "problem": problem.problem,
                "ground_truth": problem.ground_truth,
                "data_source": problem.data_source,
            }
    return rows


def read_nodes(shared: Path) -> list[Problem]:
    """Return the problems of AIME 2024 with the nodes that were written by reading."""
    return list(read_problems(shared / READ_NODES))


def read_gold(shared: Path) -> list[Problem]:
    """Return the problems that have gold nodes, with derived forms, in the order of the file."""
    problems = []
    for row in json_lines(shared / GOLD_NODES):
        nodes = []
        for position, gold in enumerate(row["nodes"]):
            equation = f"{gold['expr']}={gold['value']}"
            nodes.append(
                Node(
                    node_id=f"step-{position}",
                    label=gold["text"],
                    type="equation",
                    expressions=(equation,),
                    derived=tuple(derive_forms(equation)),
                    is_final=_value(gold["value"]) == _value(row["ground_truth"]),
                )
            )
        if nodes:
            problems.append(
                Problem(
                    problem_id=row["problem_id"],
                    ground_truth=row["ground_truth"],
                    nodes=tuple(nodes),
                    data_source="openai/gsm8k",
                    problem=row["problem"],
                )
            )
    return problems


def _value(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def write_dataset(path: Path, problems: list[Problem]) -> Path:
    """Write a dataset that a server can load; return its path."""
    with open_writer(path) as out:
        for problem in problems:
            out.write(problem_to_row(problem))
    return path


def as_program(response: str) -> str | None:
    """Return the steps of a response as Python, None if it writes none as an equation."""
    names: dict[str, str] = {}
    lines: list[str] = []
    seen: set[str] = set()
    for chain in read_chains(response):
        for link in chain:
            step = _step(link.left, link.right)
            if link.relation not in "=≈" or step is None or step in seen:
                continue
            seen.add(step)
            name = f"step_{len(lines) + 1}"
            with_names = _NUMBER.sub(lambda number: names.get(number[0], number[0]), step)
            lines.append(f"{name} = {with_names.replace('^', '**')}")
            # A value that was given may come again: the last result of this value is meant.
            names[link.right if _NUMBER.fullmatch(link.right) else link.left] = name
    if not lines:
        return None
    last = f"step_{len(lines)}"
    style = hashlib.blake2b(response.encode(), digest_size=1).digest()[0] % 3
    if style == 0:
        code = "\n".join(["```python", *lines, f"print({last})", "```"])
    elif style == 1:
        body = "\n".join(f"    {line}" for line in [*lines, f"return {last}"])
        code = f"```python\ndef solution():\n{body}\n\nprint(solution())\n```"
    else:
        code = "\n".join([*lines, f"print({last})"]) + "\n"
    return f"{code}\n"


def _step(left: str, right: str) -> str | None:
    """Return the side of an equation that is calculated; None if it is neither or both."""
    for side, other in ((left, right), (right, left)):
        if (
            _NUMBER.fullmatch(other)
            and _ARITHMETIC.fullmatch(side)
            and not _NUMBER.fullmatch(side)
            and truth_of(f"{side}={other}") in (Truth.TRUE, Truth.ROUNDED)
        ):
            return side.lstrip("+")
    return None
