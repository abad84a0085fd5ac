"""Probe a dataset: every attack on every problem, and the level of chance.

Three passes, none of which holds a file: the index, the rollouts if any, the problems in
chunks of one source each.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from consensusbench.probes.attacks import Attack, fixed_attacks, number_salad, quantities
from consensusbench.probes.report import AttackFigures, AttackReport, ProbeReport, WorstProblem
from consensusbench.probes.strangers import match_strangers
from consensusbench.probes.survey import RolloutSurvey, survey_rollouts
from consensuspr.core import match_batch
from consensuspr.data import OnError, read_problems
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.index import Entry

CHUNK_PROBLEMS: Final = 512
REACHED: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How to probe.

    Attributes:
        budget_chars: characters that an attack may have; None for the median length of the
            source's rollouts, or 2,000 where there are none.
        worst: problems named for each attack.
        threads: of the scans, 0 for all cores.
        on_error: what a bad row of dataset or rollouts does.

    Raises:
        InputError: the budget is below 1.
    """

    budget_chars: int | None = None
    worst: int = 5
    threads: int = 0
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        if self.budget_chars is not None and self.budget_chars < 1:
            raise InputError(
                f"an attack needs a budget of at least 1 character, got {self.budget_chars}"
            )


DEFAULT_BUDGET: Final = 2000


def probe_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Iterable[str | os.PathLike[str]] | None = None,
    settings: ProbeSettings = ProbeSettings(),
    *,
    index: DatasetIndex | None = None,
    survey: RolloutSurvey | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ProbeReport:
    """Measure what can be had from a dataset's nodes without solving a problem.

    Args:
        dataset: file of problems with nodes.
        rollouts: files of rollouts of these problems; without them there is no level of chance,
            and attacks are as long as ``settings`` say.
        settings: how to probe.
        index: of the dataset, where it is loaded already.
        survey: of the rollouts, where they were read already.
        progress: told how many problems are done.

    Raises:
        DataError: a file is bad.
    """
    if index is None:
        index = DatasetIndex.load(dataset, on_error=settings.on_error)
    if survey is None:
        survey = survey_rollouts(
            rollouts or (), index, threads=settings.threads, on_error=settings.on_error
        )
    tallies: dict[Attack, _Tally] = defaultdict(lambda: _Tally(settings.worst))
    budgets: dict[str, int] = {}
    done = 0
    for source, chunk in _chunks(dataset, index, settings.on_error):
        if source not in budgets:
            budgets[source] = (
                settings.budget_chars or survey.sample.typical_chars(source) or DEFAULT_BUDGET
            )
        _attack(chunk, budgets[source], tallies, settings.threads)
        _strangers(chunk, survey, tallies, settings.threads)
        done += len(chunk)
        progress(done)
    return ProbeReport(
        digest=index.digest,
        budgets=budgets,
        attacks=tuple(tallies[one].report(one) for one in Attack if one in tallies),
        density=survey.density(),
        densest=survey.densest(),
        unknown_rollouts=survey.unknown,
    )


@dataclass(frozen=True, slots=True)
class _Target:
    entry: Entry
    text: str
    node_ids: tuple[str, ...]
    is_final: tuple[bool, ...]


def _chunks(
    dataset: str | os.PathLike[str], index: DatasetIndex, on_error: OnError
) -> Iterator[tuple[str, list[_Target]]]:
    """Yield problems with nodes, each chunk of one source."""
    waiting: dict[str, list[_Target]] = defaultdict(list)
    for problem in read_problems(dataset, on_error):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if not problem.nodes:
            continue
        chunk = waiting[problem.data_source]
        ids = tuple(node.node_id for node in problem.nodes)
        final = tuple(node.is_final for node in problem.nodes)
        chunk.append(_Target(entry, problem.problem, ids, final))
        if len(chunk) == CHUNK_PROBLEMS:
            yield problem.data_source, waiting.pop(problem.data_source)
    yield from waiting.items()


def _attack(
    chunk: Sequence[_Target], budget: int, tallies: dict[Attack, _Tally], threads: int
) -> None:
    fixed = fixed_attacks(budget)
    tries = [
        (target, attack, text)
        for target in chunk
        for attack, text in [
            *fixed.items(),
            *_attacks_of_text(target.text, budget),
        ]
    ]
    matched = match_batch(
        [target.entry.matcher for target, _, _ in tries],
        [text for _, _, text in tries],
        threads=threads,
    )
    for row, (target, attack, text) in enumerate(tries):
        tallies[attack].add(target, matched.matched(row).astype(float), len(text))


def _attacks_of_text(text: str, budget: int) -> Iterator[tuple[Attack, str]]:
    """Yield the attacks that are made of a problem's text; none where it is not known."""
    if text.strip():
        yield Attack.ECHO, text
        yield Attack.NUMBER_SALAD, number_salad(text, budget)
        yield Attack.QUANTITIES, quantities(text, budget)


def _strangers(
    chunk: Sequence[_Target],
    survey: RolloutSurvey,
    tallies: dict[Attack, _Tally],
    threads: int,
) -> None:
    strangers = survey.sample.strangers(chunk[0].entry.data_source)
    if not strangers:
        return
    chars = float(np.mean([len(one.text) for one in strangers]))
    problems = [
        (one.entry.problem_id, [n.expressions + (n.derived or ()) for n in one.entry.nodes])
        for one in chunk
    ]
    for target, found in zip(chunk, match_strangers(problems, strangers, threads), strict=True):
        if found.num_strangers:
            rates = np.array(found.rates)
            reached = float((found.hits.mean(axis=1) >= REACHED).mean())
            tallies[Attack.STRANGERS].add(target, rates, chars, reached)


@dataclass(slots=True)
class _Sums:
    problems: int = 0
    ncr: float = 0.0
    other: int = 0
    ncr_without_final: float = 0.0
    reached: float = 0.0
    chars: float = 0.0
    hits: float = 0.0

    def figures(self) -> AttackFigures:
        return AttackFigures(
            problems=self.problems,
            ncr=self.ncr / self.problems,
            ncr_without_final=self.ncr_without_final / self.other if self.other else None,
            share_reached=self.reached / self.problems,
            mean_chars=self.chars / self.problems,
            hits_per_1000_chars=1000 * self.hits / self.chars if self.chars else 0.0,
        )


@dataclass(slots=True)
class _Tally:
    """Sums of one attack, overall and by source, and the problems where it earns most."""

    num_worst: int
    overall: _Sums = field(default_factory=_Sums)
    by_source: dict[str, _Sums] = field(default_factory=dict)
    worst: list[tuple[float, int, WorstProblem]] = field(default_factory=list)

    def add(
        self,
        target: _Target,
        rates: np.ndarray[tuple[int], np.dtype[np.float64]],
        chars: float,
        reached: float | None = None,
    ) -> None:
        """Count one problem.

        Args:
            target: the problem.
            rates: (nodes,) 1 where the text hits a node, or the share of texts that do.
            chars: length of the text.
            reached: share of the texts that reach half of the nodes; None for one text.
        """
        ncr = float(rates.mean())
        other = [rate for rate, final in zip(rates, target.is_final, strict=True) if not final]
        source = target.entry.data_source
        for sums in (self.overall, self.by_source.setdefault(source, _Sums())):
            sums.problems += 1
            sums.ncr += ncr
            if other:
                sums.other += 1
                sums.ncr_without_final += float(np.mean(other))
            sums.reached += (ncr >= REACHED) if reached is None else reached
            sums.chars += chars
            sums.hits += float(rates.sum())
        if ncr > 0:
            self._keep(target, rates, ncr)

    def _keep(
        self, target: _Target, rates: np.ndarray[tuple[int], np.dtype[np.float64]], ncr: float
    ) -> None:
        order = np.argsort(-rates, kind="stable")
        hit = tuple(target.node_ids[at] for at in order if rates[at] > 0)
        one = WorstProblem(target.entry.problem_id, target.entry.data_source, ncr, hit)
        heapq.heappush(self.worst, (ncr, -self.overall.problems, one))
        if len(self.worst) > self.num_worst:
            heapq.heappop(self.worst)

    def report(self, attack: Attack) -> AttackReport:
        ordered = sorted(self.worst, key=lambda kept: (-kept[0], -kept[1]))
        return AttackReport(
            attack=attack,
            overall=self.overall.figures(),
            by_source={source: sums.figures() for source, sums in self.by_source.items()},
            worst=tuple(one for _, _, one in ordered),
        )
