"""``consensusbench agreement``: a dataset's nodes against those that people annotated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli.options import CONFIDENCE, DatasetArgument, file_argument
from consensusbench.evaluation.tables import agreement_notes, agreement_table
from consensusbench.tables import print_result
from consensuspr.cli.options import Color, Json
from consensuspr.console import ColorMode, make_console


def agreement(
    dataset: DatasetArgument,
    human: Annotated[
        Path, file_argument("HUMAN_DATASET", "Dataset of the same problems, with nodes by people.")
    ],
    confidence: Annotated[float, typer.Option(metavar="SHARE", help=CONFIDENCE)] = 0.95,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Compare the nodes of a dataset with nodes that people annotated.

    ```text
    consensusbench agreement dataset.jsonl human.jsonl
    ```

    Pairs two nodes if one matches an expression of the other; each node is in one pair at most.
    *Consistency* is the number of pairs by the number of all distinct nodes. *Recall* is the number
    of pairs by the number of human nodes.
    """
    from consensusbench.evaluation.agreement import agreement_of_files

    found = agreement_of_files(dataset, human, confidence)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        notes = agreement_notes(found, confidence)
        print_result(make_console(color), [agreement_table(found)], notes)
