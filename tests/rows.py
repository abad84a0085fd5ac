"""Files of rows, and the problem of most small datasets in tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from consensuspr.data import open_writer

DUCKS: dict[str, Any] = {
    "problem_id": "ducks",
    "data_source": "toy",
    "ground_truth": "18",
    "nodes": [
        {"node_id": "left", "label": "eggs left", "expressions": ["16-3-4=9"]},
        {"node_id": "money", "label": "money", "expressions": ["9*2=18"], "is_final": True},
    ],
}
# Right, with both nodes.
DUCKS_SOLVED = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. #### 18"


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows in the format of the path's name, and return the path; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        with open_writer(path) as out:
            for row in rows:
                out.write(row)
        return path
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
