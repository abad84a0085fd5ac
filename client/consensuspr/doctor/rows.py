"""Rows of verl's Parquet files, read as training reads them.

A row goes through the very code that takes a sample apart in the reward manager, and only the
columns that it looks at are read.  Memory is bounded by a batch of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consensuspr.client.verl.sample import Sample
from consensuspr.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

# Prompts are some kilobytes, inline nodes some tens of them.
_BATCH_ROWS = 512

# What a sample is made of, besides the prompt.
_FIELDS = {
    "data_source": (),
    "reward_model": ("ground_truth",),
    "extra_info": ("problem_id", "index", "split", "nodes"),
}


@dataclass(frozen=True, slots=True)
class RowFile:
    """A Parquet file of rows.

    Attributes:
        path: of it.
        prompt_key: column of the prompt (``data.prompt_key``).
    """

    path: Path
    prompt_key: str = "prompt"

    def num_rows(self) -> int:
        """Return how many rows it has, by its footer.

        Raises:
            DataError: it cannot be read.
        """
        import pyarrow.parquet as pq

        with _reading(self.path):
            return int(pq.read_metadata(self.path).num_rows)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the fields of every row, in order.

        Raises:
            DataError: it cannot be read, or has no prompts.
        """
        import pyarrow.parquet as pq

        with (
            _reading(self.path),
            pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            columns = self._columns(file.schema_arrow)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                yield from batch.to_pylist()

    def _columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns to read, dotted where a part of a column does."""
        import pyarrow as pa

        if self.prompt_key not in schema.names:
            raise DataError(
                str(self.path),
                None,
                f"has no column {self.prompt_key!r} (data.prompt_key); its columns are"
                f" {', '.join(schema.names[:12])}",
            )
        columns = [self.prompt_key]
        for name, parts in _FIELDS.items():
            if name not in schema.names:
                continue
            kind = schema.field(name).type
            if parts and pa.types.is_struct(kind):
                columns += [f"{name}.{part}" for part in parts if kind.get_field_index(part) >= 0]
            else:
                columns.append(name)
        return columns


def sample_of(row: Mapping[str, Any], prompt_key: str) -> Sample:
    """Return the sample that a row becomes, with an empty response.

    Raises:
        InputError: a field has a type that cannot be scored.
    """
    return Sample.of(_OneSample(row, prompt_key))


class _OneSample:
    """A row in the shape of a ``DataProto`` of one sample."""

    def __init__(self, row: Mapping[str, Any], prompt_key: str) -> None:
        self.batch = {"responses": [()]}
        self.non_tensor_batch = {
            **{name: [row.get(name)] for name in _FIELDS},
            "raw_prompt": [row.get(prompt_key)],
            "response_len": [0],
        }


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow and of the system into one that names the file."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(str(path), None, "does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(str(path), None, f"is not readable Parquet: {reason}") from error
