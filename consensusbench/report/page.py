"""The report about scored rollouts, a section a question; and the pages that hold it.

:func:`prepare` measures, diagnoses and probes; :func:`write_pages` writes the report with all
samples.  The pages themselves are those of :mod:`consensuspr.web`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from consensusbench.evaluation.metrics import Evaluation, EvaluationSettings, evaluate
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.evaluation.tables import evaluation_notes, evaluation_tables
from consensusbench.quality.diagnose import (
    Diagnosis,
    DiagnosisReport,
    diagnose,
    diagnosis_table,
    read_answers,
)
from consensusbench.quality.probes import (
    ProbeReport,
    attacks_by_source_table,
    cheap_notes,
    probe_dataset,
)
from consensusbench.quality.survey import RolloutSurvey
from consensusbench.report import charts
from consensusbench.tables import JsonResult
from consensuspr.client.files import chunks
from consensuspr.console import count_of
from consensuspr.data import Row
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import AnswerRule, Status
from consensuspr.version import VERSION
from consensuspr.web.figures import Chart, PageReport, Section
from consensuspr.web.snapshot import write_snapshot
from consensuspr.web.sources import FileSource, Source
from consensuspr.web.store import Store
from consensuspr.web.views import Views

MAX_LISTED = 12

# What each status other than OK means for the figures; docs/guides/evaluate.md has more.
_MEANING = {
    Status.ANSWER_UNDECIDED: "the answer could not be decided; counted as wrong",
    Status.NO_NODES: "their problem has no nodes; no NCR",
    Status.NO_GROUND_TRUTH: "there is no ground truth; no Acc",
    Status.UNKNOWN_PROBLEM: "the dataset does not have their problem; neither Acc nor NCR",
    Status.INVALID_NODES: "their nodes were not usable; no NCR",
    Status.OVERSIZE: "too long to be scored; neither Acc nor NCR",
    Status.INTERNAL: "an internal error while scoring; neither Acc nor NCR",
}
_RESULTS_NOTE = (
    "Acc: share of right answers. NCR: mean share of a problem's nodes that a rollout reaches. "
    "TPN: tokens per reached node. D_NCR: mean NCR of right rollouts minus that of wrong ones. "
    "AUROC: probability that a right rollout has a higher NCR than a wrong one (chance: 50 %). "
    "AUCPR: average precision (chance: the share of right rollouts)."
)
# The definition of each class, with its thresholds.
_CLASSES = {
    Diagnosis.ALMOST_CORRECT: "a wrong answer with an NCR of {almost_ncr:g} or more and "
    "{almost_hits:g} nodes reached or more.",
    Diagnosis.FORMAT_ERROR: "a right answer that is not in the requested form. There are none "
    "under the rule auto; set --answer-rule to the rule of the prompt.",
    Diagnosis.DIRECT_ANSWER: "a right answer with an NCR of {direct_ncr:g} or less, in "
    "{direct_chars:g} characters or less, or in {direct_chars_per_node:g} or less for each node.",
    Diagnosis.REDUNDANT_THINKING: "a right answer with {redundant_per_node:g} times the usual "
    "length for each node reached and {redundant_length:g} times the usual length in all, or one "
    "that goes on for {redundant_tail:g} times the usual length after the final answer's node.",
    Diagnosis.SOUND: "a right answer that is none of the others.",
    Diagnosis.WRONG: "a wrong answer that is none of the others.",
    Diagnosis.UNSCORED: "not scored, or the answer could not be decided. The share is of all "
    "rollouts.",
}


def prepare(
    scored: ScoredSet,
    dataset: Path,
    *,
    title: str = "",
    answer_rule: AnswerRule | None = None,
    probes: bool = True,
    figures: EvaluationSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[PageReport, list[Source]]:
    """Return the report about scored rollouts, and each file's rollouts for its pages.

    Args:
        scored: at least one rollout, scored with spans; its files are read again.
        answer_rule: that the rollouts were asked to follow; None for that of the scores.
        progress: called with the number of problems that are probed.

    Raises:
        InputError: a file has changed since.
    """
    diagnosed = diagnose(scored, readings=read_answers(scored, answer_rule))
    index = DatasetIndex.load(dataset, on_error=scored.on_error)
    evaluation = evaluate(
        scored, dataset=os.fspath(dataset), settings=figures or EvaluationSettings()
    )
    warnings = [*warnings_of(scored)]
    sections = [results_section(evaluation), *chart_sections(scored)]
    if probes:
        survey = RolloutSurvey(index)
        for chunk in chunks(_judged_rows(scored)):
            survey.take(chunk)
        probe = probe_dataset(
            dataset, on_error=scored.on_error, index=index, survey=survey, progress=progress
        )
        warnings += cheap_notes(probe.cheap)
        sections.append(probe_section(probe))
    sections.append(diagnosis_section(diagnosed))
    report = PageReport(
        title or f"ConsensusBench report: {dataset.name}",
        facts=facts_of(scored, evaluation, index.digest),
        warnings=tuple(warnings),
        sections=tuple(sections),
        footer=(
            f"Made by consensusbench {VERSION}. The page is complete in itself: it loads "
            "nothing and sends nothing.",
        ),
    )
    return report, [
        FileSource(Path(path), index.digest, _scored_rows(scored, diagnosed, file))
        for file, path in enumerate(scored.files)
    ]


@dataclass(frozen=True, slots=True)
class WrittenReport(JsonResult):
    """The file that was written, and its figures."""

    path: str
    size_bytes: int
    samples: int
    warnings: tuple[str, ...]


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
        dataset: of rollouts; of a run only if it keeps none itself.
        report: stands before the samples; without one, ``title`` heads the page.
        progress: called with the number of samples in the pages.

    Raises:
        InputError: a source cannot be read, or the output cannot be written.
    """
    store = Store(sources)
    views = Views(store, [] if dataset is None else [dataset])
    try:
        store.read_whole()
        views.wait()
        with views.now() as documents:
            size = write_snapshot(
                output, report.title if report else title, documents.kept(report, progress)
            )
        samples = sum(run.rows for run in store.runs)
    finally:
        views.close()
        store.close()
    return WrittenReport(os.fspath(output), size, samples, tuple(report.warnings) if report else ())


def _scored_rows(scored: ScoredSet, diagnosed: DiagnosisReport, file: int) -> Iterator[Row]:
    """Yield the rows of a file with their scores and classes, as ``consensuspr score`` does."""
    for (rollout, row), verdict in zip(scored.rows(), diagnosed.verdicts, strict=True):
        if rollout.file == file:
            matched = rollout.matched
            yield row | {
                "rollout_id": rollout.rollout_id,
                "data_source": rollout.data_source,
                "num_tokens": rollout.num_tokens,
                "status": rollout.status.value,
                "acc": rollout.acc,
                "ncr": rollout.ncr,
                "ncr_raw": sum(matched) / len(matched) if matched else None,
                "guard": rollout.guard if matched else None,
                "num_nodes": len(matched),
                "num_matched": sum(matched),
                "matched": list(matched),
                "tpn": rollout.tpn,
                "extracted_answer": rollout.answer,
                "answer_method": rollout.answer_method,
                "diagnosis": verdict.diagnosis.words,
                "diagnosis_reason": verdict.reason,
            }


def _judged_rows(scored: ScoredSet) -> Iterator[Row]:
    """Yield the rollouts' rows, each labelled as it was judged here."""
    for rollout, row in scored.rows():
        known = rollout.acc is not None and not rollout.undecided
        yield row | {"correct": rollout.acc == 1} if known else row


def facts_of(scored: ScoredSet, evaluation: Evaluation, digest: str) -> tuple[tuple[str, str], ...]:
    """Return name and value of all that the figures depend on.

    Folders are left out of paths, because a page may be mailed.
    """
    rollouts = scored.rollouts
    files = _listed([Path(path).name for path in scored.files])
    nodes: dict[str, int] = {}
    for rollout in rollouts:  # which may have brought nodes of their own
        listed = len(rollout.facts.is_final) if rollout.facts else 0
        of_problem = nodes.get(rollout.problem_id, 0)
        nodes[rollout.problem_id] = max(of_problem, listed, len(rollout.matched))
    with_nodes = [count for count in nodes.values() if count]
    without = len(nodes) - len(with_nodes)
    statuses = sorted(scored.statuses.items(), key=lambda item: (item[0] is not Status.OK, item[0]))
    facts = {
        "Dataset": f"{Path(evaluation.dataset).name}, {digest}",
        "Problems of the dataset": f"{len(scored.problems):,}",
        "Problems with rollouts": f"{len(nodes):,}"
        + (f", of them {without:,} without nodes" if without else ""),
    }
    if with_nodes:
        facts["Nodes"] = (
            f"{sum(with_nodes):,} of {len(with_nodes):,} problems with rollouts "
            f"({sum(with_nodes) / len(with_nodes):.1f} a problem)"
        )
    facts |= {
        "Rollouts": f"{len(rollouts):,} of {files}",
        "Models": _listed(sorted({rollout.model or "(none named)" for rollout in rollouts})),
        "Sources": _listed(sorted({rollout.data_source or "(none)" for rollout in rollouts})),
        "Statuses": ", ".join(f"{status.value} {count:,}" for status, count in statuses),
    }
    if (identity := scored.identity) is not None:
        facts["Scored by"] = (
            f"consensuspr {identity.server_version}, normal form {identity.normal_form_version}, "
            f"answers {identity.answer_version}, scoring {identity.scoring_version}, "
            f"code {identity.reward.code}, answer rule {identity.answer_rule.value}"
        )
    if scored.num_stored:
        facts["Scores from the files"] = f"{scored.num_stored:,} rollouts"
    if scored.tokenizer is not None:
        path = Path(scored.tokenizer)
        name = path.resolve().name if path.exists() else scored.tokenizer
        facts["Tokens"] = f"{scored.num_tokenized:,} rollouts counted by {name}"
    return tuple(facts.items())


def _listed(names: list[str]) -> str:
    shown, beyond = ", ".join(names[:MAX_LISTED]), len(names) - MAX_LISTED
    return f"{shown} and {beyond:,} more" if beyond > 0 else shown


def warnings_of(scored: ScoredSet) -> Iterator[str]:
    """Yield a sentence for everything that makes figures mean less than they seem to."""
    for status, count in scored.statuses.items():
        if status is not Status.OK:
            first = scored.messages.get(status)
            example = f" The first: {first}." if first else ""
            yield f"{count:,} rollouts have status {status.value}: {_MEANING[status]}.{example}"
    if by_load := sum(rollout.undecided_by_load for rollout in scored.rollouts):
        yield (
            f"{by_load:,} answers stayed undecided because the machine was busy: score them again."
        )
    if scored.skipped_rows:
        yield f"{count_of(scored.skipped_rows, 'bad row')} of the files passed over."
    if not any(rollout.num_tokens for rollout in scored.rollouts):
        yield "No rollout has a length in tokens: there is no TPN."


def results_section(evaluation: Evaluation) -> Section:
    """Return the tables of ``consensusbench evaluate`` and the notes below them."""
    return Section(
        "results",
        "Results",
        ("Small figures are confidence intervals; a dash is an unknown value.",),
        tables=[table.to_figures() for table in evaluation_tables(evaluation)],
        notes=(_RESULTS_NOTE, *evaluation_notes(evaluation)),
    )


def chart_sections(scored: ScoredSet) -> list[Section]:
    """Return the distributions, and the rewards of the paper's section 4.2 on these rollouts."""
    rollouts = scored.rollouts

    def section(name: str, title: str, about: str, *of_section: Chart) -> Section:
        return Section(
            name,
            title,
            (about,),
            [chart for chart in of_section if chart.series],
            notes=[f"{chart.title}: {chart.empty}" for chart in of_section if not chart.series],
        )

    def problem_href(problem_id: str) -> str:
        return f"#/samples?problem={quote(problem_id, safe='', errors='replace')}"

    return [
        section(
            "distributions",
            "Distributions",
            "Right and wrong rollouts side by side. Point at a mark to see its figures.",
            charts.ncr_distribution(rollouts),
            charts.accuracy_scatter(rollouts, problem_href),
            charts.text_position(rollouts),
            charts.tpn_distribution(rollouts),
            charts.length_distribution(rollouts),
        ),
        section(
            "rewards",
            "Rewards",
            "The linear reward of these rollouts for each weight α, from NCR alone (0) to the "
            "outcome alone (1). Nothing was trained.",
            *charts.alpha_charts(rollouts),
        ),
    ]


def probe_section(report: ProbeReport) -> Section:
    """Return the NCR that attacks earn."""
    return Section(
        "probes",
        "Reward hacking",
        (
            "NCR of texts that solve nothing, on every problem. A policy could earn as much "
            "without reasoning.",
        ),
        tables=[attacks_by_source_table(report).to_figures()],
        notes=[f"{attack.attack.value}: {attack.description}." for attack in report.attacks],
    )


def diagnosis_section(report: DiagnosisReport) -> Section:
    """Return the share and the number of each class of the paper's figure 1."""
    limits = report.thresholds.model_dump()
    return Section(
        "diagnosis",
        "Diagnosis",
        (
            "Rollouts that an outcome reward misjudges (figure 1 of the paper). Each rollout has "
            "one class. Filter the rollouts below by class.",
        ),
        tables=[diagnosis_table(report).to_figures()],
        notes=(
            *(f"{one.words.capitalize()}: {_CLASSES[one].format(**limits)}" for one in Diagnosis),
            "NCR is without final nodes here, if a problem has others.",
        ),
    )
