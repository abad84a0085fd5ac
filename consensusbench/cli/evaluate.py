"""``consensusbench evaluate``: the paper's metrics of some rollouts, with intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from consensusbench.evaluation.metrics import DIMENSIONS, EvaluationSettings, check, evaluate
from consensusbench.evaluation.scored import ScoredSet, count_rollouts, dataset_warning, score_files
from consensusbench.evaluation.tables import (
    evaluation_notes,
    evaluation_tables,
    write_csv,
    write_latex,
)
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.tables import print_result
from consensuspr.cli.options import Address, Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, count_progress, make_console
from consensuspr.errors import InputError

RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROLLOUTS...",
        show_default=False,
        help="Rollouts: JSONL, JSONL.gz or Parquet; scored ones are not scored again.",
    ),
]
DatasetPath: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--dataset",
        metavar="PATH",
        show_default=False,
        help="Dataset with nodes and ground truths.",
    ),
]
TokenizerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="Counts tokens where rollouts have no num_tokens: a tokenizer.json, or a model's "
        "name on the hub.",
    ),
]
Confidence: TypeAlias = Annotated[
    float, typer.Option(metavar="SHARE", help="Level of the intervals, between 0 and 1.")
]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Of resampling.")]


def evaluate_rollouts(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    k: Annotated[
        str, typer.Option("--k", metavar="K,...", help="The k of pass@k, separated by commas.")
    ] = "1",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="DIMENSION,...",
            help="Groups: model, source, difficulty. With model, the others are given for each "
            "model; 'none' for no groups.",
        ),
    ] = ",".join(DIMENSIONS),
    tokenizer: TokenizerName = None,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    address: Address = None,
    scored_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Write the rollouts with their scores, .jsonl, .jsonl.gz or .parquet.",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write all figures as CSV."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write the paper's tables as LaTeX (booktabs)."
        ),
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Evaluate rollouts: Acc, pass@k, NCR, TPN and lengths, by model, source and difficulty.

    ```text
    consensusbench evaluate rollouts.jsonl --dataset problems.jsonl --k 1,16
    consensusbench evaluate a.jsonl b.jsonl --dataset problems.jsonl --latex tables.tex
    ```

    Every figure has a confidence interval that is clustered by problem. NCR, and how well it tells
    right from wrong rollouts, are also given without the nodes that state the final answer.
    Answers that could not be decided count as wrong and are counted; rollouts that could not be
    scored are in no mean.
    """
    settings = EvaluationSettings(parse_ks(k), confidence, seed)
    dimensions = parse_dimensions(by)
    check(dimensions, settings)
    check_row_outputs((scored_output,))
    check_outputs((csv, latex, scored_output), (*rollouts, dataset))
    scored = score_with_progress(
        rollouts,
        dataset,
        address=address,
        tokenizer=tokenizer,
        on_error=on_error,
        scored_output=scored_output,
        no_progress=no_progress,
    )
    evaluation = evaluate(scored, dataset=str(dataset), by=dimensions, settings=settings)
    if csv is not None:
        write_csv(evaluation, csv)
    if latex is not None:
        write_latex(evaluation, latex)
    overall = evaluation.overall
    if not overall.acc.count and not overall.nodes.ncr.count:
        typer.echo(
            f"warning: none of the {overall.num_rollouts:,} rollouts could be scored; their "
            "statuses say why",
            err=True,
        )
    if as_json:
        print(json.dumps(evaluation.to_json()))
    else:
        tables, notes = evaluation_tables(evaluation), evaluation_notes(evaluation)
        print_result(make_console(color), tables, notes, (csv, latex, scored_output))


def score_with_progress(
    rollouts: list[Path],
    dataset: Path,
    *,
    address: str | None,
    tokenizer: str | None,
    on_error: OnErrorChoice,
    no_progress: bool,
    spans: bool = False,
    scored_output: Path | None = None,
) -> ScoredSet:
    """Score files of rollouts while a bar shows how far it is; warn of another dataset's."""
    # A bad row at the end of a long file is found before anything is scored.
    total = count_rollouts(rollouts) if on_error is OnErrorChoice.STOP else None
    with count_progress("scoring", total, "rollouts", hidden=no_progress) as advance_to:
        scored = score_files(
            rollouts,
            dataset,
            address=address,
            spans=spans,
            tokenizer=tokenizer,
            on_error=on_error.value,
            scored_output=scored_output,
            progress=advance_to,
        )
    if (warning := dataset_warning(scored, dataset)) is not None:
        typer.echo(f"warning: {warning}", err=True)
    return scored


def parse_ks(text: str) -> tuple[int, ...]:
    """Return the k of pass@k, ascending.

    Raises:
        InputError: one of them is no whole number of 1 or more.
    """
    ks = set()
    for part in text.split(","):
        if not re.fullmatch(r"\s*0*[1-9][0-9]{0,5}\s*", part) or int(part) > 100_000:
            raise InputError(
                f"--k takes whole numbers of 1 to 100000 and commas, got {text[:60]!r}"
            )
        ks.add(int(part))
    return tuple(sorted(ks))


def parse_dimensions(text: str) -> tuple[str, ...]:
    """Return the dimensions to group by; none for ``none``."""
    if text.strip() == "none":
        return ()
    return tuple(part.strip() for part in text.split(","))
