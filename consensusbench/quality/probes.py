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
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from consensusbench.evaluation.scored import Floats
from consensusbench.quality.attacks import BOUNDS, DESCRIPTIONS, Attack, attacks_on
from consensusbench.quality.survey import (
    RolloutSurvey,
    WrongFigures,
    guard_factors,
    match_unrelated,
    survey_rollouts,
)
from consensusbench.tables import JsonResult, Row, Table, number, percent, words
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

ItemT = TypeVar("ItemT")
# A problem with nodes, and its text.
_Target: TypeAlias = tuple[Entry, str]
# Of one problem: guarded and raw NCR, guarded NCR without final nodes (or NaN), characters.
_Earned: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """Means over a group of problems.

    ``ncr`` is guarded, of what keeps to the guard's budget if the attack can be cut;
    ``ncr_raw`` is of all of it, unguarded.  ``ncr_without_final`` is over nodes that do not state
    the final answer; None if no problem has such nodes.
    """

    problems: int
    ncr: float
    ncr_raw: float
    ncr_without_final: float | None
    mean_chars: float

    @classmethod
    def of(cls, earned: Sequence[_Earned]) -> AttackFigures:
        """Return the means of what an attack earns of each problem."""
        ncr, raw, without_final, chars = np.array(earned).T
        known = without_final[~np.isnan(without_final)]
        return cls(
            problems=len(earned),
            ncr=float(ncr.mean()),
            ncr_raw=float(raw.mean()),
            ncr_without_final=float(known.mean()) if len(known) else None,
            mean_chars=float(chars.mean()),
        )


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
    """An attack with a higher mean NCR on a source than its wrong rollouts.

    ``ncr_wrong`` is None if no rollout is known to be wrong; then ``ncr`` is above its bound.
    """

    attack: Attack
    data_source: str
    ncr: float
    ncr_wrong: float | None

    @property
    def above(self) -> float:
        """By how much it is too high."""
        return self.ncr - (BOUNDS[self.attack] if self.ncr_wrong is None else self.ncr_wrong)

    def sentence(self) -> str:
        """Return the two figures and what to do about them."""
        usual = (
            f"at most {100 * BOUNDS[self.attack]:g} % is usual"
            if self.ncr_wrong is None
            else f"wrong rollouts score {100 * self.ncr_wrong:.1f} %"
        )
        return (
            f"attack `{self.attack.value}` scores {100 * self.ncr:.1f} % NCR on "
            f"{one_line(self.data_source) or 'problems without a source'}; {usual}. Add budgets "
            "if problems have none (consensusbench build --budgets), or drop nodes that need no "
            "reasoning"
        )


def cheap_attacks(
    earned: Iterable[tuple[Attack | str, str, float, float | None]],
) -> tuple[CheapAttack, ...]:
    """Return the attacks that earn more than wrong rollouts, the worst first.

    Args:
        earned: attack, data source, NCR of the attack, and mean NCR of wrong rollouts if known.
    """
    known = [
        CheapAttack(Attack(attack), source, ncr, ncr_wrong)
        for attack, source, ncr, ncr_wrong in earned
        if ncr_wrong is not None or attack in BOUNDS
    ]
    cheap = [attack for attack in known if attack.above > 0]
    return tuple(sorted(cheap, key=lambda found: (-found.above, found.attack)))


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
    on_error: OnError = "stop",
    index: DatasetIndex | None = None,
    survey: RolloutSurvey | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ProbeReport:
    """Measure the NCR of attacks on a dataset.

    Counted nouns, which could go on without end, are as long as the median rollout of their
    source, or 2,000 characters without rollouts.

    Args:
        rollouts: files of rollouts of these problems, for the level of chance.
        index, survey: of the dataset and the rollouts, if they are there already.

    Raises:
        DataError: a file is bad.
    """
    if index is None:
        index = DatasetIndex.load(dataset, on_error=on_error)
    if survey is None:
        survey = survey_rollouts(rollouts, index, on_error=on_error)
    earned: dict[Attack, dict[str, list[_Earned]]] = {attack: {} for attack in Attack}
    budgets: dict[str, int] = {}
    done = 0
    for source, chunk in chunks_by_source(_targets(dataset, index, on_error)):
        chars = budgets.setdefault(source, survey.typical_chars(source) or DEFAULT_CHARS)
        for tried in (_attacked(chunk, chars), _by_chance(chunk, source, survey)):
            for attack, of_problem in tried:
                earned[attack].setdefault(source, []).append(of_problem)
        done += len(chunk)
        progress(done)
    attacks = tuple(
        AttackReport(
            attack,
            AttackFigures.of([row for rows in by_source.values() for row in rows]),
            {source: AttackFigures.of(rows) for source, rows in by_source.items()},
        )
        for attack, by_source in earned.items()
        if by_source
    )
    wrong = survey.wrong()
    return ProbeReport(
        digest=index.digest,
        budgets=budgets,
        attacks=attacks,
        wrong=wrong,
        cheap=cheap_attacks(
            (report.attack, source, figures.ncr, wrong[source].ncr if source in wrong else None)
            for report in attacks
            if report.attack is not Attack.UNRELATED
            for source, figures in report.by_source.items()
        ),
        unknown_rollouts=survey.unknown,
    )


def chunks_by_source(items: Iterable[tuple[str, ItemT]]) -> Iterator[tuple[str, list[ItemT]]]:
    """Yield items, given with their data sources, in chunks of one source each."""
    waiting: dict[str, list[ItemT]] = defaultdict(list)
    for source, item in items:
        waiting[source].append(item)
        if len(waiting[source]) == CHUNK_PROBLEMS:
            yield source, waiting.pop(source)
    yield from waiting.items()


def _targets(
    dataset: str | os.PathLike[str], index: DatasetIndex, on_error: OnError
) -> Iterator[tuple[str, _Target]]:
    for problem in read_problems(dataset, on_error):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if problem.nodes:
            yield problem.data_source, (entry, problem.problem)


def _attacked(chunk: Sequence[_Target], chars: int) -> Iterator[tuple[Attack, _Earned]]:
    """Yield what each attack earns of each problem."""
    for start in range(0, len(chunk), CHUNK_ATTACKED):
        tries = [
            (entry, attack)
            for entry, problem in chunk[start : start + CHUNK_ATTACKED]
            for attack in attacks_on(problem, least_budget(entry.budget, entry.num_nodes), chars)
        ]
        entries = [entry for entry, _ in tries for _ in range(2)]
        texts = [text for _, attack in tries for text in (attack.text, attack.within)]
        matched = match_batch([entry.matcher for entry in entries], texts)
        guards = guard_factors(entries, texts, matched)
        for row, (entry, attack) in enumerate(tries):
            whole, within = (matched.matched(at).astype(float) for at in (2 * row, 2 * row + 1))
            guarded = within * guards[2 * row + 1]
            yield attack.attack, _earned(entry, whole, guarded, len(attack.text))


def _by_chance(
    chunk: Sequence[_Target], source: str, survey: RolloutSurvey
) -> Iterator[tuple[Attack, _Earned]]:
    """Yield what the sampled rollouts of other problems earn of each problem on average."""
    sample = survey.samples.get(source, [])
    texts = [rollout.text for rollout in sample]
    owners = np.array([rollout.problem_id for rollout in sample], dtype=object)
    problems = [(entry.problem_id, entry.nodes) for entry, _ in chunk]
    counted = match_batch([Matcher([])] * len(texts), texts)
    for (entry, _), hits in zip(chunk, match_unrelated(problems, sample), strict=True):
        if len(hits):
            guards = guard_factors([entry] * len(texts), texts, counted)
            guarded = hits * guards[owners != entry.problem_id][:, None]
            chars = float(np.mean([len(text) for text in texts]))
            yield Attack.UNRELATED, _earned(entry, hits.mean(axis=0), guarded.mean(axis=0), chars)


def _earned(entry: Entry, rates: Floats, guarded: Floats, chars: float) -> _Earned:
    """Return the figures of one problem by the share of texts that hit each node."""
    inner = guarded[[not node.is_final for node in entry.nodes]]
    without_final = float(inner.mean()) if len(inner) else float("nan")
    return float(guarded.mean()), float(rates.mean()), without_final, chars


# The fields of AttackFigures in their order.
_COLUMNS: Final = (
    number("Problems"),
    percent("NCR", decimals=2),
    percent("unguarded", decimals=2),
    percent("without final", decimals=2),
    number("Characters"),
)


def attacks_by_source_table(report: ProbeReport) -> Table:
    """Return the figures of attacks by data source, and overall if there are several."""
    rows: list[Row] = []
    for attack in report.attacks:
        groups = dict(attack.by_source)
        if len(groups) > 1:
            groups["all"] = attack.overall
        rows += [
            [attack.attack.value, source or "(none)", *astuple(figures)]
            for source, figures in groups.items()
        ]
    columns = [words("Attack"), words("Data source"), *_COLUMNS]
    return Table("NCR of attacks, by data source", columns, [rows])


def cheap_notes(cheap: Sequence[CheapAttack]) -> Iterator[str]:
    """Yield a sentence about the worst attack of each source."""
    worst: dict[str, CheapAttack] = {}
    for attack in cheap:
        worst.setdefault(attack.data_source, attack)
    for attack in worst.values():
        yield attack.sentence()
