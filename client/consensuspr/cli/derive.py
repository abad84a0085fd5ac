"""``consensuspr derive``: store equal forms of node expressions in a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.options import Json, OnErrorChoice, OnErrorOption
from consensuspr.console import NoProgress, count_of, count_progress, load_core, make_console


def derive(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="Dataset: JSONL, JSONL.gz or Parquet.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where to write; the suffix decides the format, and .index prepares it for "
            "scoring. May be DATASET itself unless it is prepared.",
        ),
    ],
    again: Annotated[
        bool, typer.Option("--again", help="Derive again if forms are stored already.")
    ] = False,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Write a dataset again with the equal forms of its node expressions filled in.

    Equal forms (`b+a=c` for `a+b=c`, fractions for decimals, …) raise the share of reached nodes
    that are found. A dataset without them gets them each time it is loaded; with them stored, a
    server need not make them and they can be read and edited.

    An output named `*.index` is the dataset ready for scoring: what `serve` and `score` take as
    DATASET and map into memory at once, however large it is. It has no texts of problems and is
    for this version of the normal form alone, so keep the dataset that it was made of.

    ```text
    consensuspr derive dataset.jsonl --output problems.derived.jsonl
    consensuspr derive dataset.jsonl --output dataset.index
    consensuspr serve --dataset dataset.index
    ```
    """
    load_core()
    from consensuspr.data.readers import PREPARED_SUFFIX
    from consensuspr.scoring.dataset_index import prepare_dataset
    from consensuspr.scoring.derive import derive_dataset

    write = prepare_dataset if output.suffix.lower() == PREPARED_SUFFIX else derive_dataset
    with count_progress("deriving", None, "problems", hidden=no_progress) as advance_to:
        read, derived = write(
            dataset, output, again=again, on_error=on_error.value, progress=advance_to
        )
    if as_json:
        result = {
            "problems": read.rows,
            "skipped": read.skipped,
            "nodes": derived.nodes,
            "expressions": derived.expressions,
            "forms": derived.forms,
            "seconds": round(derived.seconds, 3),
            "output": str(output),
        }
        print(json.dumps(result))
        return
    make_console().print(
        f"{count_of(read.rows, 'problem')} written to {output}: "
        f"{count_of(derived.forms, 'form')} for {count_of(derived.nodes, 'node')} in "
        f"{derived.seconds:.1f} s"
        + (f", {count_of(read.skipped, 'bad row')} skipped" if read.skipped else ""),
        markup=False,
    )
