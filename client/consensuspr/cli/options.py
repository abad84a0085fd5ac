"""Options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from consensuspr.console import ColorMode
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardKind, RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided
from consensuspr.settings import Settings, settings_template


class OnErrorChoice(StrEnum):
    """What a bad row of a file does."""

    STOP = "stop"
    SKIP = "skip"


# help= speaks to a person who has read neither the paper nor this code.
RolloutsPath: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="ROLLOUTS", show_default=False, help="Rollouts: JSONL, JSONL.gz or Parquet."
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", show_default=False, help="Use the server at this address."),
]
DatasetChoice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        show_default=False,
        help="Dataset with nodes and ground truths. With --address: the server's dataset of equal "
        "content, or the name of one there.",
    ),
]
Reward: TypeAlias = Annotated[
    RewardKind, typer.Option(help="How accuracy and node coverage are combined.")
]
Alpha: TypeAlias = Annotated[
    float, typer.Option(help="Weight of accuracy in the linear reward, from 0 to 1.")
]
Epoch: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Training epoch counted from 0, for the curriculum.")
]
SwitchEpoch: TypeAlias = Annotated[
    int, typer.Option(min=0, help="First epoch in which the curriculum rewards the answer.")
]
AnswerRuleChoice: TypeAlias = Annotated[
    AnswerRule | None,
    typer.Option(
        show_default="the dataset's own, else auto", help="How the final answer is found."
    ),
]
OnUndecidedChoice: TypeAlias = Annotated[
    OnUndecided,
    typer.Option(help="Reward where the answer check ran out of time: as wrong, or none."),
]
OnErrorOption: TypeAlias = Annotated[
    OnErrorChoice,
    typer.Option(help="At a bad row: stop before anything is written, or skip and count it."),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0.001, show_default=False, help="Limit for each call to the server."
    ),
]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        show_default=False,
        help="Settings as TOML; --list-settings prints one to start from.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Color: TypeAlias = Annotated[
    ColorMode, typer.Option(help="When to colour; auto: on a terminal only.")
]


def reward_spec(kind: RewardKind, alpha: float, switch_epoch: int) -> RewardSpec:
    """Return the reward that the options name.

    Raises:
        InputError: alpha is outside [0, 1].
    """
    try:
        return RewardSpec(kind, alpha=alpha, switch_epoch=switch_epoch)
    except ValueError as error:
        raise InputError(str(error)) from None


def list_settings(model: Callable[[], type[Settings]], prefix: str) -> Any:
    """Return the option ``--list-settings`` of a command that reads ``--config``.

    Args:
        model: gives what can be set; called when the option is used, not before.
        prefix: of the command's environment variables.
    """

    def show(wanted: bool) -> None:
        if wanted:
            typer.echo(settings_template(model(), prefix=prefix), nl=False)
            raise typer.Exit

    return typer.Option(
        "--list-settings",
        is_eager=True,
        callback=show,
        help="Print every setting as a TOML file to start from, and exit.",
    )
