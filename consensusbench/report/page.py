"""What the report says of scored rollouts, a section a question; and the pages that hold it.

:func:`gather` measures, diagnoses and probes; each section is a function of what was found.
:func:`write_pages` keeps all samples beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from consensusbench.evaluation.metrics import (
    Evaluation,
    EvaluationSettings,
    evaluate,
)
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.evaluation.tables import evaluation_notes, evaluation_tables
from consensusbench.quality.diagnose import (
    Diagnosis,
    DiagnosisReport,
    diagnose,
    diagnosis_table,
    read_answers,
    read_leniently,
)
from consensusbench.quality.probes import (
    ProbeReport,
    ProbeSettings,
    attacks_by_source_table,
    cheap_notes,
    density_table,
    probe_dataset,
)
from consensusbench.quality.survey import RolloutSurvey
from consensusbench.report import ReportSettings
from consensusbench.report.charts import (
    accuracy_scatter,
    alpha_charts,
    length_distribution,
    ncr_distribution,
    node_order,
    text_position,
    tpn_distribution,
)
from consensusbench.report.data import summarize_problems
from consensusbench.tables import JsonResult
from consensuspr.client.files import chunks
from consensuspr.console import count_of
from consensuspr.data import Row as DataRow
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import Status
from consensuspr.version import VERSION
from consensuspr.web.figures import Chart, PageReport, Section
from consensuspr.web.snapshot import write_snapshot
from consensuspr.web.sources import FileSource, Source
from consensuspr.web.store import Store
from consensuspr.web.views import Views

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"

# What each status other than OK means for the figures; docs/evaluate.md says more.
_MEANING = {
    Status.ANSWER_UNDECIDED: "the answer check came to no verdict; counted as wrong",
    Status.NO_NODES: "their problem has no nodes; no NCR",
    Status.NO_GROUND_TRUTH: "nothing says what is right; no Acc",
    Status.UNKNOWN_PROBLEM: "the dataset does not have their problem; neither Acc nor NCR",
    Status.INVALID_NODES: "their nodes were not usable; no NCR",
    Status.OVERSIZE: "too long to be scored; neither Acc nor NCR",
    Status.INTERNAL: "a defect while scoring; neither Acc nor NCR",
}


def facts_of(
    scored: ScoredSet, evaluation: Evaluation, dataset: str, digest: str
) -> tuple[tuple[str, str], ...]:
    """Return name and value of all that the figures depend on.

    Folders are left out of paths: a page travels, and they are nobody else's concern.
    """
    models = sorted({rollout.model or "(none named)" for rollout in scored.rollouts})
    files = _listed([Path(path).name for path in scored.files])
    sources = sorted({rollout.data_source or "(none)" for rollout in scored.rollouts})
    facts = [
        ("Dataset", f"{Path(dataset).name}, {digest}"),
        ("Problems of the dataset", f"{len(scored.problems):,}"),
        *_answered(scored),
        ("Rollouts", f"{len(scored.rollouts):,} of {files}"),
        ("Models", _listed(models)),
        ("Sources", _listed(sources)),
        ("Statuses", _statuses(scored)),
    ]
    identity = scored.identity
    if identity is not None:
        facts.append(
            (
                "Scored by",
                f"consensuspr {identity.server_version}, normal form "
                f"{identity.normal_form_version}, answers {identity.answer_version}, "
                f"scoring {identity.scoring_version}, code {identity.reward.code}, "
                f"answer rule {identity.answer_rule.value}",
            )
        )
    if scored.num_stored:
        facts.append(("Scores from the files", f"{scored.num_stored:,} rollouts"))
    if evaluation.tokenizer is not None:
        tokenizer = _tokenizer_name(evaluation.tokenizer)
        facts.append(("Tokens", f"{evaluation.num_tokenized:,} rollouts counted by {tokenizer}"))
    return tuple(facts)


def warnings_of(scored: ScoredSet) -> tuple[str, ...]:
    """Return what makes figures mean less than they seem to, one sentence each."""
    warnings = []
    for status, rollouts in scored.statuses.items():
        if status is not Status.OK:
            first = scored.messages.get(status)
            example = f" The first: {first}." if first else ""
            warnings.append(
                f"{rollouts:,} rollouts have status {status.value}: {_MEANING[status]}.{example}"
            )
    by_load = sum(rollout.undecided_by_load for rollout in scored.rollouts)
    if by_load:
        warnings.append(
            f"{by_load:,} answers stayed undecided because the machine was busy: score them again."
        )
    if scored.skipped_rows:
        warnings.append(f"{count_of(scored.skipped_rows, 'bad row')} of the files passed over.")
    if not any(rollout.num_tokens for rollout in scored.rollouts):
        warnings.append("No rollout has a length in tokens: there is no TPN.")
    return tuple(warnings)


def _answered(scored: ScoredSet) -> list[tuple[str, str]]:
    """Return how many problems have rollouts, how many of them have no nodes, and the nodes."""
    nodes = {
        rollout.problem_id: (
            len(scored.problems[rollout.problem_id].node_ids)
            if rollout.problem_id in scored.problems
            else 0
        )
        for rollout in scored.rollouts
    }
    for rollout in scored.rollouts:  # which may have brought nodes of their own
        nodes[rollout.problem_id] = max(nodes[rollout.problem_id], len(rollout.matched))
    with_nodes = [count for count in nodes.values() if count]
    told = f"{len(nodes):,}"
    without = len(nodes) - len(with_nodes)
    if without:
        told += f", of them {without:,} without nodes"
    facts = [("Problems with rollouts", told)]
    if with_nodes:
        each = sum(with_nodes) / len(with_nodes)
        facts.append(
            (
                "Nodes",
                f"{sum(with_nodes):,} of {len(with_nodes):,} problems with rollouts "
                f"({each:.1f} a problem)",
            )
        )
    return facts


def _statuses(scored: ScoredSet) -> str:
    counts = scored.statuses
    told = sorted(counts, key=lambda status: (status is not Status.OK, status.value))
    return ", ".join(f"{status.value} {counts[status]:,}" for status in told)


def _tokenizer_name(tokenizer: str) -> str:
    """Return a tokenizer's name on the hub, or that of its file or folder."""
    path = Path(tokenizer)
    return path.resolve().name if path.exists() else tokenizer


def _listed(names: list[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def results_section(evaluation: Evaluation) -> Section:
    """Return the tables of ``consensusbench evaluate`` and the notes below them."""
    return Section(
        "results",
        "Results",
        ("Small figures are confidence intervals; a dash is an unknown value.",),
        tables=[table.to_figures() for table in evaluation_tables(evaluation)],
        notes=(
            "Acc: share of right answers. NCR: mean share of a problem's nodes that a rollout "
            "reaches; w/o final: without the nodes that state the answer. TPN: tokens per reached "
            "node. D_NCR: mean NCR of right minus that of wrong rollouts. AUROC: how often a right "
            "rollout has the higher NCR of a right and a wrong one (50 % is chance). AUCPR: "
            "average precision (chance: the prevalence, the share of right rollouts).",
            *evaluation_notes(evaluation),
        ),
    )


def distribution_section(rollouts: Rollouts) -> Section:
    """Return NCR against Acc, and how NCR, positions, TPN and lengths are distributed."""
    return _section(
        "distributions",
        "Distributions",
        "Right and wrong rollouts side by side. Point at a mark for its figures.",
        ncr_distribution(rollouts),
        accuracy_scatter(summarize_problems(rollouts), _problem_href),
        text_position(rollouts),
        node_order(rollouts),
        tpn_distribution(rollouts),
        length_distribution(rollouts),
    )


def _problem_href(problem_id: str) -> str:
    """Return where the page shows the rollouts of a problem."""
    return f"#/samples?problem={quote(problem_id, safe='', errors='replace')}"


def reward_section(rollouts: Rollouts) -> Section:
    """Return what the rewards of the paper's section 4.2 would do to these rollouts."""
    return _section(
        "rewards",
        "Rewards",
        "What the linear reward would tell a trainer about these rollouts as its weight α moves "
        "from the process (0) to the outcome (1). Nothing was trained for it.",
        *alpha_charts(rollouts),
    )


def _section(name: str, title: str, about: str, *charts: Chart) -> Section:
    """Return a section with the charts that show something, and a line about each other one."""
    return Section(
        name,
        title,
        (about,),
        [chart for chart in charts if chart.series],
        notes=[f"{chart.title}: {chart.empty}" for chart in charts if not chart.series],
    )


def probe_section(report: ProbeReport) -> Section:
    """Return what attacks earn, and how densely real rollouts hit their nodes."""
    tables = [attacks_by_source_table(report)]
    if report.density:
        tables.append(density_table(report))
    return Section(
        "probes",
        "Reward hacking",
        (
            "Texts that solve nothing, scored against every problem: what they earn, a policy "
            "could earn without reasoning.",
        ),
        tables=[table.to_figures() for table in tables],
        notes=[f"{one.attack.value}: {one.description}." for one in report.attacks],
    )


# What is put into each class, with its thresholds.
_CLASSES = {
    Diagnosis.ALMOST_CORRECT: "a wrong answer with an NCR of {almost_ncr:g} or more and "
    "{almost_hits:g} nodes reached or more.",
    Diagnosis.FORMAT_ERROR: "a right answer that is not where or as it was asked for; it shows "
    "only if the rule asked for is stricter than auto (--answer-rule).",
    Diagnosis.DIRECT_ANSWER: "a right answer with an NCR of {direct_ncr:g} or less, in "
    "{direct_chars:g} characters or less, or in {direct_chars_per_node:g} or less for each node.",
    Diagnosis.REDUNDANT_THINKING: "a right answer with {redundant_per_node:g} times the usual "
    "length for each node reached and {redundant_length:g} times the usual length in all, or one "
    "that goes on for {redundant_tail:g} times the usual length after the final answer's node.",
    Diagnosis.SOUND: "a right answer that is none of the others.",
    Diagnosis.WRONG: "a wrong answer that is none of the others.",
    Diagnosis.UNSCORED: "no score to judge by; the share is of all rollouts.",
}


def diagnosis_section(report: DiagnosisReport) -> Section:
    """Return the share and the number of each class of the paper's figure 1."""
    limits = report.thresholds.model_dump()
    return Section(
        "diagnosis",
        "Diagnosis",
        (
            "What an outcome reward misjudges, each rollout in one class (figure 1 of the paper). "
            "The rollouts below can be filtered by these classes.",
        ),
        tables=[diagnosis_table(report).to_figures()],
        notes=(
            *(f"{one.words.capitalize()}: {_CLASSES[one].format(**limits)}" for one in Diagnosis),
            "These NCRs are without final nodes, if a problem has others.",
        ),
    )


@dataclass(frozen=True, slots=True)
class WrittenReport(JsonResult):
    """What was written, in numbers."""

    path: str
    size_bytes: int
    samples: int
    warnings: tuple[str, ...]


def prepare(
    scored: ScoredSet,
    dataset: Path,
    settings: ReportSettings,
    *,
    figures: EvaluationSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[PageReport, list[Source]]:
    """Return what the report says of scored rollouts, and each file's rollouts for its pages.

    Args:
        scored: at least one rollout, scored with spans; its files are read again.
        progress: told how many problems are probed.

    Raises:
        InputError: a file has changed since.
    """
    # Answers are read a second time only where that can matter.
    rule = settings.answer_rule
    readings = None if read_leniently(scored, rule) else read_answers(scored, rule)
    diagnosed = diagnose(scored, readings=readings)
    index = DatasetIndex.load(dataset, on_error=scored.on_error)
    report = gather(scored, dataset, settings, diagnosed, index, figures, progress)
    return report, [
        FileSource(Path(path), index.digest, _scored_rows(scored, diagnosed, file))
        for file, path in enumerate(scored.files)
    ]


def write_pages(
    sources: Sequence[Source],
    dataset: Path | None,
    output: Path,
    title: str,
    report: PageReport | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> WrittenReport:
    """Write the pages of files or runs, complete or not at all.

    Args:
        dataset: of rollouts; of a run where it keeps none itself.
        report: stands before the samples; without one, ``title`` heads the page.
        progress: told how many samples are in the pages.

    Raises:
        InputError: a source cannot be read, or the output cannot be written.
    """
    store = Store(sources)
    views = Views(store, [] if dataset is None else [dataset])
    try:
        store.read_whole()
        views.wait()
        title = report.title if report is not None else title
        with views.now() as documents:
            size = write_snapshot(output, title, documents.kept(report, progress))
        samples = sum(run.rows for run in store.runs)
    finally:
        views.close()
        store.close()
    return WrittenReport(
        os.fspath(output),
        size,
        samples,
        () if report is None else tuple(report.warnings),
    )


def _scored_rows(scored: ScoredSet, diagnosed: DiagnosisReport, file: int) -> Iterator[DataRow]:
    """Yield the rows of a file with what was found about them, as ``consensuspr score`` does."""
    verdicts = iter(diagnosed.verdicts)
    for rollout, row in scored.rows():
        found = next(verdicts)
        if rollout.file != file:
            continue
        yield row | {
            "rollout_id": rollout.rollout_id,
            "data_source": rollout.data_source,
            "num_tokens": rollout.num_tokens,
            "status": rollout.status.value,
            "acc": rollout.acc,
            "ncr": rollout.ncr,
            "ncr_raw": sum(rollout.matched) / len(rollout.matched) if rollout.matched else None,
            "guard": rollout.guard if rollout.matched else None,
            "num_nodes": len(rollout.matched),
            "num_matched": rollout.num_matched,
            "matched": list(rollout.matched),
            "tpn": rollout.tpn,
            "answer": rollout.answer,
            "answer_method": rollout.answer_method,
            "diagnosis": found.diagnosis.words,
            "diagnosis_reason": found.reason,
        }


def gather(
    scored: ScoredSet,
    dataset: Path,
    settings: ReportSettings,
    diagnosed: DiagnosisReport,
    index: DatasetIndex,
    figures: EvaluationSettings | None,
    progress: Callable[[int], None],
) -> PageReport:
    """Return what the report says; arguments are those of :func:`prepare`.

    Args:
        diagnosed: of the same rollouts.
        index: of the dataset.
    """
    name = os.fspath(dataset)
    evaluation = evaluate(scored, dataset=name, settings=figures)
    probe = None
    if not settings.no_probes:
        survey = RolloutSurvey(index)
        for chunk in chunks(_judged_rows(scored)):
            survey.take(chunk)
        probe = probe_dataset(
            dataset,
            None,
            ProbeSettings(on_error=scored.on_error),
            index=index,
            survey=survey,
            progress=progress,
        )
    return PageReport(
        settings.title or f"ConsensusBench report: {dataset.name}",
        facts=facts_of(scored, evaluation, name, index.digest),
        warnings=(*warnings_of(scored), *(() if probe is None else cheap_notes(probe.cheap))),
        sections=(
            results_section(evaluation),
            distribution_section(scored.rollouts),
            reward_section(scored.rollouts),
            *(() if probe is None else (probe_section(probe),)),
            diagnosis_section(diagnosed),
        ),
        footer=(
            f"Made by consensusbench {VERSION}. The page is complete in itself: it loads "
            "nothing and sends nothing.",
        ),
    )


def _judged_rows(scored: ScoredSet) -> Iterator[DataRow]:
    """Yield the rollouts' rows, each labelled as it was judged here."""
    for rollout, row in scored.rows():
        yield (
            row if rollout.acc is None or rollout.undecided else row | {"correct": rollout.acc == 1}
        )
