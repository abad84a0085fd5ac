"""A real server for the adapters, and the data that it serves."""

from __future__ import annotations

from tests.trl.conftest import address, dataset_file

__all__ = ["address", "dataset_file"]
