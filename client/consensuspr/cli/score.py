"""``consensuspr score``: score a file of rollouts, here, by a server or on a Ray cluster."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.connection import DatasetChoice, connect
from consensuspr.cli.console import ColorMode, make_console
from consensuspr.cli.file_scoring import FileScores, score_file
from consensuspr.cli.options import (
    Address,
    Alpha,
    AnswerRuleChoice,
    Color,
    Epoch,
    Json,
    OnError,
    OnErrorChoice,
    OnUndecidedChoice,
    Reward,
    RolloutsPath,
    SwitchEpoch,
    Timeout,
    reward_spec,
)
from consensuspr.cli.progress import NoProgress, count_progress
from consensuspr.cli.ray_engine import Engine, collect_parts, open_parts
from consensuspr.cli.summary import status_lines, summary_table
from consensuspr.data import ReadReport, open_writer, read_rollouts, scan_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import SCORED_TYPES, OnUndecided, RewardKind
from consensuspr.wire.options import ScoreOptions

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
    on_error: OnError = OnErrorChoice.STOP,
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
    read = ReadReport()
    columns = SCORED_TYPES | (SPANS_TYPE if spans else {})
    if engine is Engine.RAY:
        if address is not None or timeout is not None:
            raise InputError("--address and --timeout are for a server, not for --engine ray")
        how = ScoreOptions.checked(spec, epoch, None, answer_rule, on_undecided, spans)
        with (
            open_parts(rollouts, dataset, how, on_error.value, output) as parts,
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
                    connection.client.score,
                    reward=spec,
                    epoch=epoch,
                    dataset=connection.dataset,
                    answer_rule=answer_rule,
                    on_undecided=on_undecided,
                    include_spans=spans,
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
