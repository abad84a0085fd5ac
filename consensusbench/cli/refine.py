"""``consensusbench refine``: from candidates to a dataset, the second half of ``build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli import construction_options as options
from consensusbench.cli.construction_report import TerminalProgress, print_report
from consensusbench.construction import refine_candidates
from consensuspr.cli.console import ColorMode
from consensuspr.cli.options import Color, Json, OnErrorChoice
from consensuspr.cli.progress import NoProgress


def refine(
    candidates: options.CandidatesPath,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Dataset: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    audit: options.AuditPath = None,
    min_support: options.MinSupport = 2,
    min_nodes: options.MinNodes = 2,
    max_nodes: options.MaxNodes = 12,
    min_share: options.MinShare = 0.4,
    min_formula_share: options.MinFormulaShare = 0.5,
    min_information: options.MinInformation = 2.0,
    max_finals: options.MaxFinals = 1,
    workers: options.Workers = None,
    on_error: options.OnError = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Choose the nodes of a dataset among candidates.

    ```text
    consensusbench refine candidates.jsonl --max-nodes 8 --output dataset.jsonl
    ```

    Drops what restates the problem, what any solution would hold, and what another node implies,
    and keeps the rest in order. Whatever is left out stands in the audit with its reason. With the
    same thresholds the dataset is that of `consensusbench build`.
    """
    refiner = options.paper_refiner(
        min_support, min_nodes, max_nodes, min_share, min_formula_share, min_information,
        max_finals,
    )  # fmt: skip
    with TerminalProgress(no_progress, reading=False) as progress:
        report = refine_candidates(
            candidates,
            options.dataset_paths(output, audit),
            refiner,
            on_error=on_error.value,
            means=options.means(workers),
            progress=progress,
        )
    print_report(report, as_json, color)
