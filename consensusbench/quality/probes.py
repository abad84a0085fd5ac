"""Probes of a dataset: the NCR of texts that solve nothing.

::

    from consensusbench.quality.probes import probe_dataset

    report = probe_dataset("dataset.jsonl", ["rollouts.jsonl"])
    report.attack("comments").overall.ncr
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from consensusbench.evaluation.scored import Floats
from consensusbench.quality.attacks import DESCRIPTIONS, Attack, attacks_on
from consensusbench.quality.survey import (
    RolloutSurvey,
    WrongFigures,
    guard_factors,
    match_unrelated,
    survey_rollouts,
)
from consensusbench.tables import Column, JsonResult, Row, Table, number, percent, words
from consensuspr.console import one_line
from consensuspr.core import Matcher, match_batch
from consensuspr.data import OnError, read_problems
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.dataset_index import Entry
from consensuspr.scoring.guard import least_budget

# Length of an attack without rollouts to compare with.
DEFAULT_CHARS: Final = 2000
# Texts of so many problems are held at once.
CHUNK_ATTACKED: Final = 64
CHUNK_PROBLEMS: Final = 512
# NCR from which an attack counts as having reached a problem.
REACHED: Final = 0.5

ItemT = TypeVar("ItemT")
# A problem with nodes, and its text.
_Target: TypeAlias = tuple[Entry, str]
# By attack and source, for each problem: guarded and raw NCR, guarded NCR without final nodes (or
# NaN), share of the texts that reach half of the nodes, characters, hits.
_Tallies: TypeAlias = dict[Attack, dict[str, list[tuple[float, ...]]]]


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """Means over a group of problems.

    ``ncr`` is guarded, ``ncr_raw`` is not.  ``ncr_without_final`` is over nodes that do not state
    the final answer; None if no problem has such nodes.  ``share_reached`` is the share of
    problems with a guarded NCR of 0.5 or more.
    """

    problems: int
    ncr: float
    ncr_raw: float
    ncr_without_final: float | None
    share_reached: float
    mean_chars: float
    hits_per_1000_chars: float


@dataclass(frozen=True, slots=True)
class AttackReport(JsonResult):
    """One attack: overall, and by data source."""

    attack: Attack
    overall: AttackFigures
    by_source: dict[str, AttackFigures]

    @property
    def description(self) -> str:
        """The text of the attack in words."""
        return DESCRIPTIONS[self.attack]

    def to_json(self) -> dict[str, Any]:
        """Return every field, and the description."""
        return JsonResult.to_json(self) | {"description": self.description}


@dataclass(frozen=True, slots=True)
class CheapAttack:
    """An attack with a higher mean NCR on a source than its wrong rollouts."""

    attack: Attack
    data_source: str
    ncr: float
    ncr_wrong: float

    def sentence(self) -> str:
        """Return the two figures and what to do about them."""
        return (
            f"attack `{self.attack.value}` scores {100 * self.ncr:.1f} % NCR on "
            f"{one_line(self.data_source) or 'problems without a source'}; wrong rollouts score "
            f"{100 * self.ncr_wrong:.1f} %: store budgets if problems have none "
            "(consensusbench build --budgets), or drop nodes that need no reasoning"
        )


@dataclass(frozen=True, slots=True)
class ProbeReport(JsonResult):
    """All probes of one dataset; ``budgets`` are characters of an attack by data source."""

    digest: str
    budgets: dict[str, int]
    attacks: tuple[AttackReport, ...]
    wrong: dict[str, WrongFigures]
    cheap: tuple[CheapAttack, ...]
    unknown_rollouts: int

    def attack(self, attack: Attack | str) -> AttackReport:
        """Return one attack's report."""
        reports: dict[str, AttackReport] = {report.attack: report for report in self.attacks}
        return reports[attack]


def probe_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Iterable[str | os.PathLike[str]] = (),
    *,
    budget_chars: int | None = None,
    threads: int = 0,
    on_error: OnError = "stop",
    index: DatasetIndex | None = None,
    survey: RolloutSurvey | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ProbeReport:
    """Measure the NCR of attacks on a dataset.

    Args:
        rollouts: files of rollouts of these problems, for the level of chance.
        budget_chars: length of an attack; None for the median length of the source's rollouts,
            or 2,000 without rollouts.
        index, survey: of the dataset and the rollouts, if they are there already.

    Raises:
        DataError: a file is bad.
    """
    if index is None:
        index = DatasetIndex.load(dataset, on_error=on_error)
    if survey is None:
        survey = survey_rollouts(rollouts, index, threads=threads, on_error=on_error)
    tallies: _Tallies = defaultdict(lambda: defaultdict(list))
    budgets: dict[str, int] = {}
    done = 0
    for chunk in chunks_by_source(_targets(dataset, index, on_error)):
        source = chunk[0][0].data_source
        if source not in budgets:
            usual_chars = survey.sample.typical_chars(source)
            budgets[source] = budget_chars or usual_chars or DEFAULT_CHARS
        _attack(chunk, budgets[source], tallies, threads)
        _chance(chunk, survey, tallies, threads)
        done += len(chunk)
        progress(done)
    attacks = tuple(
        AttackReport(
            attack,
            _figures([*chain.from_iterable(tallies[attack].values())]),
            {source: _figures(rows) for source, rows in tallies[attack].items()},
        )
        for attack in Attack
        if attack in tallies
    )
    wrong = survey.wrong()
    return ProbeReport(
        digest=index.digest,
        budgets=budgets,
        attacks=attacks,
        wrong=wrong,
        cheap=cheap_attacks(
            (report.attack, source, figures.ncr, wrong[source].ncr)
            for report in attacks
            if report.attack is not Attack.UNRELATED
            for source, figures in report.by_source.items()
            if source in wrong
        ),
        unknown_rollouts=survey.unknown,
    )


def chunks_by_source(items: Iterable[tuple[str, ItemT]]) -> Iterator[list[ItemT]]:
    """Yield items in chunks of one data source each, given with the source of each."""
    waiting: dict[str, list[ItemT]] = defaultdict(list)
    for source, item in items:
        waiting[source].append(item)
        if len(waiting[source]) == CHUNK_PROBLEMS:
            yield waiting.pop(source)
    yield from waiting.values()


def _targets(
    dataset: str | os.PathLike[str], index: DatasetIndex, on_error: OnError
) -> Iterator[tuple[str, _Target]]:
    for problem in read_problems(dataset, on_error):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if problem.nodes:
            yield problem.data_source, (entry, problem.problem)


def cheap_attacks(
    earned: Iterable[tuple[Attack | str, str, float, float]],
) -> tuple[CheapAttack, ...]:
    """Return the attacks that earn more than wrong rollouts, the worst first.

    Args:
        earned: attack, data source, NCR of the attack, and mean NCR of wrong rollouts.
    """
    cheap = [
        CheapAttack(Attack(attack), source, ncr, ncr_wrong)
        for attack, source, ncr, ncr_wrong in earned
        if ncr > ncr_wrong
    ]
    return tuple(sorted(cheap, key=lambda one: (one.ncr_wrong - one.ncr, one.attack.value)))


def _attack(chunk: Sequence[_Target], chars: int, tallies: _Tallies, threads: int) -> None:
    for start in range(0, len(chunk), CHUNK_ATTACKED):
        tries = [
            (entry, attack, text)
            for entry, problem in chunk[start : start + CHUNK_ATTACKED]
            for attack, text in attacks_on(
                problem, entry.budget or least_budget(entry.num_nodes), chars
            )
        ]
        entries, texts = [entry for entry, _, _ in tries], [text for _, _, text in tries]
        matched = match_batch([entry.matcher for entry in entries], texts, threads=threads)
        guards = guard_factors(entries, texts, matched)
        for row, (entry, attack, text) in enumerate(tries):
            hits = matched.matched(row).astype(float)
            _count(tallies[attack], entry, hits, hits * guards[row], len(text))


def _chance(
    chunk: Sequence[_Target], survey: RolloutSurvey, tallies: _Tallies, threads: int
) -> None:
    sample = survey.sample.of(chunk[0][0].data_source)
    if not sample:
        return
    texts = [rollout.text for rollout in sample]
    owners = np.array([rollout.problem_id for rollout in sample], dtype=object)
    chars = float(np.mean([len(text) for text in texts]))
    problems = [
        (entry.problem_id, [node.expressions + (node.derived or ()) for node in entry.nodes])
        for entry, _ in chunk
    ]
    counted = match_batch([Matcher([])] * len(texts), texts, threads=threads)
    for (entry, _), hits in zip(chunk, match_unrelated(problems, sample, threads), strict=True):
        if len(hits):
            guards = guard_factors([entry] * len(texts), texts, counted)
            guarded = hits * guards[owners != entry.problem_id][:, None]
            reached = float((guarded.mean(axis=1) >= REACHED).mean())
            tally = tallies[Attack.UNRELATED]
            _count(tally, entry, hits.mean(axis=0), guarded.mean(axis=0), chars, reached)


def _count(
    tally: dict[str, list[tuple[float, ...]]],
    entry: Entry,
    rates: Floats,
    guarded: Floats,
    chars: float,
    reached: float | None = None,
) -> None:
    """Count one problem by the share of texts that hit each node, raw and guarded."""
    ncr = float(guarded.mean())
    inner = guarded[[not node.is_final for node in entry.nodes]]
    without_final = float(inner.mean()) if len(inner) else float("nan")
    reached = float(ncr >= REACHED) if reached is None else reached
    row = (ncr, float(rates.mean()), without_final, reached, chars, float(rates.sum()))
    tally[entry.data_source].append(row)


def _figures(rows: list[tuple[float, ...]]) -> AttackFigures:
    ncr, raw, without_final, reached, chars, hits = np.array(rows).T
    known = without_final[~np.isnan(without_final)]
    return AttackFigures(
        problems=len(rows),
        ncr=float(ncr.mean()),
        ncr_raw=float(raw.mean()),
        ncr_without_final=float(known.mean()) if len(known) else None,
        share_reached=float(reached.mean()),
        mean_chars=float(chars.mean()),
        hits_per_1000_chars=float(1000 * hits.sum() / chars.sum()) if chars.any() else 0.0,
    )


# The fields of AttackFigures in their order.
_EARNED: Final = (
    number("Problems"),
    percent("NCR", decimals=2),
    percent("unguarded", decimals=2),
    percent("without final", decimals=2),
    Column("NCR ≥ 50 %", scale=100.0, decimals=1),
    number("Characters"),
    number("Hits / 1,000 chars", decimals=2),
)


def attacks_by_source_table(report: ProbeReport) -> Table:
    """Return the figures of attacks by data source, and overall if there are several."""
    rows: list[Row] = []
    for attack in report.attacks:
        sources = list(attack.by_source.items())
        if len(sources) > 1:
            sources.append(("all", attack.overall))
        rows += [
            [attack.attack.value, source or "(none)", *astuple(figures)]
            for source, figures in sources
        ]
    columns = [words("Attack"), words("Data source"), *_EARNED]
    return Table("What attacks earn, by source", columns, [rows])


def cheap_notes(cheap: Sequence[CheapAttack]) -> Iterator[str]:
    """Yield a sentence about the worst attack of each source."""
    worst: dict[str, CheapAttack] = {}
    for attack in cheap:
        worst.setdefault(attack.data_source, attack)
    for attack in worst.values():
        yield attack.sentence()
