"""What is to be examined: a server, files of rows, and the run that will use them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from consensuspr.doctor.training_command import TrainingCommand


class ProgressBar(Protocol):
    """Shows how far a long piece of work is."""

    def __call__(
        self, what: str, total: int | None, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Return what yields a function that takes how many are done."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """A training set-up, as far as it is told.

    Attributes:
        address: of the server; None for the run's own, else the default.
        dataset: name at the server; None for the run's own.
        dataset_file: whose content the server's dataset must have.
        train_files: Parquet files; empty for the run's own.
        val_files: Parquet files; empty for the run's own.
        command: how the run is started.
        config_file: configuration of the run, in place of the command's.
        timeout_s: for one call to the server.
    """

    address: str | None = None
    dataset: str | None = None
    dataset_file: Path | None = None
    train_files: tuple[str, ...] = ()
    val_files: tuple[str, ...] = ()
    command: TrainingCommand | None = None
    config_file: Path | None = None
    timeout_s: float = 60.0
