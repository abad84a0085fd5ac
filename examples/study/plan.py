"""What PLAN-3.md fixes: the arms, the starts, the runs and the choice of learning rates."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from consensuspr.client import RewardSpec
from consensuspr.scoring.rewards import NcrOptions

from .nodes import Nodes
from .task import MAX_RESPONSE_TOKENS

# Of every arm: no node is a part of the answer, and code counts if its results are written.
COUNTED: NcrOptions = {"final_nodes": False, "code": "written"}


@dataclass(frozen=True)
class Arm:
    """Reward and nodes of an arm.

    Attributes:
        reward: the formula.
        nodes: the dataset.
        divided: advantages are divided by the group's standard deviation.
        permuted: the NCRs of a group are dealt out at random among its responses, at every step.
    """

    reward: RewardSpec
    nodes: Nodes = Nodes.AUTHOR
    divided: bool = True
    permuted: bool = False


_LINEAR = replace(RewardSpec.linear(**COUNTED), unanswered="zero")
ARMS = {
    "outcome": Arm(RewardSpec.outcome(**COUNTED)),
    "linear": Arm(_LINEAR),
    "random": Arm(_LINEAR, Nodes.RANDOM),
    "permuted": Arm(_LINEAR, permuted=True),
    "shuffled": Arm(_LINEAR, Nodes.SHUFFLED),
    "curriculum": Arm(RewardSpec.curriculum(**COUNTED)),
    "linear-ncr": Arm(replace(_LINEAR, unanswered="ncr")),
    "linear-unbudgeted": Arm(_LINEAR, Nodes.UNBUDGETED),
    "linear-undivided": Arm(_LINEAR, divided=False),
}
BASE, NODES, CONTROL, NOISE = "outcome", "linear", "random", "permuted"
PRIMARY = ((NODES, BASE), (NODES, CONTROL), (NODES, NOISE))

# Percent of responses that are right throughout, and the warm-ups that have a start of it.
LEVELS = {"0.3": "bd", "1": "abcd", "3": "cd", "10": "ab", "40": "ef"}
MAIN_LEVEL = "1"
# Of the measured share; a start outside is made again from another seed.
RANGES = {
    "0.3": (0.0015, 0.005),
    "1": (0.006, 0.015),
    "3": (0.02, 0.045),
    "10": (0.07, 0.14),
    "40": (0.32, 0.48),
}
RATES = (1e-4, 3e-4)
GROUP, LARGE_GROUP = 8, 16


def starts(*levels: str) -> list[str]:
    """Return the names of the starts of levels, such as `1-a`."""
    return [f"{level}-{letter}" for level in levels for letter in LEVELS[level]]


@dataclass(frozen=True)
class Settings:
    """Settings of all runs.

    Attributes:
        steps: updates.
        responses: of a step, in groups.
        curve_every: steps between two points of the curve; the first is before step 1.
        curve_problems: problems of a point.
        final_problems, samples: problems of the last evaluation, and sampled responses to each.
        max_tokens: of a response.
    """

    steps: int = 200
    responses: int = 128
    curve_every: int = 20
    curve_problems: int = 256
    final_problems: int = 512
    samples: int = 2
    max_tokens: int = MAX_RESPONSE_TOKENS


@dataclass(frozen=True)
class Run:
    """One run, and the key of its row in the table of results.

    Attributes:
        part: `selection`, `main`, `levels` or `groups`.
        group: responses to a problem in a step.
    """

    part: str
    arm: str
    start: str
    seed: int
    learning_rate: float
    group: int = GROUP

    @property
    def name(self) -> str:
        return f"{self.part} {self.arm} {self.learning_rate:g} {self.start} {self.seed}"

    @property
    def stream(self) -> int:
        """The seed of the order of problems and of the random numbers.

        All arms of a start and a seed have the same.  Other starts have others: an order of
        problems that suits one arm would else count at each start again.
        """
        return zlib.crc32(f"{self.start} {self.seed}".encode())

    @property
    def level(self) -> str:
        return self.start.partition("-")[0]


@dataclass(frozen=True)
class Plan:
    """Which runs there are; the defaults are those of PLAN-3.md.

    Attributes:
        arms: of the main level.
        level_arms, group_arms: of the other levels, and with large groups.
        levels: other levels.
        main_starts: starts of the main level.
        selection_seeds: used for nothing else.
        main_seeds, level_seeds, group_seeds: of the runs that count.
        settings: of all runs.
        train, evaluated: numbers of problems, as in :meth:`Problems.drawn`.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    level_arms: tuple[str, ...] = (BASE, NODES, CONTROL)
    group_arms: tuple[str, ...] = (BASE, NODES)
    levels: tuple[str, ...] = tuple(level for level in LEVELS if level != MAIN_LEVEL)
    main_starts: tuple[str, ...] = tuple(starts(MAIN_LEVEL))
    selection_seeds: tuple[int, ...] = (100,)
    main_seeds: tuple[int, ...] = (0, 1, 2)
    level_seeds: tuple[int, ...] = (0, 1)
    group_seeds: tuple[int, ...] = (0, 1)
    settings: Settings = field(default_factory=Settings)
    train: int = 400
    evaluated: int = 512

    def selection(self) -> list[Run]:
        """Return the runs that choose the learning rates."""
        return [
            Run("selection", arm, start, seed, rate)
            for start in self.main_starts
            for seed in self.selection_seeds
            for arm in self.arms
            for rate in RATES
        ]

    def main(self, rates: Mapping[str, float]) -> list[Run]:
        """Return the runs of the primary contrasts, all arms of a start and a seed together."""
        return [
            Run("main", arm, start, seed, rates[arm])
            for seed in self.main_seeds
            for start in self.main_starts
            for arm in self.arms
        ]

    def others(self, rates: Mapping[str, float]) -> list[Run]:
        """Return the secondary runs: large groups, and the other levels at both rates."""
        groups = [
            Run("groups", arm, start, seed, rates[arm], LARGE_GROUP)
            for seed in self.group_seeds
            for start in self.main_starts
            for arm in self.group_arms
        ]
        levels = [
            Run("levels", arm, start, seed, rate)
            for seed in self.level_seeds
            for start in starts(*self.levels)
            for arm in self.level_arms
            for rate in RATES
        ]
        return [*groups, *levels]

    def runs(self, rates: Mapping[str, float]) -> list[Run]:
        """Return all runs in their order."""
        return [*self.selection(), *self.main(rates), *self.others(rates)]

    def identity(self, run: Run) -> dict[str, Any]:
        """Return what a run is made of beside its inputs, as JSON has it."""
        arm = ARMS[run.arm]
        return {
            "run": asdict(run),
            "arm": asdict(arm),
            "settings": asdict(self.settings),
        }


def area(row: Mapping[str, Any], figure: str = "greedy") -> float:
    """Return the mean height of a run's curve, by the trapezoidal rule.

    Args:
        row: of the table of results.
        figure: `greedy` for accuracy decoded greedily, `acc` for sampled responses, or another.
    """
    curve = row["curve"]
    points = pairwise(zip(curve["step"], curve[figure], strict=True))
    total = sum((end - start) * (one + other) / 2 for (start, one), (end, other) in points)
    return float(total / (curve["step"][-1] - curve["step"][0]))


def chosen_rates(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return each arm's rate with the best mean area over the selection runs; of equals the lower.

    Args:
        rows: of the selection runs of all arms and rates.
    """
    areas: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        run = row["run"]
        areas.setdefault(run["arm"], {}).setdefault(run["learning_rate"], []).append(area(row))
    return {
        arm: max(sorted(tried), key=lambda rate: fmean(tried[rate])) for arm, tried in areas.items()
    }
