"""``consensusbench diagnose``: which rollouts an outcome reward misjudges, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from consensusbench.cli.options import (
    SCORING_OPTIONS,
    DatasetPath,
    RolloutsPaths,
    ScoringSettings,
)
from consensusbench.evaluation.scored import ScoredRollout, ScoredSet
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.quality.diagnose import (
    Diagnosis,
    DiagnosisReport,
    Thresholds,
    diagnose,
    diagnosis_notes,
    diagnosis_table,
    read_answers,
    read_leniently,
)
from consensusbench.tables import print_result
from consensuspr.cli.explain import Marker
from consensuspr.cli.options import Address, Json, with_settings
from consensuspr.console import count_progress, make_console, one_line
from consensuspr.data import open_writer
from consensuspr.scoring.marks import Mark
from consensuspr.scoring.types import AnswerRule

_STYLE = {
    Diagnosis.SOUND: "green",
    Diagnosis.WRONG: "red",
    Diagnosis.UNSCORED: "dim",
}


class DiagnoseSettings(ScoringSettings):
    """How ``diagnose`` reads answers and where its classes begin."""

    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that the rollouts were asked to follow; auto sees right answers "
        "anywhere. Where not set, the one the scores were made with.",
    )
    thresholds: Thresholds = Thresholds()


@with_settings(
    DiagnoseSettings,
    prefix="CONSENSUSBENCH_DIAGNOSE",
    shown={"answer_rule": None, **SCORING_OPTIONS},
)
def diagnose_rollouts(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    examples: Annotated[
        int, typer.Option(metavar="K", min=0, help="Rollouts of each class to show, hits marked.")
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Write the rollouts with columns diagnosis and diagnosis_reason.",
        ),
    ] = None,
    address: Address = None,
    settings: DiagnoseSettings,
    as_json: Json = False,
) -> None:
    """Classify rollouts by what an outcome reward misses, by model and data source.

    ```text
    consensusbench diagnose rollouts.jsonl --dataset dataset.jsonl --answer-rule dapo
    consensusbench diagnose rollouts.jsonl --dataset dataset.jsonl --examples 2
    ```

    Right: sound, a direct answer without a path, or redundant thinking. Wrong: almost correct,
    a format error (right, but not as the answer rule wants it), or wrong. Format errors show only
    under a rule that is stricter than auto. `--list-settings` lists the thresholds, such as
    `--almost-ncr 0.8`.
    """
    check_row_outputs((output,))
    check_outputs((output,), (*rollouts, dataset))
    scored = settings.score(rollouts, dataset, address, spans=True)
    rule = settings.answer_rule
    readings = None
    if not read_leniently(scored, rule):
        count = len(scored.rollouts)
        hidden = settings.no_progress
        with count_progress("reading answers", count, "rollouts", hidden=hidden) as advance_to:
            readings = read_answers(scored, rule, progress=advance_to)
    report = diagnose(scored, settings.thresholds, readings)
    if output is not None:
        types = {"diagnosis": "string", "diagnosis_reason": "string"}
        with open_writer(output, types) as out:
            for (_, row), found in zip(scored.rows(), report.verdicts, strict=True):
                diagnosed = {"diagnosis": found.diagnosis.value, "diagnosis_reason": found.reason}
                out.write(row | diagnosed)
    if as_json:
        print(json.dumps(report.to_json() | {"examples": _examples_json(scored, report, examples)}))
        return
    console = make_console(settings.color)
    notes = diagnosis_notes(scored, report, rule)
    print_result(console, [diagnosis_table(report)], notes)
    _show_examples(console, scored, report, examples)
    print_result(console, (), written=(output,))


def _examples_json(
    scored: ScoredSet, report: DiagnosisReport, count: int
) -> dict[str, list[dict[str, object]]]:
    return {
        diagnosis.value: [
            {
                "rollout_id": rollout.rollout_id,
                "problem_id": rollout.problem_id,
                "model": rollout.model,
                "reason": report.verdicts[at].reason,
            }
            for at in report.examples(diagnosis, count)
            for rollout in (scored.rollouts[at],)
        ]
        for diagnosis in Diagnosis
    }


def _show_examples(
    console: Console, scored: ScoredSet, report: DiagnosisReport, count: int
) -> None:
    """Show rollouts of each class with their hits marked, as ``consensuspr explain`` does."""
    chosen = [(one, at) for one in Diagnosis for at in report.examples(one, count)]
    wanted = {at for _, at in chosen}
    rows = enumerate(scored.rows()) if wanted else ()
    responses = {at: row["response"] for at, (_, row) in rows if at in wanted}
    for diagnosis, at in chosen:
        rollout = scored.rollouts[at]
        console.print()
        console.print(_title(diagnosis, rollout, report.verdicts[at].reason), soft_wrap=True)
        _show(console, scored, rollout, responses[at])


def _title(diagnosis: Diagnosis, rollout: ScoredRollout, reason: str) -> Text:
    title = Text()
    style = _STYLE.get(diagnosis, "yellow")
    title.append(diagnosis.words.upper(), style=f"bold {style}")
    title.append(f"  {one_line(rollout.rollout_id)}, problem {one_line(rollout.problem_id)}")
    if rollout.model:
        title.append(f", {one_line(rollout.model)}")
    title.append(f": {one_line(reason, 300)}")
    return title


def _show(console: Console, scored: ScoredSet, rollout: ScoredRollout, response: str) -> None:
    spans = rollout.spans or ()
    marks = [Mark(*span, number) for number, span in enumerate(spans, 1) if span is not None]
    console.print(Marker.of(console).mark(response, marks), soft_wrap=True)
    facts = scored.facts(rollout)
    if facts is None or not rollout.matched:
        return
    for number, (label, hit, final) in enumerate(
        zip(facts.labels, rollout.matched, facts.is_final, strict=True), start=1
    ):
        state = "hit" if hit else "not found"
        note = " (final answer)" if final else ""
        console.print(
            Text(f"  node {number} {state}: {one_line(label)}{note}", style="dim"), soft_wrap=True
        )
    if rollout.answer is not None:
        answer = f"  answer {one_line(rollout.answer)!r}, ground truth {facts.ground_truth!r:.80}"
        console.print(Text(answer, style="dim"), soft_wrap=True)
