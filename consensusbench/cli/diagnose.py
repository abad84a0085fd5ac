"""``consensusbench diagnose``: which rollouts an outcome reward misjudges, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from consensusbench import check_outputs
from consensusbench.cli.options import (
    SCORING_OPTIONS,
    DatasetPath,
    RolloutsPaths,
    ScoringSettings,
    file_option,
)
from consensusbench.quality.diagnose import (
    Thresholds,
    diagnose,
    diagnosis_notes,
    diagnosis_table,
    example_rows,
    examples_table,
    read_answers,
)
from consensusbench.tables import print_result
from consensuspr.cli.options import Json, MoreAddress, with_settings
from consensuspr.console import count_progress, make_console
from consensuspr.data import open_writer
from consensuspr.scoring.types import AnswerRule


class DiagnoseSettings(ScoringSettings):
    """Settings of ``diagnose``."""

    answer_rule: AnswerRule | None = Field(
        None,
        description="Answer rule that the prompt asked for: auto, dapo, boxed or gsm8k. Default: "
        "the rule of the scores.",
    )
    thresholds: Thresholds = Thresholds()


@with_settings(
    DiagnoseSettings,
    prefix="CONSENSUSBENCH_DIAGNOSE",
    shown={"answer_rule": "NAME"},
    more=SCORING_OPTIONS,
)
def diagnose_rollouts(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    examples: Annotated[
        int, typer.Option(metavar="K", min=0, help="Number of rollouts of each class to list.")
    ] = 0,
    output: Annotated[
        Path | None,
        file_option("File for the rollouts, with columns diagnosis and diagnosis_reason."),
    ] = None,
    settings: DiagnoseSettings,
    address: MoreAddress = None,
    as_json: Json = False,
) -> None:
    """Count the rollouts that an outcome reward misjudges, and why.

    ```text
    consensusbench diagnose rollouts.jsonl --dataset dataset.jsonl --answer-rule dapo
    consensusbench diagnose rollouts.jsonl --dataset dataset.jsonl --examples 2
    ```

    A correct rollout is sound, a direct answer (no reasoning), or redundant (far too long). A wrong
    one is almost correct (most nodes reached), a format error (right answer in another form than
    the rule asks for), or wrong. Only rules stricter than auto find format errors.

    `--list-settings` prints the thresholds, such as `--almost-ncr`.
    """
    check_outputs((output,), (*rollouts, dataset))
    scored = settings.score(rollouts, dataset, address, spans=True)
    rule, count, hidden = settings.answer_rule, len(scored.rollouts), settings.no_progress
    with count_progress("reading answers", count, "rollouts", hidden=hidden) as advance_to:
        readings = read_answers(scored, rule, progress=advance_to)
    report = diagnose(scored, settings.thresholds, readings)
    if output is not None:
        types = {"diagnosis": "string", "diagnosis_reason": "string"}
        with open_writer(output, types) as out:
            for (_, row), found in zip(scored.rows(), report.verdicts, strict=True):
                diagnosed = {"diagnosis": found.diagnosis.value, "diagnosis_reason": found.reason}
                out.write(row | diagnosed)
    chosen = example_rows(scored, report, examples)
    if as_json:
        print(json.dumps(report.to_json() | {"examples": chosen}))
        return
    tables = [diagnosis_table(report)] + ([examples_table(chosen)] if examples else [])
    notes = diagnosis_notes(scored, report, rule)
    print_result(make_console(settings.color), tables, notes, (output,))
