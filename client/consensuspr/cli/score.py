"""``consensuspr score``: score a file of rollouts, here, by a server or on a Ray cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import (
    MORE_REWARD_OPTIONS,
    NO_PROGRESS,
    ON_ERROR,
    REWARD_OPTIONS,
    Address,
    DatasetChoice,
    Json,
    OnErrorChoice,
    RewardCommandSettings,
    RolloutsPath,
    TlsCa,
    TokenFile,
    access_of,
    with_settings,
)
from consensuspr.console import count_of, count_progress, load_core, make_console, one_line
from consensuspr.errors import InputError
from consensuspr.pages import page

if TYPE_CHECKING:
    from consensuspr.client.files import Mean, Summary
    from consensuspr.data import ReadReport, RowWriter
    from consensuspr.ray.data import ScoredPart
    from consensuspr.scoring.types import Identity, ScoreOptions

# What to do about a status, behind its first message.
_ADVICE = {"NO_GROUND_TRUTH": "; add ground_truth to the rollouts or the dataset"}
SPANS_TYPE = {"spans": "list<list<int64>>"}


class Engine(StrEnum):
    """Where a file is scored that no server scores."""

    LOCAL = "local"
    RAY = "ray"


class ScoreSettings(RewardCommandSettings):
    """How ``score`` reads, scores and writes a file."""

    spans: bool = Field(False, description="Also write where each node was first found.")
    on_error: OnErrorChoice = Field(OnErrorChoice.STOP, description=ON_ERROR)
    engine: Engine = Field(
        Engine.LOCAL, description="Score in this process, or on all cores of a Ray cluster."
    )
    no_progress: bool = Field(False, description=NO_PROGRESS)


@with_settings(
    ScoreSettings,
    prefix="CONSENSUSPR_SCORE",
    shown=REWARD_OPTIONS,
    more={**MORE_REWARD_OPTIONS, "spans": None, "on_error": None, "engine": None},
)
def score(
    rollouts: RolloutsPath,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File of scored rollouts: .jsonl, .jsonl.gz or .parquet.",
        ),
    ],
    dataset: DatasetChoice = None,
    address: Address = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: ScoreSettings,
    as_json: Json = False,
) -> None:
    """Score a file of rollouts and print means by data source.

    ```text
    consensuspr score rollouts.jsonl --dataset dataset.jsonl --output scored.jsonl
    consensuspr score rollouts.parquet --address HOST:PORT --reward max --output scored.parquet
    ```

    Scores in this process, or with `--address` on a server; the scores are equal. A rollout that
    cannot be scored gets a status and no reward. If no rollout gets a reward, the exit code is 1.
    In the table, `(of N)` after a mean is the number of rollouts that have the value.
    """
    from consensuspr.client.files import connect, score_file
    from consensuspr.data import ReadReport, open_writer, read_rollouts, scan_rollouts
    from consensuspr.data.writers import check_row_output
    from consensuspr.scoring import SCORED_TYPES

    check_row_output(output)
    on_ray = settings.engine is Engine.RAY
    if on_ray and (address is not None or settings.timeout is not None):
        raise InputError("--address and --timeout have no effect with --engine ray")
    read, options = ReadReport(), settings.options(spans=settings.spans)
    total = None
    with ExitStack() as stack:
        if on_ray:
            parts = stack.enter_context(
                closing(_ray_parts(rollouts, dataset, options, settings, output))
            )
        else:
            # Bad rows are found before anything is scored.  Skipping,
            # rows are counted on the way: reading twice would report each bad one twice.
            if settings.on_error is OnErrorChoice.STOP:
                total = scan_rollouts(rollouts).rows
            access = access_of(address, token_file, tls_ca)
            connection = stack.enter_context(connect(dataset, address, settings.timeout, access))
        columns = SCORED_TYPES | (SPANS_TYPE if settings.spans else {})
        out = stack.enter_context(open_writer(output, columns))
        hidden = settings.no_progress
        advance_to = stack.enter_context(
            count_progress("scoring", total, "rollouts", hidden=hidden)
        )
        start = time.monotonic()
        if on_ray:
            summary, identity = _collect(parts, out, read, rollouts, advance_to)
        else:
            rows = read_rollouts(rollouts, settings.on_error.value, read)
            summary, identity = score_file(rows, connection, options, out, advance_to)
        elapsed_s = time.monotonic() - start
    overall = summary.overall
    if as_json:
        result = {
            **summary.to_json(),
            "skipped_rows": read.skipped,
            "elapsed_s": round(elapsed_s, 3),
            "identity": asdict(identity),
            "output": str(output),
        }
        print(json.dumps(result))
    else:
        _print(summary, read, elapsed_s, output, settings)
    if not overall.means["reward"].count:
        typer.echo(
            f"warning: none of {count_of(overall.rollouts, 'rollout')} got a reward; check the"
            f" statuses above, and the keys of the rows: see {page('File formats')}",
            err=True,
        )
        raise typer.Exit(1)


def _ray_parts(
    rollouts: Path,
    dataset: str | None,
    options: ScoreOptions,
    settings: ScoreSettings,
    output: Path,
) -> Generator[ScoredPart, None, None]:
    """Score on all cores of a cluster; return the scored parts in the order of the file."""
    if dataset is None:
        raise InputError("--engine ray needs --dataset PATH")
    load_core()
    from consensuspr.data.readers import open_data
    from consensuspr.data.writers import is_parquet_output
    from consensuspr.ray.data import PartOptions, score_parts
    from consensuspr.ray.node import require_ray
    from consensuspr.scoring import DatasetIndex

    require_ray("ray.data")
    open_data(rollouts)[0].close()  # a wrong path is found before a cluster is started
    # Rows of JSON are made where they are scored; those of Parquet share a schema.
    as_lines = not is_parquet_output(output)
    part_options = PartOptions(str(rollouts), options, settings.on_error.value, as_lines=as_lines)
    return score_parts(DatasetIndex.load(dataset), part_options)


def _collect(
    parts: Iterable[ScoredPart],
    out: RowWriter,
    read: ReadReport,
    rollouts: Path,
    advance_to: Callable[[int], None],
) -> tuple[Summary, Identity]:
    """Write parts and count them."""
    from consensuspr.client.files import Summary
    from consensuspr.data.readers import refuse_empty
    from consensuspr.data.writers import JsonRows

    summary, identity = Summary(), None
    for part in parts:
        read.rows += part.report.rows
        read.skipped += part.report.skipped - len(part.report.reasons)
        for fault in part.report.reasons:
            # Counts it, and logs the reason while there are few.
            read.skip(fault)
        if part.fault is not None:
            raise part.fault
        if isinstance(out, JsonRows):
            out.write_lines(part.lines)
        for row in part.rows:
            out.write(row)
        for counted in part.counted:
            summary.add(*counted)
        identity = identity or part.identity
        advance_to(summary.overall.rollouts)
    refuse_empty(str(rollouts), read)
    assert identity is not None, "a good row was scored"
    return summary, identity


def _print(
    summary: Summary, read: ReadReport, elapsed_s: float, output: Path, settings: ScoreSettings
) -> None:
    from consensuspr.scoring.types import Status

    overall = summary.overall
    total = count_of(overall.rollouts, "rollout")
    console = make_console(settings.color)
    console.print(summary_table(summary, f"Reward ({settings.reward})"))
    console.print()
    counts = sorted(overall.statuses.items(), key=lambda item: (item[0] is not Status.OK, item[0]))
    for status, count in counts:
        message = overall.messages.get(status)
        example = f"  (first: {one_line(message, 200)}{_ADVICE.get(status, '')})" if message else ""
        console.print(f"{status} {count:,}{example}", markup=False)
    if overall.guarded:
        console.print(
            f"the guard lowered the NCR of {count_of(overall.guarded, 'rollout')},"
            f" {overall.guarded_right:,} of them correct; without it the mean NCR is"
            f" {mean_text(overall.means['ncr_raw'], overall.rollouts, '.1%')}",
            markup=False,
        )
    if summary.lower_in_training and settings.unanswered is None:
        console.print(
            f"in training {count_of(summary.lower_in_training, 'rollout')} would get a lower"
            ' reward: no marked answer, and unanswered is "zero" there',
            markup=False,
        )
    if read.skipped:
        console.print(f"{count_of(read.skipped, 'bad row')} skipped", style="yellow")
    rate = overall.rollouts / max(elapsed_s, 1e-9)
    written = f"{total} in {elapsed_s:.1f} s ({rate:,.0f}/s), written to {output}"
    console.print(written, markup=False)


def mean_text(mean: Mean, rollouts: int, form: str) -> str:
    """Return a mean, with its count if some values are unknown."""
    if mean.value is None:
        return "–"
    return format(mean.value, form).replace("%", " %") + (
        "" if mean.count == rollouts else f" (of {mean.count:,})"
    )


def summary_table(summary: Summary, reward: str) -> Table:
    """Return the table of a file, with a heading for the reward's column."""
    forms = {"acc": ".1%", "ncr": ".1%", "tpn": ",.1f", "reward": ",.3f"}
    table = Table("Data source", box=None, pad_edge=False, header_style="bold")
    for heading in ("Rollouts", "Acc", "NCR", "TPN", reward):
        table.add_column(heading, justify="right")
    rows = [(Text(one_line(source)), counts, "") for source, counts in summary.by_source.items()]
    if len(rows) > 1:
        rows.append((Text("all"), summary.overall, "bold"))
    for name, counts, style in rows:
        if style:
            table.add_section()
        means = (mean_text(counts.means[m], counts.rollouts, form) for m, form in forms.items())
        table.add_row(name, f"{counts.rollouts:,}", *means, style=style)
    return table
