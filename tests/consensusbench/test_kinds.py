"""Keys that nobody declared, written to Parquet and read again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.export.files import ParquetFile
from consensusbench.export.hub import ColumnTypes
from consensuspr.data import read_rows


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None], "string"),
        ([None], "string"),
        ([True, False], "bool"),
        ([1, 2**60], "int64"),
        ([1, 0.5], "double"),
        ([2**60, 0.5], "json"),
        ([2**64], "json"),
        ([1, True], "json"),
        ([1, "a"], "json"),
        ([[1]], "json"),
        ([{}], "json"),
    ],
)
def test_the_narrowest_type_that_loses_nothing(values: list[Any], kind: str) -> None:
    kinds = ColumnTypes()
    for value in values:
        kinds.note({"key": value})
    [field] = kinds.fields()
    assert field.type == (pa.string() if kind == "json" else pa.type_for_alias(kind))
    assert bool(field.metadata) is (kind == "json")


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
anything = scalars | st.lists(scalars, max_size=2)
keys = st.sampled_from(["a", "b", "ö"])


@given(st.lists(st.dictionaries(keys, anything, min_size=1), min_size=1, max_size=6))
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    kinds = ColumnTypes()
    for row in rows:
        kinds.note(row)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        with path.open("wb") as stream:
            out = ParquetFile(stream, pa.schema(kinds.fields()))
            for row in rows:
                out.write(kinds.settled(row))
            out.close()
        read = [row for _, row in read_rows(str(path), ())]
    known = {key for row in rows for key in row}
    assert read == [{key: row.get(key) for key in known} for row in rows]
    assert out.rows == len(rows)
