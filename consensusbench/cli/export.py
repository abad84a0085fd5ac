"""``consensusbench export``: a dataset as a trainer's files, or as a folder for the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli.options import DatasetArgument, file_option
from consensusbench.export.files import Export, ExportReport, ExportSplit
from consensusbench.export.hub import CardText, export_hub
from consensusbench.export.trainers import export_trl, export_verl
from consensusbench.tables import print_result
from consensuspr.cli.options import Color, Json, NoProgress, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, count_of, count_progress, make_console


class ExportFormat(StrEnum):
    """Whose files to write."""

    VERL = "verl"
    TRL = "trl"
    HF = "hf"


def export(
    dataset: DatasetArgument,
    format: Annotated[
        ExportFormat,
        typer.Option(
            show_default=False, help="Training files of a trainer, or a folder for the hub."
        ),
    ],
    output: Annotated[Path, file_option("Folder for the files.", "DIR")],
    val_dataset: Annotated[
        list[Path] | None,
        file_option("Dataset all of whose problems are validation; repeat it for several."),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            show_default="0.05, or 0 with --val-dataset or hf",
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
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="hf: name of the dataset on its card.")
    ] = "ConsensusBench",
    license: Annotated[str | None, file_option("hf: its licence, such as cc-by-4.0.", "ID")] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", show_default="en", help="hf: language; repeat for several."),
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Write a dataset as the training files of a trainer, or as a folder for the hub.

    ```text
    consensusbench export dataset.jsonl --format verl --output data/
    consensusbench export train.jsonl --val-dataset test.jsonl --format trl --output data/
    consensusbench export dataset.jsonl --format hf --license cc-by-4.0 --output folder/
    ```

    For a trainer (`verl`, `trl`) each problem is put into the paper's prompt. Its `split` decides
    its file (`train`, or `test` for validation); of the problems without one, a share that
    depends on their ids and the seed is validation. `hf` writes the dataset itself, all keys kept,
    with a dataset card.

    Repeated texts are written once. Texts with two ground truths are left out, and so are training
    problems that are also in validation.
    """
    chosen = Export(
        dataset,
        output,
        tuple(val_dataset or ()),
        val_fraction,
        seed,
        inline_nodes,
        without_nodes,
        on_error.value,
    )
    card = CardText(title, license, tuple(language or ("en",)))
    exporters: dict[ExportFormat, Callable[[Export, Callable[[int], None]], ExportReport]] = {
        ExportFormat.VERL: export_verl,
        ExportFormat.TRL: export_trl,
        ExportFormat.HF: lambda export, progress: export_hub(export, card, progress),
    }
    with count_progress("exporting", None, "problems", hidden=no_progress) as advance_to:
        report = exporters[format](chosen, advance_to)
    if report.without_split:
        typer.echo(
            f"warning: {report.without_split:,} problems have no split and become training "
            "problems, except for --val-fraction; set --val-dataset to use a test set",
            err=True,
        )
    if as_json:
        print(json.dumps({"format": format.value, **report.to_json()}))
        return
    notes = []
    for split, path in report.files.items():
        sources = ", ".join(f"{name} {rows:,}" for name, rows in report.written[split].items())
        notes.append(f"{path}: {count_of(report.rows(split), 'row')} ({sources})")
    if ExportSplit.VALIDATION not in report.files and format is ExportFormat.VERL:
        notes.append("no validation file: verl does not start without data.val_files")
    if (left_out := report.left_out_sentence()) is not None:
        notes.append(left_out)
    print_result(make_console(color), (), notes)
