"""``consensusbench diagnose``: which rollouts an outcome reward misjudges, and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensusbench.cli.evaluate import DatasetPath, RolloutsPaths, TokenizerName
from consensusbench.evaluation.scored import ScoredSet, count_rollouts, dataset_warning, score_files
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.quality.diagnose import (
    DEFAULT_THRESHOLDS,
    Diagnosis,
    DiagnosisReport,
    Thresholds,
    diagnose,
    read_answers,
    rows_of,
    scored_count,
    share,
)
from consensuspr.cli.explain import Marker
from consensuspr.cli.options import Address, Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, count_progress, make_console, one_line
from consensuspr.data import open_writer
from consensuspr.scoring.marks import Mark
from consensuspr.scoring.types import AnswerRule

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

_HEADINGS = {
    Diagnosis.SOUND: "Sound",
    Diagnosis.DIRECT_ANSWER: "Direct answer",
    Diagnosis.REDUNDANT_THINKING: "Redundant",
    Diagnosis.ALMOST_CORRECT: "Almost correct",
    Diagnosis.FORMAT_ERROR: "Format error",
    Diagnosis.WRONG: "Wrong",
    Diagnosis.UNSCORED: "Unscored",
}
_STYLE = {
    Diagnosis.SOUND: "green",
    Diagnosis.WRONG: "red",
    Diagnosis.UNSCORED: "dim",
}


def diagnose_rollouts(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    answer_rule: Annotated[
        AnswerRule | None,
        typer.Option(
            show_default="the one the scores were made with",
            help="Rule that the rollouts were asked to follow; auto sees right answers anywhere.",
        ),
    ] = None,
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
    almost_ncr: Annotated[
        float, typer.Option(help="NCR from which a wrong rollout is almost correct.")
    ] = DEFAULT_THRESHOLDS.almost_ncr,
    almost_hits: Annotated[
        int, typer.Option(help="Nodes that it has to hit for that.")
    ] = DEFAULT_THRESHOLDS.almost_hits,
    direct_ncr: Annotated[
        float, typer.Option(help="NCR up to which a right rollout may be a direct answer.")
    ] = DEFAULT_THRESHOLDS.direct_ncr,
    direct_chars: Annotated[
        int, typer.Option(help="Characters up to which it is one.")
    ] = DEFAULT_THRESHOLDS.direct_chars,
    direct_chars_per_node: Annotated[
        int, typer.Option(help="Or characters for each node of its problem.")
    ] = DEFAULT_THRESHOLDS.direct_chars_per_node,
    redundant_per_node: Annotated[
        float, typer.Option(help="Times the usual length per node from which it is redundant.")
    ] = DEFAULT_THRESHOLDS.redundant_per_node,
    redundant_length: Annotated[
        float, typer.Option(help="Times the usual length that it has to have for that.")
    ] = DEFAULT_THRESHOLDS.redundant_length,
    redundant_tail: Annotated[
        float,
        typer.Option(help="Times the usual length after the final node that is redundant too."),
    ] = DEFAULT_THRESHOLDS.redundant_tail,
    tokenizer: TokenizerName = None,
    address: Address = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Sort rollouts into what an outcome reward cannot tell apart, by model and data source.

    ```text
    consensusbench diagnose rollouts.jsonl --dataset problems.jsonl --answer-rule dapo
    consensusbench diagnose rollouts.jsonl --dataset problems.jsonl --examples 2
    ```

    Right: sound, a direct answer without a path, or redundant thinking. Wrong: almost correct,
    a format error (right, but not as the answer rule wants it), or wrong. Format errors show only
    under a rule that is stricter than auto.
    """
    thresholds = Thresholds(
        almost_ncr,
        almost_hits,
        direct_ncr,
        direct_chars,
        direct_chars_per_node,
        redundant_per_node,
        redundant_length,
        redundant_tail,
    )
    check_row_outputs((output,))
    check_outputs((output,), (*rollouts, dataset))
    total = count_rollouts(rollouts) if on_error is OnErrorChoice.STOP else None
    with count_progress("scoring", total, "rollouts", hidden=no_progress) as advance_to:
        scored = score_files(
            rollouts,
            dataset,
            address=address,
            spans=True,
            tokenizer=tokenizer,
            on_error=on_error.value,
            progress=advance_to,
        )
    if (warning := dataset_warning(scored, dataset)) is not None:
        typer.echo(f"warning: {warning}", err=True)
    readings = None
    if answer_rule is not None or not _read_leniently(scored):
        count = len(scored.rollouts)
        with count_progress("reading answers", count, "rollouts", hidden=no_progress) as advance_to:
            readings = read_answers(scored, answer_rule, progress=advance_to)
    report = diagnose(scored, thresholds, readings)
    if output is not None:
        _write(scored, report, output)
    if as_json:
        print(json.dumps(report.to_json() | {"examples": _examples_json(scored, report, examples)}))
        return
    console = make_console(color)
    console.print(_table(report))
    for line in _notes(scored, report, answer_rule):
        console.print(line, markup=False, soft_wrap=True)
    _show_examples(console, scored, report, examples)
    if output is not None:
        console.print(f"written: {output}", markup=False, soft_wrap=True)


def _read_leniently(scored: ScoredSet) -> bool:
    """Say whether the scores were all made by rule auto, so that a second reading adds nothing."""
    identity = scored.identity
    return (
        not scored.num_stored and identity is not None and identity.answer_rule is AnswerRule.AUTO
    )


def _write(scored: ScoredSet, report: DiagnosisReport, output: Path) -> None:
    types = {"diagnosis": "string", "diagnosis_reason": "string"}
    with open_writer(output, types) as out:
        for row, verdict in zip(rows_of(scored), report.verdicts, strict=True):
            out.write(
                row | {"diagnosis": verdict.diagnosis.value, "diagnosis_reason": verdict.reason}
            )


def _table(report: DiagnosisReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Model")
    table.add_column("Data source")
    table.add_column("Rollouts", justify="right")
    for heading in _HEADINGS.values():
        table.add_column(heading, justify="right")
    for (model, source), counts in report.groups.items():
        table.add_row(
            Text(one_line(model or "(none)")), Text(one_line(source or "(none)")), *_cells(counts)
        )
    if len(report.groups) > 1:
        table.add_section()
        table.add_row("all", "", *_cells(report.total), style="bold")
    return table


def _cells(counts: Counter[Diagnosis]) -> list[str]:
    cells = [f"{counts.total():,}"]
    for diagnosis in _HEADINGS:
        part = share(counts, diagnosis)
        percent = "" if part is None else f" ({100 * part:.1f} %)"
        cells.append(f"{counts[diagnosis]:,}{percent}" if counts[diagnosis] else "0")
    return cells


def _notes(scored: ScoredSet, report: DiagnosisReport, answer_rule: AnswerRule | None) -> list[str]:
    notes = [
        f"shares are of the {scored_count(report.total):,} scored rollouts; of unscored ones, of "
        "all"
    ]
    if answer_rule is AnswerRule.AUTO or (answer_rule is None and _read_leniently(scored)):
        notes.append(
            "answers were read by rule auto, which takes them anywhere: for format errors name the "
            "rule that rollouts were asked to follow, such as --answer-rule dapo"
        )
    for status, message in scored.messages.items():
        notes.append(f"first {status}: {one_line(message, 200)}")
    return notes


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
    chosen = {diagnosis: report.examples(diagnosis, count) for diagnosis in _HEADINGS}
    responses = scored.responses(scored.rollouts[at] for places in chosen.values() for at in places)
    for diagnosis, places in chosen.items():
        for at in places:
            rollout = scored.rollouts[at]
            console.print()
            console.print(_title(diagnosis, rollout, report.verdicts[at].reason), soft_wrap=True)
            _show(console, scored, rollout, responses[rollout.file, rollout.row])


def _title(diagnosis: Diagnosis, rollout: ScoredRollout, reason: str) -> Text:
    title = Text()
    style = _STYLE.get(diagnosis, "yellow")
    title.append(_HEADINGS[diagnosis].upper(), style=f"bold {style}")
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
