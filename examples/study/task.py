"""Word problems in several stages, with several right ways and three styles to write them down.

    Mia has 12 pens, finds 5 and 3, buys 2 bags of 4, gives 6 and 2. How many?

A stage takes two equations, and there are two ways to most of them: one after the other
(`12+5=17`, `17+3=20`) or together first (`5+3=8`, `12+8=20`).  A node by the author is reached
either way: it lists the equations of both.  The last equation states the answer and is marked so
(`is_final`): with `final_nodes=False` it is no part of the reward.

Styles: equations (`12+5=17`), prose (`12 plus 5 is 17`) and code, where results stand only where
they are used again (`a=12+5`, `b=17+3`), so that a slip shows in the line after it.

Numbers stay small and are a token each, so that a model of 0.3 million weights can learn the steps;
what is hard is to be right in all of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from consensuspr.data import Node, Problem

DATA_SOURCE = "stages"
STAGES, LONGER_STAGES = 3, 4
# Of the warm start, so that the models have seen longer problems.
WARM_STAGES = (2, 3, 3, 4)
LARGEST = 50
NAMES = ("Mia", "Tom", "Ana", "Lee", "Ida", "Max")
ITEMS = ("pens", "nuts", "cards", "coins", "beads", "shells")
STYLES = ("equations", "prose", "code")
# Of a response: as many as the longest problems need, and half as many again.
MAX_RESPONSE_TOKENS = 64
WORDS = {"+": " plus ", "-": " minus ", "*": " times "}
FENCE, FENCE_END = "```python\n", "```\n"
VARIABLES = "abcdefghijkl"

# (left, sign, right): an equation without its result.
Operation = tuple[int, str, int]


def result_of(operation: Operation) -> int:
    """Return what an operation gives."""
    left, sign, right = operation
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def equation(operation: Operation) -> str:
    """Return the operation with its result, as a node states it."""
    left, sign, right = operation
    return f"{left}{sign}{right}={result_of(operation)}"


@dataclass(frozen=True)
class Stage:
    """One clause of a problem, from the amount before it.

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
        return f"{self.name} has {self.stages[0].before} {self.item}{clauses}. How many?"

    @property
    def answer(self) -> int:
        return self.stages[-1].after

    def operations(self, rng: random.Random) -> list[Operation]:
        """Return the operations of a right solution; each stage is done in a way drawn by `rng`."""
        return [operation for stage in self.stages for operation in rng.choice(stage.ways)]

    def nodes(self) -> list[Node]:
        """Return two nodes a stage: the first equations of all ways, and the amount after it."""
        nodes = []
        for number, stage in enumerate(self.stages, start=1):
            for part, name in enumerate(("halfway", "after")):
                expressions = tuple(equation(way[part]) for way in stage.ways)
                final = name == "after" and number == len(self.stages)
                node = Node(f"{name}-{number}", expressions, f"{name} stage {number}", "equation")
                nodes.append(replace(node, is_final=final))
        return nodes

    def problem(self, problem_id: str, split: str) -> Problem:
        """Return it as a row of a dataset, with the author's nodes."""
        return Problem(
            problem_id=problem_id,
            data_source=DATA_SOURCE,
            problem=self.text,
            ground_truth=str(self.answer),
            nodes=tuple(self.nodes()),
            split=split,
        )


def write(operations: Sequence[Operation], style: str) -> str:
    """Return the solution that does these operations, in one of `STYLES`, up to its answer."""
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
    return f"{body}Answer: {result_of(operations[-1])}"


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
    amount = rng.randint(5, 25)
    stages: list[Stage] = []
    while len(stages) < count:
        kind = rng.choice(("finds", "gives", "buys", "loses"))
        first = rng.randint(2, 9 if kind in ("finds", "gives") else 4)
        stage = Stage(amount, kind, first, rng.randint(2, 9))
        if 2 <= stage.after <= LARGEST:
            stages.append(stage)
            amount = stage.after
    return Story(rng.choice(NAMES), rng.choice(ITEMS), tuple(stages))


def vocabulary() -> list[str]:
    """Return the tokens that any problem and any solution is made of."""
    clauses = [f", {kind} " for kind in ("finds", "gives", "buys", "loses")]
    return [
        *map(str, range(LARGEST + 1)),
        *WORDS,
        *WORDS.values(),
        "=",
        " is ",
        "\n",
        FENCE,
        FENCE_END,
        *(f"{name}=" for name in VARIABLES),
        "Answer: ",
        *NAMES,
        " has ",
        *(f" {item}" for item in ITEMS),
        *clauses,
        " and ",
        " bags of ",
        ". How many?",
    ]
