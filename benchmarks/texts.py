"""Texts to measure with: seeded ones of the shape that verl's rollouts have, and real ones.

A generated rollout is reasoning in prose with LaTeX, Markdown and numbers, in paragraphs, and
ends with an answer in ``\\boxed{}``.  Its filler never holds what a generated node is about:
nodes speak of numbers of at least five digits, the filler of numbers below 10,000 and of
equations whose result is smaller still.  So it is known which nodes a text reaches, and a
contender that reports others is wrong.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from consensuspr.core import derive_forms
from consensuspr.scoring import Rollout

# Words in no order: a vocabulary this wide is as hard to predict for a processor as real prose.
_WORDS = (
    "and or but so then thus hence because since although while where which that this each every "
    "any some all both neither only also again still yet just maybe perhaps exactly roughly "
    "clearly therefore however instead actually indeed otherwise given let suppose assume note "
    "recall check verify compute count compare choose pick take put write rewrite expand factor "
    "simplify substitute divide multiply add subtract square cancel rearrange combine split "
    "problem answer value number sum product ratio fraction factor term root power degree sign "
    "equation expression formula function variable constant parameter coefficient polynomial "
    "sequence series set subset pair triple point line circle triangle angle side height area "
    "volume length distance speed time rate probability case condition constraint bound limit "
    "maximum minimum positive negative even odd prime integer rational real complex distinct equal "
    "larger smaller greater less first second third last next previous other same different total "
    "remaining possible impossible valid wrong correct simple tricky interesting general specific "
    "I we you it they one two three of in on at by for with from to into over under between not "
    "is are was be has have had do does can could should would must will x y n k it’s that’s don’t "
    "we’ll non‑zero two‑digit → ≥ – … (mod (see b) i.e. e.g. n≥2 a_i x_1 y^k f(n) k-1 r/s |A| O(n)"
).split()
_FORMULAS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: _small_sum(rng, "${} + {} = {}$"),
    lambda rng: _small_sum(rng, r"\({} + {} = {}\)"),
    lambda rng: _small_sum(rng, "{} + {} = {}"),
    lambda rng: (
        f"$x^2 - {rng.randrange(2, 40)}x + {rng.randrange(2, 90)} = 0$, so "
        f"$x = \\frac{{{rng.randrange(2, 99)}}}{{{rng.randrange(2, 9)}}}$"
    ),
    lambda rng: (
        f"\n\\[\n\\sqrt{{{rng.randrange(2, 99)}}} \\cdot y_{{{rng.randrange(9)}}} \\le "
        f"\\frac{{a+{rng.randrange(2, 9)}}}{{b}}\n\\]\n"
    ),
    lambda rng: f"about {rng.randrange(2, 100)}% of {rng.randrange(1000, 9999):,} cases",
    lambda rng: f"$\\left(\\frac{{n}}{{{rng.randrange(2, 30)}}}\\right)^{{{rng.randrange(2, 5)}}}$",
    lambda rng: f"`f({rng.randrange(9)})` is {rng.randrange(100)}.{rng.randrange(10, 99)}",
    lambda rng: (
        f"(n+{rng.randrange(1, 9)})(n-{rng.randrange(1, 9)}) ≤ m^2/{rng.randrange(2, 9)} for m≥"
        f"{rng.randrange(2, 99)}"
    ),
    lambda rng: f"p = {rng.randrange(2, 999)}, q={rng.randrange(2, 999)} -> p-q>0?",
)
# How a rollout writes a product or a sum that is a node; all of one normal form up to order.
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "*": (
        "Now ${a} \\times {b} = {c}$.",
        "That gives {a} * {b} = {c:,} in all.",
        "\\[ {a} \\cdot {b} = {latex} \\]",
        "Therefore **{a} × {b} = {c}**, as needed.",
    ),
    "+": (
        "Adding both, ${a} + {b} = {c}$.",
        "Together {a} + {b} = {c:,} of them.",
        "\\[ {a} + {b} = {latex} \\]",
        "So we get **{a} + {b} = {c}** here.",
    ),
}
_FIRST_LARGE = 10_000
# The paper's nodes of a problem, and what most recipes sample a prompt: 2,048 rollouts are then
# 256 problems.
NODES = 7
PER_PROBLEM = 8


class Answer(NamedTuple):
    """A response, what its answer is checked against, and whether it is right."""

    ground_truth: str
    response: str
    correct: bool


def problems(count: int, seed: int, nodes: int = NODES) -> list[dict[str, Any]]:
    """Return rows of a dataset file, ``nodes`` nodes each, with derived forms and an answer.

    Nodes are products and sums of numbers that no other node of the same problem shares.
    """
    rng = random.Random(f"problems {seed}")
    return [_problem(rng, index, nodes) for index in range(count)]


def rollouts_of(
    problems: Sequence[Mapping[str, Any]], per_problem: int, size: int, seed: int
) -> list[dict[str, Any]]:
    """Return rollout rows of about ``size`` bytes that reach a known part of the nodes.

    Each has ``problem_id``, ``response``, ``rollout_id``, ``ground_truth``, ``expected`` (one flag
    a node) and ``correct`` (whether its boxed answer is the ground truth).  Problems are those of
    ``problems``; about half of the nodes are reached, and the last but seldom, so that a search
    that may stop when all is found reads most texts to the end.
    """
    rng = random.Random(f"rollouts of {seed}")
    rows = []
    for problem in problems:
        nodes = problem["nodes"]
        for number in range(per_problem):
            expected = [rng.random() < (0.1 if node["is_final"] else 0.5) for node in nodes]
            correct = rng.random() < 0.5
            answer = int(problem["ground_truth"]) + (0 if correct else rng.randrange(1, 50))
            reached = [node for node, known in zip(nodes, expected, strict=True) if known]
            rows.append(
                {
                    "problem_id": problem["problem_id"],
                    "rollout_id": f"{problem['problem_id']}-r{number}",
                    "response": _close(_with_steps(rng, reached, size), answer),
                    "ground_truth": problem["ground_truth"],
                    "expected": expected,
                    "correct": correct,
                }
            )
    return rows


def answers(count: int, seed: str) -> list[Answer]:
    """Return answers of the usual kinds, each different, half of them wrong."""
    rng = random.Random(f"answers {seed}")
    return [_answer(rng, index) for index in range(count)]


@dataclass(frozen=True)
class Batch:
    """Rollouts of which it is known what they reach, and the dataset file with their problems.

    ``problems`` are the rows of the file, ``rows`` those of :func:`rollouts_of`.
    """

    dataset: Path
    problems: list[dict[str, Any]]
    rows: list[dict[str, Any]]

    @property
    def rollouts(self) -> list[Rollout]:
        """What a scorer is given."""
        return [Rollout(row["problem_id"], row["response"]) for row in self.rows]

    @property
    def expected(self) -> list[list[bool]]:
        """One row a rollout with one flag a node."""
        return [row["expected"] for row in self.rows]


def batch(count: int, size: int, seed: int, folder: Path, per_problem: int = PER_PROBLEM) -> Batch:
    """Return generated rollouts of about ``size`` bytes; their dataset is written to ``folder``."""
    made = problems(-(-count // per_problem), seed)
    rows = rollouts_of(made, per_problem, size, seed)[:count]
    return Batch(write_rows(folder / "dataset.jsonl", made), made, rows)


def expressions(problem: Mapping[str, Any]) -> list[list[str]]:
    """Return the nodes of a dataset row as a matcher takes them, derived forms included."""
    return [[*node["expressions"], *node.get("derived", ())] for node in problem["nodes"]]


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a gzip'd JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def real_rows(data: Path, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``data/rollouts/NAME.jsonl.gz``, file after file."""
    for name in names:
        yield from json_lines(data / "rollouts" / f"{name}.jsonl.gz")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as a JSONL file, to be given to a server or a command; return its path."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def _small_sum(rng: random.Random, written: str) -> str:
    a, b = rng.randrange(2, 400), rng.randrange(2, 400)
    return written.format(a, b, a + b)


def _sentence(rng: random.Random) -> str:
    parts = [" ".join(rng.choices(_WORDS, k=rng.randrange(4, 20)))]
    # About as much of it is symbols as in what reasoning models write.
    parts += [rng.choice(_FORMULAS)(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}. "


def _prose(rng: random.Random, size: int) -> str:
    parts: list[str] = []
    length = 0
    while length < size:
        part = _sentence(rng)
        if rng.random() < 0.25:
            part += "\n\n"
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def _with_steps(rng: random.Random, nodes: Sequence[Mapping[str, Any]], size: int) -> str:
    """Spread the nodes' steps over the text, in their order."""
    steps = [_write_step(rng, node) for node in nodes]
    share = max(0, size - sum(map(len, steps))) // (len(steps) + 1)
    parts = [_prose(rng, share)]
    for step in steps:
        parts += ["\n\n", step, "\n\n", _prose(rng, share)]
    return "".join(parts)


def _write_step(rng: random.Random, node: Mapping[str, Any]) -> str:
    left, _, result = str(node["expressions"][0]).partition("=")
    sign = "*" if "*" in left else "+"
    a, b, c = (int(part) for part in (*left.split(sign), result))
    return rng.choice(_WRITTEN[sign]).format(a=a, b=b, c=c, latex=f"{c:,}".replace(",", "{,}"))


def _close(prose: str, answer: int) -> str:
    return f"{prose}\n\nSo the final answer is $\\boxed{{{answer}}}$."


def _problem(rng: random.Random, index: int, count: int) -> dict[str, Any]:
    numbers = rng.sample(range(_FIRST_LARGE, _FIRST_LARGE * 10), 2 * count)
    nodes = []
    for number in range(count):
        a, b = numbers[2 * number : 2 * number + 2]
        equation = f"{a}+{b}={a + b}" if rng.random() < 0.3 else f"{a}*{b}={a * b}"
        nodes.append(
            {
                "node_id": f"n{number + 1}",
                "label": f"step {number + 1}",
                "type": "equation",
                "expressions": [equation],
                "derived": list(derive_forms(equation)),
                "support": rng.randrange(2, 8),
                "is_final": number == count - 1,
            }
        )
    return {
        "problem_id": f"generated-{index:06d}",
        "data_source": "generated",
        "problem": f"A generated problem of {count} steps, number {index}.",
        "ground_truth": str(rng.randrange(1, 1000)),
        "nodes": nodes,
        # The guard works, and lowers nothing: what is measured are texts full of equations.
        "budget": {"statements": 1_000_000, "numbers": 1_000_000},
        "split": "train",
        "metadata": {},
    }


def _answer(rng: random.Random, index: int) -> Answer:
    a, b = 1000 + 7 * index + rng.randrange(7), rng.randrange(2, 98)
    kinds = (
        (str(a), f"{a:,}", f"{a + 1}"),
        (f"{a}.{b:02}", f"{a}.{b:02}0", f"{a}.{b + 1:02}"),
        (rf"\frac{{{a}}}{{{b}}}", f"{a}/{b}", f"{a + 1}/{b}"),
        (rf"{a}\sqrt{{{b}}}", rf"${a}\,\sqrt{{{b}}}$", rf"{a + 1}\sqrt{{{b}}}"),
        (f"({a}, {b})", rf"\left({a},{b}\right)", f"({b}, {a})"),
        (f"{a}", rf"{a}\text{{ cm}}", rf"{a - 1}\text{{ cm}}"),
    )
    truth, right, wrong = kinds[index % len(kinds)]
    correct = rng.random() < 0.5
    given = right if correct else wrong
    return Answer(truth, f"{_prose(rng, 400)}\n\nThe answer is $\\boxed{{{given}}}$.", correct)
