"""Arithmetic in several steps: "start with 7; add 5; times 3; minus 9".

Each step is one consensus node (its equation), and the answer is the last one.  A solution that
goes wrong in its third step has two of five nodes and no answer: the outcome alone rewards it like
one that goes wrong in the first.  Numbers stay small, so that a tiny model can learn the steps, and
no equation occurs twice in a problem, so that each step covers one node.
"""

from __future__ import annotations

import operator
import random
import string
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from consensuspr.data import Node, Problem

DATA_SOURCE = "arithmetic"
SIGNS = {"add": "+", "minus": "-", "times": "*"}
_OPERATORS = {"add": operator.add, "minus": operator.sub, "times": operator.mul}
OPENING = ("start", "with", "Answer")
VOCABULARY = (*string.digits, "=", ";", ":", " ", "\n", *SIGNS.values(), *OPENING, *SIGNS)

# Failed draws in a row, after which a small task counts as used up.
MISSES = 100


@dataclass(frozen=True)
class Chain:
    """A problem: an amount, and operations on it of which each uses the last one's result."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @property
    def results(self) -> list[int]:
        """The amount at the start and after each operation."""
        amounts = [self.start]
        for word, right in self.operations:
            amounts.append(_OPERATORS[word](amounts[-1], right))
        return amounts

    @property
    def equations(self) -> list[str]:
        steps = zip(self.results, self.operations, self.results[1:], strict=False)
        return [f"{left}{SIGNS[word]}{right}={result}" for left, (word, right), result in steps]

    @property
    def text(self) -> str:
        """The prompt."""
        return f"start with {self.start}" + "".join(f"; {w} {n}" for w, n in self.operations)

    @property
    def solution(self) -> str:
        """The right response: a line for each step, then the answer."""
        return "\n".join([*self.equations, f"Answer: {self.results[-1]}"])

    def problem(self, problem_id: str, split: str) -> Problem:
        """Return the problem with its nodes: one for each step, and the answer."""
        steps = zip(self.operations, self.equations, strict=True)
        nodes = [
            Node(f"s{number}", (equation,), f"{word} {right}", "equation")
            for number, ((word, right), equation) in enumerate(steps, start=1)
        ]
        answer = str(self.results[-1])
        nodes.append(Node("answer", (f"Answer: {answer}",), "the answer", "value", is_final=True))
        return Problem(
            problem_id=problem_id,
            data_source=DATA_SOURCE,
            problem=self.text,
            ground_truth=answer,
            nodes=tuple(nodes),
            split=split,
        )


def draw_chains(
    seed: int, steps: int, largest: int, avoid: Collection[str] = ()
) -> Iterator[Chain]:
    """Yield problems without end, each once until all were drawn, and no text of `avoid`.

    Args:
        steps: operations of each.
        largest: number that occurs.
    """
    rng = random.Random(seed)
    seen, misses = set(avoid), 0
    while True:
        chain = Chain(rng.randint(2, 9), ())
        for _ in range(steps):
            left = chain.results[-1]
            choices = [
                (word, right)
                for right in range(2, 10)
                for word, calculate in _OPERATORS.items()
                if 2 <= calculate(left, right) <= largest
            ]
            chain = Chain(chain.start, (*chain.operations, rng.choice(choices)))
        if len(set(chain.equations)) == steps and chain.text not in seen:
            seen.add(chain.text)
            misses = 0
            yield chain
        elif (misses := misses + 1) == MISSES:
            seen, misses = set(avoid), 0


def read_chain(text: str) -> Chain:
    """Return the problem of a prompt."""
    start, *operations = text.removeprefix("start with ").split("; ")
    words = (operation.split(" ") for operation in operations)
    return Chain(int(start), tuple((word, int(right)) for word, right in words))


def flawed_solution(
    chain: Chain, rng: random.Random, error_rate: float, *, largest: int, varied: bool
) -> str:
    """Return a solution whose every step is wrong with a probability, and goes on from there.

    Args:
        largest: number that a wrong result may be.
        varied: write the operands of a sum or a product in either order, below some words.
    """
    left = chain.start
    lines = []
    for word, right in chain.operations:
        result = _OPERATORS[word](left, right)
        if rng.random() < error_rate:
            result = rng.choice([number for number in range(2, largest + 1) if number != result])
        operands = [left, right]
        if varied and word != "minus" and rng.random() < 0.5:
            operands.reverse()
        lines.append(f"{operands[0]}{SIGNS[word]}{operands[1]}={result}")
        left = result
    if varied:
        lines.insert(0, " ".join(rng.choices(OPENING, k=3)))
    return "\n".join([*lines, f"Answer: {left}"])
