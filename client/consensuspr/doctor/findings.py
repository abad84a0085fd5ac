"""What is examined, and what a check says: how bad it is, what was found, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from consensuspr.doctor.verl_config import TrainingCommand


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """A training set-up, as far as it is told.

    Attributes:
        address: of the server; None for the run's own, else the default.
        token_file: whose first token the server is shown; None for the run's own.
        tls_ca: certificates that sign the server's; None for the run's own.
        dataset: name at the server; None for the run's own.
        dataset_file: whose content the server's dataset must have.
        train_files: Parquet files; empty for the run's own.
        val_files: Parquet files; empty for the run's own.
        command: how the run is started.
        config_file: configuration of the run, in place of the command's.
        timeout_s: for one call to the server.
    """

    address: str | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None
    dataset: str | None = None
    dataset_file: Path | None = None
    train_files: tuple[str, ...] = ()
    val_files: tuple[str, ...] = ()
    command: TrainingCommand | None = None
    config_file: Path | None = None
    timeout_s: float = 60.0


class Level(StrEnum):
    """How bad a finding is; only FAIL says that the set-up must not be started."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was looked at, two words at most.
        level: how bad it is; SKIP says that it could not be looked at.
        found: one clause.
        advice: what to do, one clause; empty where there is nothing to do.
    """

    check: str
    level: Level
    found: str
    advice: str = ""
