"""What a user of ``consensuspr launch`` asks for; apart from ``plan.py``, so that help is quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from consensuspr.scoring.reward_options import RewardOptions
from consensuspr.scoring.rewards import RewardKind
from consensuspr.settings import Settings


class Algorithm(StrEnum):
    """Which recipe of the paper."""

    GRPO = "grpo"
    DAPO = "dapo"


class Request(Settings):
    """What is trained, with what, and where its rewards come from."""

    algorithm: Algorithm = Field(description="Recipe to train with.")
    model: str = Field(
        description="Size of Qwen3-Base with a recipe, or any model's path or hub name."
    )
    reward: RewardKind = Field(description="What is rewarded.")
    train_files: tuple[str, ...] = Field(description="Training Parquet; may be repeated.")
    val_files: tuple[str, ...] = Field(description="Validation Parquet; may be repeated.")
    dataset: Path | None = Field(
        None, description="Dataset with nodes for the server, and for scoring while it is away."
    )
    grow_nodes: bool = Field(
        False,
        description="Make nodes of the run's own right rollouts, for its next epoch; problems are"
        " rewarded by Acc until they have some.",
    )
    alpha: float | None = Field(
        None, ge=0, le=1, description=RewardOptions.model_fields["alpha"].description
    )
    step_credit: bool = Field(
        False, description="Experimental: node rewards on the tokens that reached the nodes."
    )
    recipe: tuple[Path, ...] = Field(
        (), description="File of more overrides, one a line; may be repeated."
    )
    address: str | None = Field(None, description="Use this server and start none.")
    server_address: str | None = Field(
        None,
        description="Where the server that is started listens; where not set 127.0.0.1:50051, with"
        " several nodes this node's IP.",
    )
    server_workers: int | None = Field(
        None, ge=1, description="Worker processes of the server that is started."
    )
    server_config: Path | None = Field(
        None, description="Settings of the server that is started, as TOML."
    )
    log_dir: Path = Field(
        Path("consensuspr-logs"), description="For the server's log and the score logs."
    )
    trainer: str = Field("verl.trainer.main_ppo", description="Module that is the training.")
    no_doctor: bool = Field(False, description="Train without `consensuspr doctor` first.")
