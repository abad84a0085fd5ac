"""``consensusbench report``: one HTML page about what was evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli.evaluate import (
    Confidence,
    DatasetPath,
    RolloutsPaths,
    Seed,
    TokenizerName,
    parse_ks,
)
from consensusbench.outputs import check_outputs
from consensusbench.require import require
from consensuspr.cli.options import Address, Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, count_progress, make_console
from consensuspr.scoring.types import AnswerRule


def report(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    output: Annotated[
        Path, typer.Option(metavar="FILE", show_default=False, help="The page, for example r.html.")
    ],
    title: Annotated[
        str, typer.Option(metavar="TEXT", show_default="the dataset's name", help="Its heading.")
    ] = "",
    max_rollouts: Annotated[
        int, typer.Option(min=0, metavar="N", help="Rollouts whose text stands in the page.")
    ] = 200,
    max_chars: Annotated[
        int, typer.Option(min=1, metavar="N", help="Characters of one response in the page.")
    ] = 20_000,
    k: Annotated[
        str, typer.Option("--k", metavar="K,...", help="The k of pass@k, separated by commas.")
    ] = "1",
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    answer_rule: Annotated[
        AnswerRule | None,
        typer.Option(
            show_default="the one the scores were made with",
            help="Rule that the rollouts were asked to follow, for format errors; "
            "auto sees right answers anywhere.",
        ),
    ] = None,
    no_probes: Annotated[
        bool, typer.Option("--no-probes", help="Leave out the attacks on the dataset's nodes.")
    ] = False,
    address: Address = None,
    tokenizer: TokenizerName = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Write one HTML page about rollouts: figures, charts, rewards, and the rollouts themselves.

    ```text
    consensusbench report rollouts.jsonl --dataset problems.jsonl --output report.html
    consensusbench report a.jsonl b.jsonl --dataset problems.jsonl --output report.html --k 1,8
    ```

    The page loads nothing from anywhere and can be mailed or archived. Texts of models are shown
    and never interpreted. It opens with whatever makes its figures mean less: rollouts without a
    score, answers left undecided, rows passed over.
    """
    require("jinja2", "writing a report")
    from consensusbench.evaluation.metrics import DIMENSIONS, EvaluationSettings, check
    from consensusbench.evaluation.scored import count_rollouts, dataset_warning, score_files
    from consensusbench.report.page import ReportSettings, write_report

    settings = ReportSettings(
        title=title,
        max_rollouts=max_rollouts,
        max_chars=max_chars,
        probes=not no_probes,
        answer_rule=answer_rule,
        evaluation=EvaluationSettings(parse_ks(k), confidence, seed),
    )
    check(DIMENSIONS, settings.evaluation)
    check_outputs((output,), (*rollouts, dataset))
    # A bad row at the end of a long file is found before anything is scored.
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
    problems = len(scored.problems)
    with count_progress(
        "probing", problems, "problems", hidden=no_progress or no_probes
    ) as advance_to:
        written = write_report(scored, dataset, output, settings, progress=advance_to)
    if as_json:
        print(json.dumps(written.to_json()))
        return
    console = make_console(color)
    console.print(
        f"{written.path}: {written.size_bytes / 1e6:.1f} MB, {written.rollouts:,} rollouts, "
        f"{written.shown:,} of them with their text",
        markup=False,
        soft_wrap=True,
    )
    for warning in written.warnings:
        console.print(warning, style="yellow", markup=False, soft_wrap=True)
