"""``consensusbench stats``: statistics of datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from consensusbench import check_outputs
from consensusbench.cli.options import file_argument, file_option
from consensusbench.quality.stats import (
    composition_table,
    distribution_table,
    read_stats,
    stats_notes,
)
from consensusbench.tables import print_result, write_latex
from consensuspr.cli.options import Color, Json, NoProgress, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, count_progress, make_console


def stats(
    datasets: Annotated[
        list[Path], file_argument("DATASET...", "Datasets: JSONL, JSONL.gz or Parquet.")
    ],
    latex: Annotated[
        Path | None, file_option("File for the first table as LaTeX (booktabs).")
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Count the problems and nodes of datasets.

    ```text
    consensusbench stats dataset.jsonl
    consensusbench stats test.jsonl train.jsonl --latex composition.tex
    ```

    The first table is the composition table of the paper. Its problems are those with nodes.
    """
    check_outputs((latex,), datasets)
    with count_progress("counting", None, "problems", hidden=no_progress) as advance_to:
        counted = read_stats(datasets, on_error.value, advance_to)
    table = composition_table(counted)
    if latex is not None:
        write_latex([table], latex)
    if as_json:
        print(json.dumps(counted.to_json()))
    else:
        tables = [table, distribution_table(counted.overall)]
        print_result(make_console(color), tables, stats_notes(counted), (latex,))
