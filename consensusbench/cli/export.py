"""``consensusbench export``: a dataset as the files that a trainer reads."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.export import ExportReport, Side, VerlExport, export_verl
from consensuspr.cli.console import ColorMode, make_console
from consensuspr.cli.options import Color, Json, OnError, OnErrorChoice
from consensuspr.cli.progress import NoProgress, count_progress


class ExportFormat(StrEnum):
    """Whose files to write."""

    VERL = "verl"


def export(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET", show_default=False, help="Dataset: JSONL, JSONL.gz or Parquet."
        ),
    ],
    format: Annotated[
        ExportFormat, typer.Option(show_default=False, help="Whose training files to write.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIR", show_default=False, help="Folder for train.parquet and val.parquet."
        ),
    ],
    val_dataset: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Dataset all of whose problems are validation; repeat it for several.",
        ),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            show_default="0.05, or 0 with --val-dataset",
            help="Share of the problems without a split that is validation, from 0 to 1.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another share.")] = 0,
    inline_nodes: Annotated[
        bool,
        typer.Option(
            "--inline-nodes", help="Put the nodes into the rows: the server needs no dataset."
        ),
    ] = False,
    without_nodes: Annotated[
        bool,
        typer.Option(
            "--without-nodes", help="Export problems without nodes too; most rewards need nodes."
        ),
    ] = False,
    on_error: OnError = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Write a dataset as the training and validation files of a trainer.

    ```text
    consensusbench export problems.jsonl --format verl --output data/
    consensusbench export train.jsonl --val-dataset test.jsonl --format verl --output data/
    ```

    Each problem stands in the paper's prompt. Its `split` says which file it goes to (`train`, or
    `test` for validation); of the problems without one, a share that depends on their ids and the
    seed is validation. A text that comes twice is written once; one that comes with two ground
    truths is left out, and so is a training problem that is in validation too.
    """
    with count_progress("exporting", None, "problems", hidden=no_progress) as advance_to:
        report = export_verl(
            VerlExport(
                dataset,
                output,
                tuple(val_dataset or ()),
                val_fraction,
                seed,
                inline_nodes,
                without_nodes,
                on_error.value,
            ),
            advance_to,
        )
    if as_json:
        print(json.dumps({"format": format.value, **report.to_json()}))
    else:
        _print(report, color)


def _print(report: ExportReport, color: ColorMode) -> None:
    console = make_console(color)
    for side, path in report.files.items():
        sources = ", ".join(f"{name} {rows:,}" for name, rows in report.written[side].items())
        console.print(
            f"{path}: {report.rows(side):,} rows ({sources})", markup=False, soft_wrap=True
        )
    if Side.VALIDATION not in report.files:
        console.print("no validation file; verl does not start without data.val_files")
    left_out = report.left_out_sentence()
    if left_out is not None:
        console.print(left_out, style="yellow", markup=False, soft_wrap=True)
