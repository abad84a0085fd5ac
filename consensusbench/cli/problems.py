"""``consensusbench problems``: public problem sets as one file, each problem once."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.problems import (
    SOURCES,
    HubChoice,
    ProblemCollection,
    ProblemStatus,
    SourceInput,
    SourcesReport,
    collect_problems,
    source_input,
)
from consensusbench.tables import Row, Table, number, words
from consensuspr.cli.options import Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import (
    ColorMode,
    NoProgress,
    count_of,
    count_progress,
    make_console,
    one_line,
)
from consensuspr.data import atomic_file
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError

SHOWN_CASES = 3
SHOWN = (
    ProblemStatus.REPEATED,
    ProblemStatus.CONFLICTING,
    ProblemStatus.LEAKED,
    ProblemStatus.WRITTEN,
)


def _per_source(help: str, value: str) -> Any:
    """Return an option that is given for one source at a time."""
    return typer.Option(metavar=f"NAME={value}", show_default=False, help=help)


def problems(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=PATH]...",
            show_default=False,
            help=f"Problem sets: {', '.join(SOURCES)}; with PATH, from that file.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE", show_default=False, help="JSONL, JSONL.gz or Parquet, by suffix."
        ),
    ],
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="JSON with every conflict and every leak."
        ),
    ] = None,
    revision: Annotated[
        list[str] | None, _per_source("Commit, tag or branch on the hub, else the latest.", "REV")
    ] = None,
    hub_id: Annotated[
        list[str] | None,
        _per_source("Another hub dataset of the same columns, or a local folder.", "ID"),
    ] = None,
    config: Annotated[
        list[str] | None, _per_source("Another configuration on the hub.", "CONFIG")
    ] = None,
    split: Annotated[
        list[str] | None,
        _per_source("Another split on the hub; what the set is used for stays.", "SPLIT"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Read so many rows of each source."),
    ] = None,
    keep_leaked: Annotated[
        bool,
        typer.Option("--keep-leaked", help="Keep training problems that a test source has too."),
    ] = False,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Read problem sets from the hub or from files and write each problem once.

    ```text
    consensusbench problems gsm8k math-500 aime-2024 aime-2025 dapo-math-17k --output problems.jsonl
    consensusbench problems dapo-math-17k=dapo.parquet math-500=test.jsonl --output problems.jsonl
    consensusbench problems gsm8k --revision gsm8k=main --limit 100 --output few.jsonl
    ```

    The output has no nodes yet: `consensusbench build` makes them. Of a text that comes again,
    typeset differently or not, one problem is kept. A text with two different answers is left out,
    and so is a training problem that one of the test sources has too.
    """
    # The hub's library writes its warnings itself; through the root they would come twice.
    logging.getLogger("huggingface_hub").propagate = False
    chosen = _choices(sources, revision, hub_id, config, split)
    inputs = [_input(named, chosen, limit) for named in sources]
    check_row_outputs((output,))
    check_outputs((output, report), [origin.path for origin in inputs])
    with count_progress("reading", None, "problems", hidden=no_progress) as advance_to:
        result = collect_problems(
            ProblemCollection(inputs, output, keep_leaked, on_error.value), advance_to
        )
    if report is not None:
        with atomic_file(report) as stream:
            stream.write(json.dumps(result.to_json(), indent=2).encode() + b"\n")
    if as_json:
        print(dump_json({"output": str(output), **result.to_json()}, ensure_ascii=True))
    else:
        _print(result, output, report, keep_leaked, color)


def _choices(
    sources: Iterable[str],
    revision: list[str] | None,
    hub_id: list[str] | None,
    config: list[str] | None,
    split: list[str] | None,
) -> dict[str, HubChoice]:
    """Return what the options say about each source.

    Raises:
        InputError: an option names no source of the command line, or one twice.
    """
    names = {named.partition("=")[0] for named in sources}
    options = {"hub_id": hub_id, "config": config, "split": split, "revision": revision}
    given: dict[str, dict[str, str]] = {}
    for field, values in options.items():
        option = field.replace("_", "-")
        for value in values or ():
            name, _, choice = value.partition("=")
            if name not in names or not choice:
                raise InputError(
                    f"--{option} must be NAME=VALUE with a source of this command "
                    f"({', '.join(sorted(names))}), got {value!r}"
                )
            if field in given.setdefault(name, {}):
                raise InputError(f"--{option} is given twice for {name}")
            given[name][field] = choice
    return {name: HubChoice(**chosen) for name, chosen in given.items()}


def _input(named: str, choices: dict[str, HubChoice], limit: int | None) -> SourceInput:
    name, has_path, path = named.partition("=")
    if has_path and not path:
        raise InputError(f"{named!r} names no file after the '='")
    return source_input(name, path or None, choices.get(name), limit)


def _print(
    report: SourcesReport, output: Path, full: Path | None, keep_leaked: bool, color: ColorMode
) -> None:
    console = make_console(color)
    rows: list[Row] = [
        [origin.name, origin.read.rows, *(statuses[status] for status in SHOWN)]
        for origin, statuses in zip(report.inputs, report.statuses, strict=True)
    ]
    read = sum(origin.read.rows for origin in report.inputs)
    statuses = sum(report.statuses, Counter[ProblemStatus]())
    total: list[Row] = [["all", read, *(statuses[status] for status in SHOWN)]]
    columns = [words("source"), *map(number, ("read", *SHOWN))]
    table = Table("", columns, [rows, total] if len(rows) > 1 else [rows], bold=1)
    console.print(table.to_terminal(console.width))
    for sentence in _sentences(report, keep_leaked):
        console.print(sentence, style="yellow", markup=False, soft_wrap=True)
    console.print(f"{output}: {count_of(report.written, 'problem')}", markup=False, soft_wrap=True)
    if full is not None:
        console.print(f"{full}: conflicts and leaks", markup=False, soft_wrap=True)


def _sentences(report: SourcesReport, keep_leaked: bool) -> Iterable[str]:
    """Yield what a person should know beyond the numbers."""
    if report.conflicting_texts:
        examples = [
            " and ".join(
                f"{one_line(answer, 40)} ({one_line(problem_id)})"
                for answer, problem_id in list(conflict.answers.items())[:2]
            )
            for conflict in list(report.conflicts.values())[:SHOWN_CASES]
        ]
        yield (
            f"{count_of(report.conflicting_texts, 'text has', 'texts have')} two answers "
            f"(left out), for example {'; '.join(examples)}"
        )
    for (source, test_source), count in report.leaked.items():
        kept = "kept" if keep_leaked else "left out"
        first = report.first_leaks[source, test_source]
        problems = count_of(len(report.spoilt[source, test_source]), "problem")
        rows = count_of(count, f"row of {source} holds", f"rows of {source} hold")
        yield (
            f"{rows} {problems} of {test_source} ({kept}), for example "
            f"{one_line(first.problem_id)} = {one_line(first.test_problem_id)}"
        )
    same_id = sum(statuses[ProblemStatus.SAME_ID] for statuses in report.statuses)
    if same_id:
        problems = count_of(same_id, "problem has", "problems have")
        yield f"{problems} the id of another text before (left out)"
    skipped = [origin for origin in report.inputs if origin.read.skipped]
    if skipped:
        count = sum(origin.read.skipped for origin in skipped)
        yield f"{count_of(count, 'bad row')} skipped, the first: {skipped[0].read.reasons[0]}"
