"""Problems, nodes and solutions from GSM8K's annotated answers.

An answer such as ``She sold 48/2 = <<48/2=24>>24 clips.`` ends with a line ``#### 72``.  Each
distinct annotation is a node, in order; the last one is final.  The annotations are removed from
the solutions, because the model is to write plain text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from consensusbench.construction.budgets import budget_of, stated_in
from consensuspr.core import Matcher
from consensuspr.data import DataError, Node, Problem, read_rows

_ANNOTATION = re.compile(r"<<([^<>]*)>>")


@dataclass(frozen=True)
class Example:
    """A problem, and its reference solution in plain text, which ends with ``Answer: 72``."""

    problem: Problem
    solution: str


def parse(problem_id: str, question: str, answer: str) -> Example | None:
    """Return an example; None if it cannot train with nodes.

    It needs a node that is not final, and its own solution has to reach every node.
    """
    steps, _, ground_truth = (part.strip() for part in answer.rpartition("####"))
    equations = list(dict.fromkeys(_ANNOTATION.findall(steps)))
    solution = f"{_ANNOTATION.sub('', steps)}\nAnswer: {ground_truth}"
    if len(equations) < 2 or not all(Matcher([[e] for e in equations], True).match(solution)):
        return None
    nodes = tuple(
        Node(str(number), (equation,), equation, "equation", is_final=number == len(equations))
        for number, equation in enumerate(equations, start=1)
    )
    budget = budget_of(stated_in([solution]), len(nodes))
    problem = Problem(problem_id, ground_truth, nodes, "gsm8k", question, budget=budget)
    return Example(problem, solution)


def read(path: Path) -> list[Example]:
    """Return the examples of a JSONL file, plain or gzip'd, with ``question`` and ``answer``.

    Raises:
        DataError: a row cannot be read.
    """
    examples = []
    for line, row in read_rows(str(path), ("question", "answer")):
        if isinstance(row, DataError):
            raise row
        if not all(isinstance(row.get(name), str) for name in ("question", "answer")):
            raise DataError(str(path), line, "needs the texts 'question' and 'answer'")
        if example := parse(f"gsm8k-{line}", row["question"], row["answer"]):
            examples.append(example)
    return examples
