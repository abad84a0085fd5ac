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
    """A training run: algorithm, model, data, and the source of its rewards."""

    algorithm: Algorithm = Field(description="Recipe of the paper: grpo or dapo.")
    model: str = Field(
        description="Model to train: a size of Qwen3-Base, a folder, or a name on the hub."
    )
    reward: RewardKind = Field(description="Reward formula: linear, max, curriculum or outcome.")
    train_files: tuple[str, ...] = Field(
        description="Parquet file of training rows; repeat it for several."
    )
    val_files: tuple[str, ...] = Field(
        description="Parquet file of validation rows; repeat it for several."
    )
    dataset: Path | None = Field(
        None,
        description="Dataset with nodes. The server loads it; if the server is away, the trainer"
        " scores with it.",
    )
    grow_nodes: bool = Field(
        False,
        description="Build nodes from the run's own correct rollouts for its next epochs. Until a"
        " problem has nodes, its reward is the answer.",
    )
    alpha: float | None = Field(
        None, ge=0, le=1, description=RewardOptions.model_fields["alpha"].description
    )
    step_credit: bool = Field(
        False,
        description="Experimental: give the node reward to the tokens that reached the nodes.",
    )
    recipe: tuple[Path, ...] = Field(
        (), description="File of Hydra overrides, one a line; repeat it for several."
    )
    address: str | None = Field(
        None, description="HOST:PORT of a running server; launch then starts none."
    )
    server_address: str | None = Field(
        None,
        description="HOST:PORT to listen on. Default: 127.0.0.1:50051; with several nodes, the IP"
        " of this node.",
    )
    server_workers: int | None = Field(
        None, ge=1, description="Worker processes of the server. Default: one per core, at most 4."
    )
    server_config: Path | None = Field(None, description="TOML file of settings for the server.")
    log_dir: Path = Field(
        Path("consensuspr-logs"), description="Folder for the server's log and the score logs."
    )
    trainer: str = Field(
        "verl.trainer.main_ppo", description="Python module that runs the training."
    )
    no_doctor: bool = Field(False, description="Skip `consensuspr doctor` before the training.")
