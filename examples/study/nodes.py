"""The datasets of the study: the author's nodes, and the nodes of the controls.

All have the same problems and differ in nodes or budgets alone.  Problems come from fixed seeds of
Python's generator, so that nothing but the random nodes has to be stored.

- *shuffled*: each problem to train on has the counted nodes of another one;
- *random*: as many nodes, but meaningless: each lists equations drawn from the responses of the
  starts to the problem, of which steps of a right way are reached as often as others.  They are
  reached less often than the author's.  Each level of starts has its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from consensusbench.construction.budgets import budget_of, stated_in
from consensuspr.client import LocalClient
from consensuspr.core import Matcher
from consensuspr.data import Node, Problem, open_writer, problem_to_row

from .task import Story, draw_stories, equations_in

CONTROL_SEED = 60
# Right solutions that the budget of a problem is made of.
_SOLUTIONS = 8

# Equations of each node of each problem to train on.
RandomNodes = Mapping[str, Sequence[Sequence[str]]]


class Nodes(StrEnum):
    """The datasets."""

    AUTHOR = "author"
    UNBUDGETED = "unbudgeted"
    SHUFFLED = "shuffled"
    RANDOM = "random"


@dataclass(frozen=True)
class Problems:
    """The problems with the author's nodes, by purpose.

    Attributes:
        train: to train on.
        held_out: on which the runs that count are evaluated.
        selection: on which learning rates are chosen.
        starting: on which starts are chosen, and on nothing else.
        measuring: on which the chosen starts are measured, and on nothing else.
    """

    train: list[Problem]
    held_out: list[Problem]
    selection: list[Problem]
    starting: list[Problem]
    measuring: list[Problem]

    @classmethod
    def drawn(cls, train: int, evaluated: int) -> Problems:
        """Draw problems, no two the same.

        Args:
            train: number of problems to train on.
            evaluated: number of held-out and of measuring problems; of the others half as many.
        """
        seen: set[str] = set()

        def draw(purpose: str, seed: int, count: int) -> list[Problem]:
            stories = list(islice(draw_stories(seed, avoid=seen), count))
            seen.update(story.text for story in stories)
            split = "train" if purpose == "train" else "test"
            return [
                _with_budget(story.problem(f"{purpose}-{number}", split), story)
                for number, story in enumerate(stories)
            ]

        return cls(
            held_out=draw("held-out", 10, evaluated),
            selection=draw("selection", 20, evaluated // 2),
            starting=draw("starting", 30, evaluated // 2),
            measuring=draw("measuring", 40, evaluated),
            train=draw("train", 50, train),
        )

    @property
    def texts(self) -> set[str]:
        sets = (self.train, self.held_out, self.selection, self.starting, self.measuring)
        return {problem.problem for problems in sets for problem in problems}

    def dataset(self, nodes: Nodes, of_random: RandomNodes) -> list[Problem]:
        """Return the rows of a dataset; problems to evaluate on have the author's nodes in all."""
        train = {
            Nodes.AUTHOR: lambda: self.train,
            Nodes.UNBUDGETED: lambda: [replace(problem, budget=None) for problem in self.train],
            Nodes.SHUFFLED: lambda: shuffled(self.train, CONTROL_SEED),
            Nodes.RANDOM: lambda: [
                replace(problem, nodes=_nodes_of(of_random[problem.problem_id]))
                for problem in self.train
            ],
        }[nodes]()
        return [*train, *self.held_out, *self.selection, *self.starting, *self.measuring]

    @contextmanager
    def scoring(self, names: Sequence[Nodes], of_random: RandomNodes) -> Iterator[LocalClient]:
        """Yield a client that has these datasets, in this process."""
        with TemporaryDirectory() as folder:
            paths = {name: Path(folder) / f"{name}.jsonl" for name in names}
            for name, path in paths.items():
                with open_writer(path) as out:
                    for problem in self.dataset(name, of_random):
                        out.write(problem_to_row(problem))
            with LocalClient(
                {str(name): path for name, path in paths.items()}, threads=1
            ) as client:
                yield client


def _with_budget(problem: Problem, story: Story) -> Problem:
    """Return the problem with the budget that `consensusbench build` makes of right solutions."""
    rng = random.Random(problem.problem_id)
    texts = [story.solution(rng) for _ in range(_SOLUTIONS)]
    return replace(problem, budget=budget_of(stated_in(texts), len(problem.nodes)))


def counted(problem: Problem) -> tuple[Node, ...]:
    """Return the nodes that the reward counts: those that state no part of the answer."""
    return tuple(node for node in problem.nodes if not node.is_final)


def covers(problem: Problem) -> Callable[[str], list[bool]]:
    """Return a function: text to a flag for each counted node."""
    return Matcher([node.expressions for node in counted(problem)], expand=True).match


def shuffled(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Return the problems, each with the counted nodes of another one."""
    order = random.Random(seed).sample(range(len(problems)), len(problems))
    donors = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [
        replace(problem, nodes=counted(problems[donors[number]]))
        for number, problem in enumerate(problems)
    ]


def random_nodes(problem: Problem, texts: Sequence[str], seed: int) -> list[list[str]]:
    """Return the equations of meaningless nodes, as many as the problem's own.

    They are all equations of the texts that are no steps of a right way, and steps that are reached
    as often as these at most, so that a hit tells little of what a response gets right.

    Equations come from one half of the texts, and how often they are reached from the other.  Most
    equations that are no steps are stated once: counted where they were found, they would seem to
    be reached far more often than by the next response.

    Args:
        problem: whose counted nodes are replaced.
        texts: responses of models to it; every second one is of the other half.
        seed: decides, together with the problem's id.
    """
    rng = random.Random(f"{seed} {problem.problem_id}")
    found_in, counted_in = texts[::2], texts[1::2]
    stated = sorted(set().union(*map(equations_in, found_in)))
    # Code states an equation, but reaches it only with its result.
    reaches = Matcher([[equation] for equation in stated], expand=True).match
    left = sorted(set().union(*(compress(stated, reaches(text)) for text in found_in)))
    rng.shuffle(left)
    hits = Counter(equation for text in counted_in for equation in compress(stated, reaches(text)))
    steps = {equation for node in problem.nodes for equation in node.expressions}
    chosen = [equation for equation in left if equation not in steps]
    room = sum(hits[equation] for equation in chosen)
    for equation in (equation for equation in left if equation in steps):
        if hits[equation] <= room:
            chosen.append(equation)
            room -= hits[equation]
    count = len(counted(problem))
    # If there are too few, an equation that nobody states.
    return [chosen[number::count] or [f"0*0={number + 1}"] for number in range(count)]


def _nodes_of(equations: Sequence[Sequence[str]]) -> tuple[Node, ...]:
    return tuple(
        Node(f"random-{number}", tuple(listed), "random", "equation")
        for number, listed in enumerate(equations, start=1)
    )
