"""``consensuspr explain``: show why one rollout got its score."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.cli.connection import DatasetChoice, connect
from consensuspr.cli.console import ColorMode, make_console
from consensuspr.cli.explanation import print_explanation
from consensuspr.cli.options import (
    Address,
    Alpha,
    AnswerRuleChoice,
    Color,
    Epoch,
    Json,
    OnUndecidedChoice,
    Reward,
    RolloutsPath,
    SwitchEpoch,
    Timeout,
    reward_spec,
)
from consensuspr.data import Row, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import OnUndecided, RewardKind, rollout_from_row


def explain(
    rollouts: RolloutsPath,
    *,
    dataset: DatasetChoice = None,
    rollout_id: Annotated[
        str | None,
        typer.Option(metavar="ID", show_default=False, help="Rollout with this rollout_id."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="The N-th rollout, from 1."),
    ] = None,
    address: Address = None,
    reward: Reward = RewardKind.LINEAR,
    alpha: Alpha = 0.5,
    epoch: Epoch = 0,
    switch_epoch: SwitchEpoch = 1,
    answer_rule: AnswerRuleChoice = None,
    on_undecided: OnUndecidedChoice = OnUndecided.COUNT_WRONG,
    full: Annotated[
        bool,
        typer.Option("--full", help="Show all of a long response, not only around its hits."),
    ] = False,
    timeout: Timeout = None,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Show one rollout with every node hit marked, and how its reward came about.

    ```text
    consensuspr explain rollouts.jsonl --dataset problems.jsonl --rollout-id r17
    ```

    Each node has a number and a colour; the table below the response says which of its
    expressions was found. Control characters in the response are written out.
    """
    spec = reward_spec(reward, alpha, switch_epoch)
    chosen = _find(rollouts, rollout_id, row)
    with connect(dataset, address, timeout) as connection:
        explanation = connection.client.explain(
            rollout_from_row(chosen),
            reward=spec,
            epoch=epoch,
            dataset=connection.dataset,
            answer_rule=answer_rule,
            on_undecided=on_undecided,
        )
    if as_json:
        print(json.dumps(asdict(explanation)))
        return
    name = chosen.get("rollout_id") or f"row {row}"
    print_explanation(
        make_console(color),
        explanation,
        chosen["response"],
        title=f"{name}, problem {chosen['problem_id']}",
        full=full,
    )


def _find(path: Path, rollout_id: str | None, row: int | None) -> Row:
    """Return the row that was asked for.

    Raises:
        InputError: not exactly one of the two ways to ask was used, or there is no such row.
    """
    if (rollout_id is None) == (row is None):
        raise InputError("give either --rollout-id ID or --row N")
    for number, candidate in enumerate(read_rollouts(path), start=1):
        if number == row or (row is None and candidate.get("rollout_id") == rollout_id):
            return candidate
    wanted = f"row {row}" if row is not None else f"rollout_id {rollout_id!r}"
    raise InputError(f"{path}: holds no {wanted} among its {number:,} rollouts")
