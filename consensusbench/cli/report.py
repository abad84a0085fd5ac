"""``consensusbench report``: one HTML page about what was evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensusbench import require
from consensusbench.cli.options import (
    FIGURE_OPTIONS,
    SCORING_OPTIONS,
    DatasetPath,
    FigureSettings,
    RolloutsPaths,
)
from consensusbench.outputs import check_outputs
from consensusbench.report import ReportSettings
from consensuspr.cli.options import Address, Json, with_settings
from consensuspr.console import count_progress, make_console


class PageSettings(ReportSettings, FigureSettings):
    """What stands in the page of ``report``, and how it is made."""


@with_settings(
    PageSettings,
    prefix="CONSENSUSBENCH_REPORT",
    shown={
        "title": "TEXT",
        "max_rollouts": "N",
        "max_chars": "N",
        **FIGURE_OPTIONS,
        "answer_rule": None,
        "no_probes": None,
        **SCORING_OPTIONS,
    },
)
def report(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    output: Annotated[
        Path, typer.Option(metavar="FILE", show_default=False, help="The page, for example r.html.")
    ],
    address: Address = None,
    settings: PageSettings,
    as_json: Json = False,
) -> None:
    """Write one HTML page about rollouts: figures, charts, rewards, and the rollouts themselves.

    ```text
    consensusbench report rollouts.jsonl --dataset dataset.jsonl --output report.html
    consensusbench report a.jsonl b.jsonl --dataset dataset.jsonl --output report.html --k 1,8
    ```

    The page loads nothing from anywhere and can be mailed or archived. Texts of models are shown
    and never interpreted. It opens with whatever makes its figures mean less: rollouts without a
    score, answers left undecided, rows passed over.
    """
    require("jinja2", "writing a report")
    from consensusbench.evaluation.metrics import DIMENSIONS, check
    from consensusbench.report.page import write_report

    figures = settings.evaluation()
    check(DIMENSIONS, figures)
    check_outputs((output,), (*rollouts, dataset))
    scored = settings.score(rollouts, dataset, address, spans=True, plain=True)
    hidden = settings.no_progress or settings.no_probes
    problems = len(scored.problems)
    with count_progress("probing", problems, "problems", hidden=hidden) as advance_to:
        written = write_report(
            scored, dataset, output, settings, figures=figures, progress=advance_to
        )
    if as_json:
        print(json.dumps(written.to_json()))
        return
    console = make_console(settings.color)
    console.print(
        f"{written.path}: {written.size_bytes / 1e6:.1f} MB, {written.rollouts:,} rollouts, "
        f"{written.rollouts_shown:,} of them with their text",
        markup=False,
        soft_wrap=True,
    )
    for warning in written.warnings:
        console.print(warning, style="yellow", markup=False, soft_wrap=True)
