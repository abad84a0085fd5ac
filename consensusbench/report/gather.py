"""From scored rollouts to the page: measure, diagnose, probe, choose, draw, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from consensusbench.diagnosis import DiagnosisReport, diagnose, read_answers
from consensusbench.evaluation.evaluating import evaluate
from consensusbench.evaluation.measuring import Settings as EvaluationSettings
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.probes import ProbeReport, ProbeSettings, probe_dataset
from consensusbench.report.browser import RolloutView, view_rollouts
from consensusbench.report.heading import facts_of, warnings_of
from consensusbench.report.page import Page, Section, render
from consensusbench.report.problems import summarize_problems
from consensusbench.report.sections.charts import distribution_section, reward_section
from consensusbench.report.sections.diagnosis import class_name, diagnosis_section
from consensusbench.report.sections.probes import probe_section
from consensusbench.report.sections.problems import problem_section
from consensusbench.report.sections.results import results_section
from consensusbench.report.selection import Label, Place, choose
from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import AnswerRule
from consensuspr.version import VERSION

if TYPE_CHECKING:
    from consensusbench.evaluation.evaluating import Evaluation

# Code points of responses in a page, over all rollouts: what a browser opens at once.
MAX_PAGE_CHARS = 4_000_000


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """What the page holds.

    Attributes:
        title: of the page; empty for one made of the dataset's name.
        max_rollouts: rollouts whose text stands in the page.
        max_chars: code points of one response in the page.
        max_page_chars: code points of all responses in the page.
        probes: probe the dataset for reward hacking, which reads the rollouts once more.
        answer_rule: the answer rule that was asked of the rollouts, for format errors; None for
            the one that they are scored by.
        evaluation: how the figures are made.

    Raises:
        InputError: a number is below its limit.
    """

    title: str = ""
    max_rollouts: int = 200
    max_chars: int = 20_000
    max_page_chars: int = MAX_PAGE_CHARS
    probes: bool = True
    answer_rule: AnswerRule | None = None
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        if self.max_rollouts < 0:
            raise InputError(f"a page holds 0 rollouts or more, not {self.max_rollouts}")
        if self.max_chars < 1:
            raise InputError(f"a response has 1 character or more, not {self.max_chars}")


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """What was written, in numbers."""

    path: str
    size_bytes: int
    rollouts: int
    shown: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the numbers ready for ``json.dumps``."""
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "rollouts": self.rollouts,
            "rollouts_shown": self.shown,
            "warnings": list(self.warnings),
        }


def write_report(
    scored: ScoredSet,
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    settings: ReportSettings | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> WrittenReport:
    """Write the page about scored rollouts, complete or not at all.

    Args:
        scored: at least one rollout, scored with spans; its files are read again.
        dataset: the dataset they were scored against.
        output: the HTML file.
        settings: what the page holds; None for the default ones.
        progress: told how many problems are probed.

    Raises:
        InputError: a file has changed since, or the output cannot be written.
    """
    page = gather(scored, dataset, settings or ReportSettings(), progress)
    written = render(page)
    with atomic_file(output) as stream:
        stream.write(written)
    return WrittenReport(
        os.fspath(output), len(written), len(scored.rollouts), len(page.views), page.warnings
    )


def gather(
    scored: ScoredSet,
    dataset: str | os.PathLike[str],
    settings: ReportSettings,
    progress: Callable[[int], None],
) -> Page:
    """Return the page about scored rollouts; the arguments are those of :func:`write_report`."""
    on_error = scored.on_error
    name = os.fspath(dataset)
    evaluation = evaluate(scored, dataset=name, settings=settings.evaluation)
    diagnosed = _diagnose(scored, settings.answer_rule)
    diagnoses = _labels(scored, diagnosed)
    chosen = choose(scored.rollouts, diagnoses, settings.max_rollouts)
    views = view_rollouts(
        scored,
        chosen,
        dataset,
        diagnoses,
        on_error=on_error,
        max_chars=settings.max_chars,
        max_page_chars=settings.max_page_chars,
    )
    index = DatasetIndex.load(dataset, on_error=on_error)
    probe = None
    if settings.probes:
        probe = probe_dataset(
            dataset, scored.files, ProbeSettings(on_error=on_error), index=index, progress=progress
        )
    return Page(
        title=settings.title or f"ConsensusBench report: {Path(name).name}",
        facts=facts_of(scored, evaluation, name, index.digest),
        warnings=warnings_of(scored),
        sections=_sections(scored, evaluation, diagnosed, probe, views),
        views=tuple(views),
        choice=_choice(scored, views),
        footer=(
            f"Made by consensusbench {VERSION}. The page is complete in itself: it loads "
            "nothing and sends nothing.",
        ),
    )


def _diagnose(scored: ScoredSet, rule: AnswerRule | None) -> DiagnosisReport:
    """Sort the rollouts into classes, answers read a second time only where that can matter."""
    identity = scored.identity
    lenient_already = (
        rule is None and identity is not None and identity.answer_rule is AnswerRule.AUTO
    )
    if lenient_already and not scored.num_stored:
        return diagnose(scored)
    return diagnose(scored, readings=read_answers(scored, rule))


def _labels(scored: ScoredSet, diagnosed: DiagnosisReport) -> dict[Place, Label]:
    return {
        (rollout.file, rollout.row): Label(class_name(verdict.diagnosis), verdict.reason)
        for rollout, verdict in zip(scored.rollouts, diagnosed.verdicts, strict=True)
    }


def _sections(
    scored: ScoredSet,
    evaluation: Evaluation,
    diagnosed: DiagnosisReport,
    probe: ProbeReport | None,
    views: Sequence[RolloutView],
) -> tuple[Section, ...]:
    anchors: dict[str, str] = {}
    for view in views:
        anchors.setdefault(view.rollout.problem_id, view.anchor)
    problems = summarize_problems(scored.rollouts, scored.problems)
    return (
        results_section(evaluation),
        distribution_section(scored.rollouts, scored.problems),
        reward_section(scored.rollouts),
        *(() if probe is None else (probe_section(probe),)),
        diagnosis_section(diagnosed),
        problem_section(problems, anchors),
    )


def _choice(scored: ScoredSet, views: Sequence[RolloutView]) -> str:
    if len(views) == len(scored.rollouts):
        chosen = f"All {len(views):,} rollouts."
    else:
        chosen = (
            f"{len(views):,} of {len(scored.rollouts):,} rollouts, chosen so that every model "
            "shows every kind: half of them those in which accuracy and coverage disagree most, "
            "half of them picked evenly."
        )
    if any(view.rollout.matched for view in views) and not views[-1].rollout.matched:
        chosen += " Those without nodes come last."
    cut = sum(view.left_out > 0 for view in views)
    left_out = sum(view.left_out for view in views)
    if cut:
        chosen += (
            f" Of {cut:,} long ones, {left_out:,} characters are left out, away from the hits."
        )
    return chosen + " The first place of each node is marked with its colour and its number."
