"""How rollouts were sampled, from the file that ``consensusbench sample`` writes beside them.

``ROLLOUTS.provenance.json`` names models, prompt and settings; without their counts they are the
same for all rows, and go into the dataset.  Rollouts from elsewhere have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from consensuspr.data import DataError, Row

SUFFIX = ".provenance.json"

# It ends up in every row of a dataset.
MAX_BYTES = 64 << 10


def sampling_records(rollouts: Iterable[Path]) -> list[Row]:
    """Return what lies beside rollouts files, each content once, in an order of its own.

    Raises:
        DataError: a file cannot be read, is too long, or holds no object.
    """
    found: dict[str, Row] = {}
    for path in rollouts:
        beside = Path(f"{path}{SUFFIX}")
        if beside.exists():
            record = _read(beside)
            found[json.dumps(record, sort_keys=True)] = record
    return [record for _, record in sorted(found.items())]


def _read(path: Path) -> Row:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(str(path), None, f"cannot be read: {error.strerror}") from error
    try:
        record: Any = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DataError(str(path), None, "holds no JSON object; remove it to build without it")
    # Of the run as a whole, not of the rollouts that a problem was made from.
    record.pop("counts", None)
    size = len(json.dumps(record))
    if size > MAX_BYTES:
        raise DataError(str(path), None, f"holds {size} bytes, the limit is {MAX_BYTES}")
    return record
