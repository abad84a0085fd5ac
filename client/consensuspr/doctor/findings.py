"""What is examined, and what a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from consensuspr.doctor.verl_run import TrainingCommand


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """What is given of a training set-up; the rest is read from the run's configuration.

    Attributes:
        dataset_file: whose content the server's dataset must have.
        config_file: configuration of the run, in place of the command's.
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
    """How bad a finding is; only FAIL says that the run must not be started."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check: its name, level, what was found, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""
