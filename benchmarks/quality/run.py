"""Score the rollouts in every way that the report needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.quality.gold import (
    ROLLOUTS,
    Response,
    pool,
    read_gold,
    read_responses,
    write_dataset,
)
from benchmarks.quality.metrics import Observation, hit_rate, mean_ncr, ncr_auroc
from benchmarks.quality.scoring import Client, open_client, score
from consensuspr.client import Rollout
from consensuspr.data import Node, Problem
from consensuspr.scoring import Status
from consensuspr.wire.info import DatasetInfo

# Two ways to use the nodes: with derived forms, and as written.
DERIVED, WRITTEN = "derived", "as written"

# What a policy could print to hit nodes without solving anything.
ENUMERATION = "\n".join(f"={value}" for value in range(301))


@dataclass(frozen=True, slots=True)
class Figures:
    """What the report says about one file of rollouts under one set of nodes."""

    rollouts: int
    right: int
    acc_agreement: float
    recall: float
    false_positives: float
    ncr_right: float
    ncr_wrong: float
    auroc: float
    auroc_without_final: float


@dataclass(frozen=True, slots=True)
class Miss:
    """A gold node that a right rollout does not reach, derived forms included."""

    file: str
    response: Response
    node: Node


@dataclass(slots=True)
class Results:
    """All that was measured.

    Attributes:
        figures: by file of rollouts, then by ``DERIVED`` and ``WRITTEN``.
        misses: of all right rollouts, in the order of the files.
        datasets: what the server said about the two datasets.
        enumerated: share of nodes hit by ``ENUMERATION``: equations, and bare values.
        normal_form_version: of the core that was used.
        backend: of the core that was used.
    """

    figures: dict[str, dict[str, Figures]]
    misses: list[Miss]
    datasets: dict[str, DatasetInfo]
    enumerated: tuple[float, float]
    normal_form_version: str
    backend: str


def measure(shared: Path, in_process: bool) -> Results:
    """Score everything.

    Args:
        shared: folder of the outside data.
        in_process: without a server.
    """
    gold = {DERIVED: read_gold(shared), WRITTEN: read_gold(shared, derive=False)}
    with TemporaryDirectory() as folder:
        paths = {}
        for name, problems in gold.items():
            pools = [one.problem for one in pool(problems)]
            for dataset, rows in ((name, problems), (_pooled(name), pools)):
                paths[dataset] = Path(folder) / f"{dataset.replace(' ', '-')}.jsonl"
                write_dataset(paths[dataset], rows)
        with open_client(paths, in_process) as client:
            return _Measurement(client, gold[DERIVED]).of(shared)


def _pooled(name: str) -> str:
    """Return the name of the dataset with the same nodes in pools."""
    return f"{name} pooled"


class _Measurement:
    def __init__(self, client: Client, problems: list[Problem]) -> None:
        self._client = client
        self._problems = {problem.problem_id: problem for problem in problems}
        self._pools = pool(problems)

    def of(self, shared: Path) -> Results:
        figures: dict[str, dict[str, Figures]] = {}
        misses: list[Miss] = []
        for file, path in ROLLOUTS.items():
            responses = read_responses(shared / path, set(self._problems))
            figures[file] = {}
            for name in (DERIVED, WRITTEN):
                figures[file][name], observed = self._figures(name, responses)
                if name == DERIVED:
                    misses += self._misses(file, responses, observed)
        info = self._client.server_info()
        return Results(
            figures=figures,
            misses=misses,
            datasets={dataset.name: dataset for dataset in info.datasets},
            enumerated=self._enumerated(),
            normal_form_version=info.normal_form_version,
            backend=info.core_backend,
        )

    def _figures(self, name: str, responses: list[Response]) -> tuple[Figures, list[Observation]]:
        rollouts = [Rollout(one.problem_id, one.text) for one in responses]
        scores = score(self._client, name, rollouts, Status.OK)
        observed = [
            self._observation(one.correct, one.problem_id, of_one.matched)
            for one, of_one in zip(responses, scores, strict=True)
        ]
        right = [one for one in observed if one.correct]
        wrong = [one for one in observed if not one.correct]
        agreeing = sum(
            bool(of_one.acc) == one.correct for one, of_one in zip(responses, scores, strict=True)
        )
        figures = Figures(
            rollouts=len(observed),
            right=len(right),
            acc_agreement=agreeing / len(observed),
            recall=hit_rate(right),
            false_positives=hit_rate(self._beside_others(_pooled(name), responses)),
            ncr_right=mean_ncr(right),
            ncr_wrong=mean_ncr(wrong),
            auroc=ncr_auroc(observed),
            auroc_without_final=ncr_auroc(observed, with_final=False),
        )
        return figures, observed

    def _observation(
        self, correct: bool, problem_id: str, matched: tuple[bool, ...]
    ) -> Observation:
        nodes = self._problems[problem_id].nodes
        return Observation(correct, matched, tuple(node.is_final for node in nodes))

    def _beside_others(self, dataset: str, responses: list[Response]) -> Iterator[Observation]:
        """Score each response against the nodes of all other problems."""
        for one_pool in self._pools:
            rollouts = [Rollout(one_pool.problem.problem_id, one.text) for one in responses]
            scores = score(self._client, dataset, rollouts, Status.NO_GROUND_TRUTH)
            for one, of_one in zip(responses, scores, strict=True):
                matched = tuple(
                    hit
                    for hit, owner in zip(of_one.matched, one_pool.owners, strict=True)
                    if owner != one.problem_id
                )
                yield Observation(one.correct, matched, (False,) * len(matched))

    def _misses(
        self, file: str, responses: list[Response], observed: list[Observation]
    ) -> list[Miss]:
        return [
            Miss(file, response, node)
            for response, one in zip(responses, observed, strict=True)
            if one.correct
            for node, hit in zip(
                self._problems[response.problem_id].nodes, one.matched, strict=True
            )
            if not hit
        ]

    def _enumerated(self) -> tuple[float, float]:
        """Return the share of equations, and of their bare values, that ENUMERATION hits."""
        equations = [Rollout(problem_id, ENUMERATION) for problem_id in self._problems]
        values = [
            Rollout(
                problem_id,
                ENUMERATION,
                nodes=[[node.expressions[0].rpartition("=")[2]] for node in problem.nodes],
            )
            for problem_id, problem in self._problems.items()
        ]
        return self._hit_rate(equations), self._hit_rate(values)

    def _hit_rate(self, rollouts: list[Rollout]) -> float:
        scores = score(self._client, DERIVED, rollouts, Status.OK)
        return hit_rate(
            self._observation(False, rollout.problem_id, of_one.matched)
            for rollout, of_one in zip(rollouts, scores, strict=True)
        )
