"""Arithmetic in several steps: "start with 7; add 5; times 3; minus 9".

Each step is one consensus node (its equation), and the answer is the last one.  A solution that
goes wrong in its third step has two of five nodes and no answer: the outcome alone cannot tell it
from one that goes wrong in the first.  Numbers stay small, so that a tiny model can learn the
steps, and no equation occurs twice in a problem, so that no node is covered for another's sake.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from consensuspr.data import Node, Problem

DATA_SOURCE = "arithmetic"
SIGNS = {"add": "+", "minus": "-", "times": "*"}

# Draws in a row without a new problem, after which a small task counts as used up.
MISSES = 100


@dataclass(frozen=True)
class Task:
    """How hard the problems are.

    Attributes:
        steps: operations of a problem.
        largest: number in it.
    """

    steps: int
    largest: int


DEFAULT_TASK = Task(steps=4, largest=30)


@dataclass(frozen=True)
class Step:
    """One operation: `left sign right = result`."""

    left: int
    word: str
    right: int
    result: int

    @property
    def equation(self) -> str:
        return f"{self.left}{SIGNS[self.word]}{self.right}={self.result}"


@dataclass(frozen=True)
class Chain:
    """A problem: steps of which each begins with the result of the one before."""

    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """What the model is asked."""
        operations = [f"; {step.word} {step.right}" for step in self.steps]
        return f"start with {self.steps[0].left}" + "".join(operations)

    @property
    def answer(self) -> str:
        return str(self.steps[-1].result)

    @property
    def solution(self) -> str:
        """The right response: a line for each step, then the answer."""
        return solution([step.equation for step in self.steps], self.answer)


def solution(equations: list[str], answer: str) -> str:
    """Return a response in the form that the model learns."""
    return "\n".join([*equations, f"Answer: {answer}"])


def draw_chains(
    seed: int, task: Task = DEFAULT_TASK, *, avoid: Collection[str] = ()
) -> Iterator[Chain]:
    """Yield problems without end, each once until all were drawn.

    Args:
        seed: Where to start.
        task: How hard they are.
        avoid: Texts of problems that are not yielded.
    """
    rng = random.Random(seed)
    seen, misses = set(avoid), 0
    while True:
        chain = _draw_chain(rng, task)
        distinct = len({step.equation for step in chain.steps}) == task.steps
        if distinct and chain.text not in seen:
            seen.add(chain.text)
            misses = 0
            yield chain
        elif (misses := misses + 1) == MISSES:
            seen, misses = set(avoid), 0


def read_chain(text: str) -> Chain:
    """Return the problem of a text that asks for it."""
    start, *operations = text.removeprefix("start with ").split("; ")
    words = (operation.split(" ") for operation in operations)
    return Chain(tuple(follow(int(start), [(word, int(right)) for word, right in words])))


def follow(left: int, operations: list[tuple[str, int]]) -> Iterator[Step]:
    """Yield the steps that begin with `left`."""
    for word, right in operations:
        result = calculate(left, word, right)
        yield Step(left, word, right, result)
        left = result


def calculate(left: int, word: str, right: int) -> int:
    """Return the right result of one operation."""
    match word:
        case "add":
            return left + right
        case "minus":
            return left - right
        case "times":
            return left * right
        case _:
            raise ValueError(f"the operation must be one of {', '.join(SIGNS)}, got {word!r}")


def _draw_chain(rng: random.Random, task: Task) -> Chain:
    start = left = rng.randint(2, 9)
    operations: list[tuple[str, int]] = []
    for _ in range(task.steps):
        word, right = rng.choice(list(_choices(left, task.largest)))
        operations.append((word, right))
        left = calculate(left, word, right)
    return Chain(tuple(follow(start, operations)))


def _choices(left: int, largest: int) -> Iterator[tuple[str, int]]:
    for right in range(2, 10):
        if left + right <= largest:
            yield "add", right
        if left - right >= 2:
            yield "minus", right
        if left * right <= largest:
            yield "times", right


def to_problem(chain: Chain, problem_id: str, split: str) -> Problem:
    """Return the problem with its nodes: one for each step, and the answer."""
    nodes = [
        Node(
            node_id=f"s{number}",
            label=f"{step.word} {step.right}",
            type="equation",
            expressions=(step.equation,),
        )
        for number, step in enumerate(chain.steps, start=1)
    ]
    final = Node(
        node_id="answer",
        label="the answer",
        type="value",
        expressions=(f"Answer: {chain.answer}",),
        is_final=True,
    )
    return Problem(
        problem_id=problem_id,
        data_source=DATA_SOURCE,
        problem=chain.text,
        ground_truth=chain.answer,
        nodes=(*nodes, final),
        split=split,
    )
