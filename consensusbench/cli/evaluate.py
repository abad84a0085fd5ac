"""``consensusbench evaluate``: the paper's metrics of rollouts, with intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from consensusbench import check_outputs
from consensusbench.cli.options import (
    DEFAULT_BY,
    FIGURE_OPTIONS,
    SCORING_OPTIONS,
    DatasetPath,
    FigureSettings,
    RolloutsPaths,
    file_option,
    parse_dimensions,
)
from consensusbench.evaluation.metrics import check, evaluate
from consensusbench.evaluation.tables import evaluation_notes, evaluation_tables
from consensusbench.tables import print_result, write_latex
from consensuspr.cli.options import Json, MoreAddress, with_settings
from consensuspr.console import count_of, make_console


class EvaluateSettings(FigureSettings):
    """Settings of ``evaluate``."""

    by: str = Field(
        DEFAULT_BY,
        description="Groups of the tables: model, source and difficulty, or none.",
    )


@with_settings(
    EvaluateSettings,
    prefix="CONSENSUSBENCH_EVALUATE",
    shown={"by": "GROUP,...", **FIGURE_OPTIONS},
    more=SCORING_OPTIONS,
)
def evaluate_rollouts(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    scored_output: Annotated[
        Path | None, file_option("File for the rollouts with their scores: JSONL or Parquet.")
    ] = None,
    latex: Annotated[Path | None, file_option("File for the tables as LaTeX (booktabs).")] = None,
    settings: EvaluateSettings,
    address: MoreAddress = None,
    as_json: Json = False,
) -> None:
    """Evaluate models on rollouts: Acc, pass@k, NCR, TPN and lengths.

    ```text
    consensusbench evaluate rollouts.jsonl --dataset dataset.jsonl --k 1,16
    consensusbench evaluate a.jsonl b.jsonl --dataset dataset.jsonl --latex tables.tex
    ```

    Every figure has a confidence interval, clustered by problem. *Without final nodes* leaves out
    the nodes that state the final answer. *Own reasoning* leaves out rollouts that run a program
    or refer to a given solution.

    An undecided answer counts as wrong. No mean includes rollouts that could not be scored. See
    the page "Evaluation in depth".
    """
    figures, dimensions = settings.evaluation(), parse_dimensions(settings.by)
    check(dimensions, figures)
    check_outputs((latex, scored_output), (*rollouts, dataset))
    scored = settings.score(rollouts, dataset, address, plain=True, scored_output=scored_output)
    evaluation = evaluate(scored, dataset=str(dataset), by=dimensions, settings=figures)
    tables, overall = evaluation_tables(evaluation), evaluation.overall
    if latex is not None:
        write_latex(tables, latex)
    if not overall.figures["acc"].count and not overall.figures["ncr"].count:
        rows = count_of(overall.num_rollouts, "rollout")
        typer.echo(f"warning: none of {rows} could be scored; see the statuses", err=True)
    if as_json:
        print(json.dumps(evaluation.to_json()))
    else:
        notes = evaluation_notes(evaluation)
        print_result(make_console(settings.color), tables, notes, (latex, scored_output))
