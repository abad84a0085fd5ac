"""Exports of small datasets into a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from consensusbench.export.files import Export, ExportReport
from consensusbench.export.trainers import export_verl
from tests.consensusbench.conftest import problem

if TYPE_CHECKING:
    from tests.consensusbench.conftest import WriteDataset


def train(number: int, **changes: Any) -> dict[str, Any]:
    """Return a training problem."""
    return problem(number, **{"split": "train", **changes})


def held_out(number: int, **changes: Any) -> dict[str, Any]:
    """Return a problem of a benchmark."""
    return problem(number, **{"split": "test", **changes})


class ExportBench:
    """Writes datasets to ``folder`` and exports them to ``out``."""

    def __init__(self, folder: Path, write: WriteDataset) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.write = write

    def export(
        self,
        *rows: dict[str, Any],
        by: Callable[[Export], ExportReport] = export_verl,
        **options: Any,
    ) -> ExportReport:
        """Write a dataset and export it."""
        return by(Export(self.write(*rows), self.out, **options))

    def rows(self, side: str = "train") -> list[dict[str, Any]]:
        """Return the rows of a trainer's file."""
        rows: list[dict[str, Any]] = pq.read_table(self.out / f"{side}.parquet").to_pylist()
        return rows

    def ids(self, side: str = "train") -> list[str]:
        """Return the problem ids of a file of verl's."""
        return [row["extra_info"]["problem_id"] for row in self.rows(side)]

    def files(self) -> dict[str, bytes]:
        """Return the files in ``out``."""
        return {path.name: path.read_bytes() for path in self.out.iterdir()}


@pytest.fixture
def bench(tmp_path: Path, write_dataset: WriteDataset) -> ExportBench:
    """A folder for one export after the other."""
    return ExportBench(tmp_path, write_dataset)
