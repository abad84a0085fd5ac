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
from consensuspr.cli.options import (
    Color,
    Json,
    NoProgress,
    OnErrorChoice,
    OnErrorOption,
    flag,
    more_option,
)
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
            show_default=False, help="Files for verl or TRL, or a folder for the Hugging Face hub."
        ),
    ],
    output: Annotated[Path, file_option("Folder to write to.", "DIR")],
    val_dataset: Annotated[
        list[Path] | None,
        file_option("Dataset of validation problems; repeat it for several."),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            show_default="0.05, or 0 with --val-dataset or hf",
            help="Share of problems for validation, among those without a split.",
        ),
    ] = None,
    seed: Annotated[int, more_option("N", "Seed that chooses these problems.")] = 0,
    inline_nodes: Annotated[
        bool,
        flag("--inline-nodes", "Put the nodes into the rows, so that the server needs no dataset."),
    ] = False,
    without_nodes: Annotated[
        bool,
        flag("--without-nodes", "Also export problems without nodes; most rewards need nodes."),
    ] = False,
    title: Annotated[
        str, more_option("TEXT", "hf: name of the dataset on its card.")
    ] = "ConsensusBench",
    license: Annotated[
        str | None, more_option("ID", "hf: licence of the dataset, such as cc-by-4.0.")
    ] = None,
    language: Annotated[
        list[str] | None,
        more_option("CODE", "hf: language; repeat it for several.", show_default="en"),
    ] = None,
    bibtex: Annotated[
        typer.FileText | None,
        more_option(
            "FILE",
            "hf: BibTeX of the sources, for the card; the paper of the nodes is always there.",
            encoding="utf-8",
            errors="replace",
            show_default=False,
        ),
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Write training files for verl or TRL, or a folder for the hub.

    ```text
    consensusbench export dataset.jsonl --format verl --output data/
    consensusbench export train.jsonl --val-dataset test.jsonl --format trl --output data/
    consensusbench export dataset.jsonl --format hf --license cc-by-4.0 --output folder/
    ```

    For `verl` and `trl`, puts each problem into the paper's prompt. The `split` of a problem
    decides its file: `train`, or `test` for validation. `hf` writes the dataset with all keys, and
    a dataset card.

    Writes repeated texts once. Leaves out texts with two ground truths, and training problems that
    are also validation problems.
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
    citation = bibtex.read().strip() if bibtex else ""
    card = CardText(title, license, tuple(language or ("en",)), citation)
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
