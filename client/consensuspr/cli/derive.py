"""``consensuspr derive``: store equal forms of node expressions in a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.options import Json, NoProgress, OnErrorChoice, OnErrorOption, flag
from consensuspr.console import count_of, count_progress, load_core, make_console


def derive(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="Dataset: JSONL, JSONL.gz or Parquet.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File to write: .jsonl, .jsonl.gz, .parquet, or .index, which loads at once. It"
            " may be DATASET itself, except for .index.",
        ),
    ],
    again: Annotated[bool, flag("--again", "Replace equal forms that the dataset has.")] = False,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Store equal forms of the node expressions in a dataset.

    ```text
    consensuspr derive dataset.jsonl --output derived.jsonl
    consensuspr derive dataset.jsonl --output dataset.index
    ```

    Equal forms (`b+a=c` for `a+b=c`, a fraction for a decimal) find more of the nodes that a
    response reached. The server derives them at every load if the dataset does not store them.

    A file `*.index` is ready for scoring: `serve` and `score` load it at once, however large it
    is. It works with this release only and has no problem texts, so keep the dataset.
    """
    load_core()
    from consensuspr.scoring.dataset_index import derive_dataset

    with count_progress("deriving", None, "problems", hidden=no_progress) as advance_to:
        read, derived = derive_dataset(
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
