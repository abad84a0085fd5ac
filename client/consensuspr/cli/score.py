"""``consensuspr score --engine ray``: the same file and the same figures, from all cores.

What happens on the cluster is ``consensuspr.ray.data``; here parts of the file come
back in order and are written and counted as if they had been scored in this process.  A bad
row stops the run where it stands, and not before anything is scored: finding it first would
be one core's work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consensuspr.cli.options import (
    Address,
    Alpha,
    AnswerRuleChoice,
    Color,
    DatasetChoice,
    Epoch,
    Json,
    OnErrorChoice,
    OnErrorOption,
    OnUndecidedChoice,
    Reward,
    RolloutsPath,
    SwitchEpoch,
    Timeout,
    reward_spec,
)
from consensuspr.client.files import (
    FileScores,
    Summary,
    connect,
    score_file,
    status_lines,
    summary_table,
)
from consensuspr.console import ColorMode, NoProgress, count_progress, load_core, make_console
from consensuspr.data import (
    JsonRows,
    OnError,
    ReadReport,
    RowWriter,
    is_parquet_output,
    open_writer,
    read_rollouts,
    refuse_empty,
    scan_rollouts,
)
from consensuspr.data.readers import open_data
from consensuspr.errors import InputError
from consensuspr.scoring import SCORED_TYPES, Identity, OnUndecided, RewardKind
from consensuspr.scoring.types import ScoreOptions

if TYPE_CHECKING:
    from consensuspr.ray.data import ScoredPart


class Engine(StrEnum):
    """Where a file is scored that no server scores."""

    LOCAL = "local"
    RAY = "ray"


@contextmanager
def open_parts(
    rollouts: Path, dataset: str | None, options: ScoreOptions, on_error: OnError, output: Path
) -> Iterator[Iterator[ScoredPart]]:
    """Start scoring a file on Ray; end it with the block.

    Args:
        rollouts: the file.
        dataset: path of the dataset.
        options: how to score.
        on_error: what a bad row does.
        output: where the rows will be written.

    Raises:
        InputError: no dataset was given, or Ray is not installed.
        DataError: the dataset cannot be read.
    """
    if dataset is None:
        raise InputError("give --dataset PATH to score with --engine ray")
    load_core()
    from consensuspr.ray.data import PartOptions, require_ray, score_parts
    from consensuspr.scoring import DatasetIndex

    require_ray("ray.data")
    open_data(rollouts)[0].close()  # a wrong path is found before a cluster is started
    # Rows of JSON are made where they are scored; those of Parquet share a schema.
    as_lines = not is_parquet_output(output)
    how = PartOptions(str(rollouts), options, on_error, as_lines=as_lines)
    with closing(score_parts(DatasetIndex.load(dataset), how)) as parts:
        yield parts


def collect_parts(
    parts: Iterable[ScoredPart],
    out: RowWriter,
    read: ReadReport,
    rollouts: Path,
    advance_to: Callable[[int], None],
) -> FileScores:
    """Write parts and count them up.

    Args:
        parts: in the order of the file.
        out: takes the scored rows.
        read: filled with the counts of good and skipped rows.
        rollouts: the file, as messages name it.
        advance_to: told how many rollouts are scored so far.

    Raises:
        DataError: a bad row with ``"stop"``, damage of the file, or not one good row.
    """
    summary = Summary()
    identity: Identity | None = None
    for part in parts:
        _add(read, part.report)
        if part.fault is not None:
            raise part.fault
        if isinstance(out, JsonRows):
            out.write_lines(part.lines)
        for row in part.rows:
            out.write(row)
        for source, score in part.counted:
            summary.add(source, score)
        identity = identity or part.identity
        advance_to(summary.overall.rollouts)
    refuse_empty(str(rollouts), read)
    assert identity is not None, "a good row was scored"
    return FileScores(summary, identity)


def _add(read: ReadReport, part: ReadReport) -> None:
    """Count the rows of a part, and log why some were skipped while there are few."""
    read.rows += part.rows
    read.skipped += part.skipped - len(part.reasons)
    for fault in part.reasons:
        read.skip(fault)


# MERGED ``consensuspr score``: score a file of rollouts, here, by a server or on a Ray cluster.

SPANS_TYPE = {"spans": "list<list<int64>>"}


def score(
    rollouts: RolloutsPath,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Scored rollouts, .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    dataset: DatasetChoice = None,
    address: Address = None,
    reward: Reward = RewardKind.LINEAR,
    alpha: Alpha = 0.5,
    epoch: Epoch = 0,
    switch_epoch: SwitchEpoch = 1,
    answer_rule: AnswerRuleChoice = None,
    on_undecided: OnUndecidedChoice = OnUndecided.COUNT_WRONG,
    spans: Annotated[
        bool, typer.Option("--spans", help="Also write where each node was first found.")
    ] = False,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    engine: Annotated[
        Engine, typer.Option(help="Score in this process, or on all cores of a Ray cluster.")
    ] = Engine.LOCAL,
    timeout: Timeout = None,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Score rollouts, write them with their scores, and print a table by data source.

    ```text
    consensuspr score rollouts.jsonl --dataset problems.jsonl --output scored.jsonl
    consensuspr score rollouts.parquet --address HOST:PORT --reward max --output scored.parquet
    ```

    Without an address everything happens in this process; with one, a running server scores; with
    `--engine ray`, all cores of a Ray cluster do. All three give the same scores. A rollout that
    cannot be scored gets a status that says why and no reward, never a reward of 0.
    """
    if output.exists() and rollouts.exists() and output.samefile(rollouts):
        raise InputError(f"{output} is the file of rollouts itself; write the scores elsewhere")
    spec = reward_spec(reward, alpha, switch_epoch)
    options = ScoreOptions.checked(spec, epoch, None, answer_rule, on_undecided, spans)
    read = ReadReport()
    columns = SCORED_TYPES | (SPANS_TYPE if spans else {})
    if engine is Engine.RAY:
        if address is not None or timeout is not None:
            raise InputError("--address and --timeout are for a server, not for --engine ray")
        with (
            open_parts(rollouts, dataset, options, on_error.value, output) as parts,
            open_writer(output, columns) as out,
            count_progress("scoring", None, "rollouts", hidden=no_progress) as advance_to,
        ):
            start = time.monotonic()
            scores = collect_parts(parts, out, read, rollouts, advance_to)
    else:
        # A bad row at the end of a long file is found before anything is scored.  Skipping,
        # rows are counted on the way: reading twice would report each bad one twice.
        total = scan_rollouts(rollouts).rows if on_error is OnErrorChoice.STOP else None
        with (
            connect(dataset, address, timeout) as connection,
            open_writer(output, columns) as out,
            count_progress("scoring", total, "rollouts", hidden=no_progress) as advance_to,
        ):
            start = time.monotonic()
            scores = score_file(
                read_rollouts(rollouts, on_error.value, read),
                partial(
                    connection.client.score_with,
                    options=replace(options, dataset=connection.dataset),
                ),
                out,
                connection.data_source,
                advance_to,
            )
    elapsed_s = time.monotonic() - start
    overall = scores.summary.overall
    if not overall.reward.count:
        typer.echo(
            f"warning: none of the {overall.rollouts:,} rollouts got a reward; their statuses say "
            "why, and keys that are spelled otherwise than docs/datasets.md says count as absent",
            err=True,
        )
    if as_json:
        print(json.dumps(_as_json(scores, read, elapsed_s, output)))
    else:
        _print(scores, read, elapsed_s, output, f"Reward ({reward})", color)


def _as_json(
    scores: FileScores, read: ReadReport, elapsed_s: float, output: Path
) -> dict[str, object]:
    return {
        **scores.summary.to_json(),
        "skipped_rows": read.skipped,
        "elapsed_s": round(elapsed_s, 3),
        "identity": asdict(scores.identity),
        "output": str(output),
    }


def _print(
    scores: FileScores,
    read: ReadReport,
    elapsed_s: float,
    output: Path,
    heading: str,
    color: ColorMode,
) -> None:
    overall = scores.summary.overall
    console = make_console(color)
    console.print(summary_table(scores.summary, heading))
    console.print()
    for line in status_lines(overall):
        console.print(line, markup=False)
    if read.skipped:
        console.print(f"{read.skipped:,} bad rows skipped", style="yellow")
    rate = overall.rollouts / max(elapsed_s, 1e-9)
    console.print(
        f"{overall.rollouts:,} rollouts in {elapsed_s:.1f} s ({rate:,.0f}/s), written to {output}",
        markup=False,
    )
