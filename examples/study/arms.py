"""The arms: reward and nodes of each, their shared settings, and the nodes of the controls.

Every arm gets its rewards from the same server, with one of the datasets in `Nodes`.  These have
the same problems and differ in nodes alone.  Four arms are controls, which differ from `linear`
only in the meaning of the nodes:

- *shuffled*: each problem has the nodes of another one;
- *random*: as many nodes, reached as often by the warm-started models, but random: each lists
  equations drawn from the responses of those models to the problem, right or wrong.  Of many draws
  the one is taken whose hits correlate least with covering the real nodes;
- *permuted*: the real nodes, but the NCRs of each group are permuted at every step: as dense, as
  spread, and by construction without any meaning;
- *format*: one node, which any response reaches that ends in an answer line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings
from consensusbench.construction.growth import add_nodes
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.client import RewardSpec
from consensuspr.client.admin import AdminClient
from consensuspr.data import Node, Problem, open_writer, problem_to_row
from consensuspr.scoring.rewards import NcrOptions

from .task import LARGEST, MAX_RESPONSE_TOKENS, equations_in


class Nodes(StrEnum):
    """The datasets of the server."""

    AUTHOR = "author"
    AUTHOR_SHUFFLED = "author-shuffled"
    AUTHOR_RANDOM = "author-random"
    BUILT = "built"
    BUILT_SHUFFLED = "built-shuffled"
    BUILT_RANDOM = "built-random"
    FORMAT = "format"
    # Without nodes, for nodes that grow with a run.
    NONE = "none"


@dataclass(frozen=True)
class Settings:
    """Settings of all runs of the study.

    Attributes:
        steps: updates.
        prompts: problems in a step.
        rollouts: responses to each.
        curve_every: steps between two points of the held-out curve; one is before the first step.
        curve_problems: held-out problems of a point.
        samples: responses to each held-out problem.
    """

    steps: int = 200
    prompts: int = 16
    rollouts: int = 8
    curve_every: int = 20
    curve_problems: int = 128
    samples: int = 4


@dataclass(frozen=True)
class Arm:
    """Reward and nodes of an arm.

    Attributes:
        reward: the formula; the answer is never a node.
        nodes: the dataset.
        step_credit: node rewards stand on the tokens that reached the nodes.
        grows: nodes are made of the run's own right rollouts, epoch by epoch.
        permuted: the NCRs of a group are permuted at every step.
        max_tokens: of a response, in training and in evaluation.
        rate_of: the arm of the same formula whose learning rate it has, if not its own.
    """

    reward: RewardSpec
    nodes: Nodes = Nodes.AUTHOR
    step_credit: bool = False
    grows: bool = False
    permuted: bool = False
    max_tokens: int = MAX_RESPONSE_TOKENS
    rate_of: str | None = None


# Settings of every arm and every evaluation: answers are not nodes, code counts without its result,
# and a response without an answer keeps its NCR.
COUNTED: NcrOptions = {"final_nodes": False, "code": "computed", "unanswered": "ncr"}


def _linear(alpha: float = 0.5, guard: bool = True) -> RewardSpec:
    return replace(RewardSpec.linear(alpha, **COUNTED), guard=guard)


# With fewer there is no room to enumerate, and the guard never acts.
ROOMY_TOKENS = 192

ARMS: dict[str, Arm] = {
    "outcome": Arm(RewardSpec.outcome(**COUNTED)),
    "linear": Arm(_linear()),
    "shuffled": Arm(_linear(), Nodes.AUTHOR_SHUFFLED),
    "random": Arm(_linear(), Nodes.AUTHOR_RANDOM),
    "permuted": Arm(_linear(), permuted=True),
    "built-linear": Arm(_linear(), Nodes.BUILT, rate_of="linear"),
    "built-shuffled": Arm(_linear(), Nodes.BUILT_SHUFFLED, rate_of="shuffled"),
    "built-random": Arm(_linear(), Nodes.BUILT_RANDOM, rate_of="random"),
    "outcome-1e-4": Arm(RewardSpec.outcome(**COUNTED)),
    "linear-3e-4": Arm(_linear()),
    "linear-0.1": Arm(_linear(0.1)),
    "linear-0.25": Arm(_linear(0.25)),
    "linear-0.75": Arm(_linear(0.75)),
    "max": Arm(RewardSpec.maximum(**COUNTED)),
    "curriculum": Arm(RewardSpec.curriculum(**COUNTED)),
    "format": Arm(_linear(), Nodes.FORMAT),
    "step-credit": Arm(_linear(), step_credit=True),
    "grown": Arm(_linear(), Nodes.NONE, grows=True),
    "roomy": Arm(_linear(), max_tokens=ROOMY_TOKENS),
    "unguarded": Arm(_linear(guard=False), max_tokens=ROOMY_TOKENS),
}
# Seeds take turns with them.
NUM_WARM_STARTS = 3

PRIMARY = ("outcome", "linear", "shuffled", "random", "permuted")
CONTRASTS = tuple(("linear", other) for other in PRIMARY if other != "linear")
BUILT = ("built-linear", "built-shuffled", "built-random")
# Of the second study, PLAN-2.md: all at one rate.
SECOND = ("outcome", "linear", "shuffled", "random")
SECOND_CONTRASTS = tuple(("linear", other) for other in SECOND if other != "linear")
SECOND_RATE = 3e-4
# Added after the primary runs, and not in the plan: each with the other's rate.
SWAPPED = {"outcome-1e-4": 1e-4, "linear-3e-4": 3e-4}


def counted(problem: Problem) -> tuple[Node, ...]:
    """Return the nodes that the reward counts."""
    return tuple(node for node in problem.nodes if not node.is_final)


def shuffled(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Return the problems, each with the counted nodes of another one."""
    order = random.Random(seed).sample(range(len(problems)), len(problems))
    donors = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [
        replace(problem, nodes=counted(problems[donors[number]]), budget=None)
        for number, problem in enumerate(problems)
    ]


def formal(problem: Problem) -> Problem:
    """Return the problem with one node that any answer line reaches."""
    answers = tuple(f"Answer: {number}" for number in range(LARGEST + 1))
    node = Node(node_id="form", label="an answer line", type="value", expressions=answers)
    return replace(problem, nodes=(node,), budget=None)


_DRAWS = 100


def random_nodes(
    problem: Problem, texts: Sequence[str], covers: Callable[[str], Sequence[bool]], seed: int
) -> Problem:
    """Return the problem with meaningless nodes, as many and as often reached as its own.

    Args:
        problem: whose counted nodes are replaced.
        texts: responses of models to it.
        covers: text to a flag for each of the counted nodes.
        seed: decides, together with the problem's id.
    """
    rng = random.Random(f"{seed} {problem.problem_id}")
    hits = np.array([covers(text) for text in texts], dtype=float)
    coverage = hits.mean(axis=1)
    written = [set(equations_in(text)) for text in texts]
    left = sorted(set().union(*written))
    nodes = []
    for number, rate in enumerate(hits.mean(axis=0), start=1):
        draws = [_draw(rng, left, written, rate) for _ in range(_DRAWS)]
        chosen = min(draws, key=lambda drawn: _fault(drawn, written, rate, coverage))
        left = [equation for equation in left if equation not in chosen]
        # If nothing is left to draw from, an equation that nobody states.
        expressions = tuple(chosen) or (f"0*0={number}",)
        nodes.append(Node(f"random-{number}", expressions, "random", "equation"))
    return replace(problem, nodes=tuple(nodes), budget=None)


def _draw(
    rng: random.Random, left: Sequence[str], written: Sequence[set[str]], rate: float
) -> list[str]:
    """Return equations of which about this share of the texts has at least one."""
    reached: set[int] = set()
    chosen: list[str] = []
    for equation in rng.sample(left, len(left)):
        union = reached | {row for row, found in enumerate(written) if equation in found}
        before, after = len(reached) / len(written), len(union) / len(written)
        if not chosen or abs(after - rate) <= abs(before - rate):
            reached = union
            chosen.append(equation)
            if after >= rate:
                break
    return chosen


def _fault(
    chosen: Sequence[str],
    written: Sequence[set[str]],
    rate: float,
    coverage: NDArray[np.float64],
) -> float:
    """Return how far the hits of a draw are from the rate, plus their correlation with coverage."""
    hit = np.array([not found.isdisjoint(chosen) for found in written], dtype=float)
    spread = hit.std() * coverage.std()
    together = abs(float(((hit - hit.mean()) * (coverage - coverage.mean())).mean()))
    return abs(float(hit.mean()) - rate) + (together / float(spread) if spread else 0.0)


class Growth:
    """Nodes of a run's own right rollouts: after each epoch, for problems that have none yet.

    Args:
        problems: to train on; without nodes.
        admin: of the server.
        name: of the run's own dataset there.
        folder: for rollouts and datasets.
    """

    def __init__(
        self, problems: Sequence[Problem], admin: AdminClient, name: str, folder: Path
    ) -> None:
        self.dataset = name
        self._admin = admin
        self._folder = folder
        self._rows: list[dict[str, object]] = []
        self._path = folder / "grown-0.jsonl"
        with open_writer(self._path) as out:
            for problem in problems:
                out.write(problem_to_row(replace(problem, nodes=(), budget=None)))
        self._admin.put(name, str(self._path.absolute()))

    def see(
        self, epoch: int, problems: Sequence[Problem], texts: Sequence[str], right: Sequence[bool]
    ) -> None:
        """Keep the rollouts of a step."""
        for problem, text, correct in zip(problems, texts, right, strict=True):
            self._rows.append(
                {
                    "problem_id": problem.problem_id,
                    "rollout_id": str(len(self._rows)),
                    "response": text,
                    # So that two epochs count as two models.
                    "model": f"epoch {epoch}",
                    "correct": correct,
                }
            )

    def grow(self, epoch: int) -> None:
        """Give nodes to problems that have none and were solved often enough."""
        rollouts = self._folder / "rollouts.jsonl"
        with open_writer(rollouts) as out:
            for row in self._rows:
                out.write(row)
        grown = self._folder / f"grown-{epoch + 1}.jsonl"
        job = BuildJob(
            rollouts=(rollouts,),
            paths=OutputPaths(dataset=grown),
            extractor=RulesExtractor(),
            refiner=PaperRefiner(),
            problems=self._path,
            selection=SelectionSettings(trust_labels=True),
        )
        add_nodes(job)
        self._admin.put(self.dataset, str(grown.absolute()))
        self._path = grown
