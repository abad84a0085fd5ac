"""Word problems in stages whose answers are hard to guess: two numbers of three digits.

    Mia has 347 pens, finds 121 and 430, buys 2 bags of 50, ... How many before the last and now?

A stage takes two equations, and there are two ways to most of them: one after the other
(`347+121=468`, `468+430=898`) or together first (`121+430=551`, `347+551=898`).  A node by the
author is reached either way, because it lists the equations of both.  The answer has two parts: the
amounts before and after the last stage.  The equations that state them are final nodes, so that
with `final_nodes=False` no node is a part of the answer.

All numbers but the 2 or 3 of "2 bags" have three digits, and no operation carries.  A slip in any
digit of any equation makes the answer wrong, and a second slip seldom repairs it.

Styles: equations (`347+121=468`), prose (`347 plus 121 is 468`) and code, where a result stands
only where it is used again (`a=347+121`, `b=468+430`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from consensuspr.data import Node, Problem

DATA_SOURCE = "stages"
STAGES = 3
# Of the warm-up, so that the models have seen shorter problems.
WARM_STAGES = (2, 3, 3)
LEAST, LARGEST = 100, 999
NAMES = ("Mia", "Tom", "Ana", "Lee", "Ida", "Max")
ITEMS = ("pens", "nuts", "cards", "coins", "beads", "shells")
KINDS = ("finds", "gives", "buys", "loses")
BAGS = (2, 3)
STYLES = ("equations", "prose", "code")
WORDS = {"+": " plus ", "-": " minus ", "*": " times "}
FENCE, FENCE_END = "```python\n", "```\n"
VARIABLES = "abcdef"
QUESTION = ". How many before the last and now?"
# Of a response. A solution takes 41 at most, so there is room for six equations more.
MAX_RESPONSE_TOKENS = 80

# (left, sign, right): an equation without its result.
Operation = tuple[int, str, int]


def result_of(operation: Operation) -> int:
    """Return the result of an operation."""
    left, sign, right = operation
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def equation(operation: Operation) -> str:
    """Return the operation with its result, as a node states it."""
    left, sign, right = operation
    return f"{left}{sign}{right}={result_of(operation)}"


@dataclass(frozen=True)
class Stage:
    """One clause of a problem.

    Attributes:
        before: the amount that the stage begins with.
        kind: `finds` and `gives` two amounts; `buys` and `loses` so many bags of so many.
        first, second: the two numbers of the clause.
    """

    before: int
    kind: str
    first: int
    second: int

    @property
    def ways(self) -> list[tuple[Operation, Operation]]:
        """The right ways; each is two operations, of which the second gives the new amount."""
        sign = "+" if self.kind in ("finds", "buys") else "-"
        if self.kind in ("finds", "gives"):
            single, together = self.first, (self.first, "+", self.second)
        else:
            single, together = self.second, (self.first, "*", self.second)
        ways = [(together, (self.before, sign, result_of(together)))]
        if self.kind in ("finds", "gives") or self.first == 2:
            halfway = (self.before, sign, single)
            ways.append((halfway, (result_of(halfway), sign, self.second)))
        return ways

    @property
    def after(self) -> int:
        return result_of(self.ways[0][1])

    @property
    def text(self) -> str:
        middle = " and " if self.kind in ("finds", "gives") else " bags of "
        return f", {self.kind} {self.first}{middle}{self.second}"


@dataclass(frozen=True)
class Story:
    """A problem: somebody has some items, and stages change their number."""

    name: str
    item: str
    stages: tuple[Stage, ...]

    @property
    def text(self) -> str:
        clauses = "".join(stage.text for stage in self.stages)
        return f"{self.name} has {self.stages[0].before} {self.item}{clauses}{QUESTION}"

    @property
    def answer(self) -> str:
        """The amounts before and after the last stage."""
        return f"{self.stages[-1].before}, {self.stages[-1].after}"

    def operations(self, rng: random.Random) -> list[Operation]:
        """Return the operations of a right solution; `rng` draws the way of each stage."""
        return [operation for stage in self.stages for operation in rng.choice(stage.ways)]

    def solution(self, rng: random.Random) -> str:
        """Return a right solution in ways and a style that `rng` draws."""
        return write(self.operations(rng), rng.choice(STYLES), self.answer)

    def nodes(self) -> list[Node]:
        """Return two nodes a stage: the first equations of all ways, and the amount after it."""
        nodes = []
        for number, stage in enumerate(self.stages, start=1):
            for part, name in enumerate(("halfway", "after")):
                expressions = tuple(equation(way[part]) for way in stage.ways)
                node = Node(f"{name}-{number}", expressions, f"{name} stage {number}", "equation")
                final = name == "after" and number >= len(self.stages) - 1
                nodes.append(replace(node, is_final=final))
        return nodes

    def problem(self, problem_id: str, split: str) -> Problem:
        """Return it as a row of a dataset, with the author's nodes."""
        return Problem(
            problem_id=problem_id,
            data_source=DATA_SOURCE,
            problem=self.text,
            ground_truth=self.answer,
            nodes=tuple(self.nodes()),
            split=split,
        )


def write(operations: Sequence[Operation], style: str, answer: str) -> str:
    """Return the solution that does these operations, in one of `STYLES`, with its answer."""
    lines = []
    for number, operation in enumerate(operations):
        left, sign, right = operation
        if style == "prose":
            lines.append(f"{left}{WORDS[sign]}{right} is {result_of(operation)}\n")
        elif style == "code":
            lines.append(f"{VARIABLES[number]}={left}{sign}{right}\n")
        else:
            lines.append(f"{equation(operation)}\n")
    body = "".join(lines)
    if style == "code":
        body = f"{FENCE}{body}{FENCE_END}"
    return f"{body}Answer: {answer}"


_WRITTEN = re.compile(r"(\d+)(?: (plus|minus|times) |([-+*]))(\d+)(?:(?:=| is )(\d+))?\n")
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}


def style_of(response: str) -> str:
    """Return the style that a response is written in."""
    if FENCE in response:
        return "code"
    return "prose" if " is " in response else "equations"


def equations_in(response: str) -> list[str]:
    """Return the equations that a response states, in any style, as nodes write them.

    An equation of code states no result; it has the right one here, as for the server.
    """
    found = []
    for left, word, sign, right, result in _WRITTEN.findall(response):
        operation = (int(left), sign or _SIGNS[word], int(right))
        sides = equation(operation).split("=")
        found.append(f"{sides[0]}={result or sides[1]}")
    return found


def is_true(stated: str) -> bool:
    """Return whether an equation of :func:`equations_in` is true."""
    match = re.fullmatch(r"(\d+)([-+*])(\d+)=(-?\d+)", stated)
    assert match, stated
    return result_of((int(match[1]), match[2], int(match[3]))) == int(match[4])


def draw_stories(
    seed: int, stages: Sequence[int] = (STAGES,), avoid: Collection[str] = ()
) -> Iterator[Story]:
    """Yield problems without end, each once, none of them in `avoid` (texts of problems).

    Each has as many stages as a random one of `stages`.
    """
    rng = random.Random(seed)
    seen = set(avoid)
    while True:
        story = _draw(rng, rng.choice(stages))
        equations = [e for node in story.nodes() for e in node.expressions]
        # Each equation covers one node.
        if len(set(equations)) == len(equations) and story.text not in seen:
            seen.add(story.text)
            yield story


def _draw(rng: random.Random, count: int) -> Story:
    amount = rng.randint(LEAST, LARGEST)
    stages: list[Stage] = []
    while len(stages) < count:
        kind = rng.choice(KINDS)
        numbers = _numbers(rng, amount, kind)
        if numbers:
            stages.append(Stage(amount, kind, *numbers))
            amount = stages[-1].after
    return Story(rng.choice(NAMES), rng.choice(ITEMS), tuple(stages))


def _numbers(rng: random.Random, amount: int, kind: str) -> tuple[int, int] | None:
    """Return the two numbers of a stage, drawn so that nothing carries; None if there are none."""
    bags = rng.choice(BAGS)
    first = second = 0
    for place in (100, 10, 1):
        # Numbers have three digits, and so has what is left.
        least = int(place == 100)
        digit = amount // place % 10
        room = 9 - digit if kind in ("finds", "buys") else digit - least
        if kind in ("finds", "gives"):
            pairs = [
                (one, other)
                for one in range(least, room + 1)
                for other in range(least, room - one + 1)
            ]
        else:
            pairs = [(0, one) for one in range(least, room // bags + 1)]
        if not pairs:
            return None
        one, other = rng.choice(pairs)
        first, second = first + place * one, second + place * other
    return first or bags, second


def vocabulary() -> list[str]:
    """Return the tokens that any problem and any solution is made of; a number is one token.

    Stored models depend on their order.
    """
    return [
        *map(str, (*BAGS, *range(LEAST, LARGEST + 1))),
        *(*WORDS, *WORDS.values(), "=", " is ", "\n", FENCE, FENCE_END),
        *(f"{name}=" for name in VARIABLES),
        *("Answer: ", ", ", *NAMES, " has "),
        *(f" {item}" for item in ITEMS),
        *(f", {kind} " for kind in KINDS),
        *(" and ", " bags of ", QUESTION),
    ]
