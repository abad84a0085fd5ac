"""``consensusbench problems``: public problem sets as one file, each problem once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from consensusbench import check_outputs
from consensusbench.cli.options import file_argument, file_option
from consensusbench.problems.dedup import ProblemStatus, SourcesReport, collect_problems
from consensusbench.problems.sources import SOURCES, source_input
from consensusbench.tables import Row, Table, number, print_result, words
from consensuspr.cli.options import Color, Json, NoProgress, OnErrorChoice, OnErrorOption
from consensuspr.console import (
    ColorMode,
    count_of,
    count_progress,
    make_console,
    one_line,
)
from consensuspr.data.writers import dump_json

SHOWN_CASES = 3
SHOWN = (
    ProblemStatus.REPEATED,
    ProblemStatus.CONFLICTING,
    ProblemStatus.LEAKED,
    ProblemStatus.WRITTEN,
)


def problems(
    sources: Annotated[
        list[str],
        file_argument(
            "NAME[@REVISION|=PATH]...",
            f"Problem sets: {', '.join(SOURCES)}. With =PATH, reads that file. Or a dataset, or a"
            " Parquet file of verl.",
        ),
    ],
    output: Annotated[Path, file_option("File of problems: .jsonl, .jsonl.gz or .parquet.")],
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Rows to read of each problem set."),
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Download problem sets and write each problem once.

    ```text
    consensusbench problems gsm8k math-500 aime-2024 aime-2025 dapo-math-17k --output problems.jsonl
    consensusbench problems dapo-math-17k=dapo.parquet math-500=test.jsonl --output problems.jsonl
    consensusbench problems gsm8k@main --limit 100 --output few.jsonl
    consensusbench problems train.parquet test.parquet --output problems.jsonl
    ```

    The output has no nodes; `consensusbench build` makes them. Keeps one of several problems with
    the same text. Leaves out texts with two different answers, and training problems that are also
    in a test set. `--json` lists them. Problems of a Parquet file of verl get the ids by which the
    reward looks them up in training.
    """
    # The hub's library writes its warnings itself; through the root they would come twice.
    logging.getLogger("huggingface_hub").propagate = False
    inputs = [source_input(text, limit) for text in sources]
    check_outputs((output,), [origin.path for origin in inputs])
    with count_progress("reading", None, "problems", hidden=no_progress) as advance_to:
        result = collect_problems(inputs, output, on_error.value, advance_to)
    if as_json:
        print(dump_json({"output": str(output), **result.to_json()}, ensure_ascii=True))
        return
    notes = [*_notes(result), f"{output}: {count_of(result.written, 'problem')}"]
    print_result(make_console(color), [_table(result)], notes)


def _table(report: SourcesReport) -> Table:
    rows: list[Row] = [
        [origin.name, origin.read.rows, *(statuses[status] for status in SHOWN)]
        for origin, statuses in zip(report.inputs, report.statuses, strict=True)
    ]
    totals: list[Row] = [["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])]]
    columns = [words("source"), *map(number, ("read", *SHOWN))]
    return Table("", columns, [rows, totals] if len(rows) > 1 else [rows], bold=1)


def _notes(report: SourcesReport) -> Iterator[str]:
    if report.conflicting_texts:
        examples = [
            f"{one_line(case['ground_truth'], 40)} ({one_line(case['problem_id'])})"
            for case in report.cases
            if case["status"] == ProblemStatus.CONFLICTING
        ]
        yield (
            f"{count_of(report.conflicting_texts, 'text has', 'texts have')} two answers "
            f"(left out), for example {', '.join(examples[:SHOWN_CASES])}"
        )
    for (source, test_source), count in report.leaked.items():
        rows = count_of(count, f"row of {source} is", f"rows of {source} are")
        yield f"{rows} also in {test_source} (left out)"
    if same_id := sum(statuses[ProblemStatus.SAME_ID] for statuses in report.statuses):
        ids = count_of(same_id, "problem has", "problems have")
        yield f"{ids} the id of an earlier problem with another text (left out)"
    if skipped := sum(origin.read.skipped for origin in report.inputs):
        yield f"{count_of(skipped, 'bad row')} skipped"
