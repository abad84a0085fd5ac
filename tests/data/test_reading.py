"""Files in every format, and every way in which one can be bad."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.data import ReadReport, open_writer, read_problems, read_rollouts
from consensuspr.errors import DataError, InputError

ROWS = [
    {"problem_id": f"p{number}", "response": f"x={number} α \u2028 \0", "extra": {"k": [number]}}
    for number in range(5)
]
FORMATS = ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"]


def write_lines(path: Path, *lines: bytes | dict[str, Any]) -> Path:
    """Write lines, rows as JSON, and return the path."""
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return path


def good(number: int) -> dict[str, Any]:
    return {"problem_id": f"p{number}", "response": "r"}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_come_back_in_order_with_all_columns_whatever_the_name(
    tmp_path: Path, name: str
) -> None:
    with open_writer(tmp_path / name) as out:
        for row in ROWS:
            out.write(row)
    report = ReadReport()
    assert list(read_rollouts(tmp_path / name, report=report)) == ROWS
    assert (report.rows, report.skipped, report.reasons) == (5, 0, [])
    other = (tmp_path / name).rename(tmp_path / "misleading.txt")
    assert list(read_rollouts(other)) == ROWS


def test_blank_lines_a_bom_and_crlf_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + b'{"problem_id":"a","response":"1"}\r\n\n  \t\r\n'
        b'{"problem_id":"a","response":"2"}\n{}'
    )
    assert [row["response"] for row in read_rollouts(path, "skip")] == ["1", "2"]
    with pytest.raises(DataError, match=r"f\.jsonl:5: problem_id is missing$"):
        list(read_rollouts(path))


BAD_LINES: list[tuple[bytes, str]] = [
    (b"{", "is not JSON: Expecting property name enclosed in double quotes (column 2)"),
    (b"[1, 2]", "holds a list, not an object"),
    (b'{"problem_id": NaN}', "is not JSON: NaN is no JSON number"),
    (b'{"n": 1e999}', "is not JSON: the number 1e999 is too large"),
    (b'{"n": ' + b"9" * 5000 + b"}", "is not JSON: a number of 5000 digits is too long"),
    (b'{"problem_id": "\xff"}', "is not UTF-8 (byte 17 of the line)"),
    (b"\0", "is not JSON: Expecting value (column 1)"),
    (b"[" * 100_000, "is nested too deeply"),
    (b'{"problem_id": "p", "response": 3}', "response must be a string, got 3"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[r for _, r in BAD_LINES])
def test_a_bad_line_stops_or_is_skipped_counted_and_logged(
    tmp_path: Path, line: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_lines(tmp_path / "f.jsonl", good(1), line, good(2))
    rows = read_rollouts(path)
    assert next(rows) == good(1)
    with pytest.raises(DataError) as caught:
        next(rows)
    assert str(caught.value) == f"{path}:2: {reason}"
    report = ReadReport()
    with caplog.at_level(logging.WARNING):
        assert list(read_rollouts(path, "skip", report)) == [good(1), good(2)]
    assert (report.rows, report.skipped) == (2, 1)
    assert [fault.reason for fault in report.reasons] == [reason]
    assert f"skipped {path}:2: {reason}" in caplog.text


def test_reasons_are_kept_and_logged_up_to_a_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_lines(tmp_path / "f.jsonl", good(1), *[b"{"] * 300)
    report = ReadReport()
    with caplog.at_level(logging.WARNING):
        list(read_rollouts(path, "skip", report))
    assert (report.skipped, len(report.reasons), len(caplog.records)) == (300, 20, 21)


def truncated_gzip(path: Path) -> None:
    packed = gzip.compress(b"".join(json.dumps(good(n)).encode() + b"\n" for n in range(20_000)))
    path.write_bytes(packed[: len(packed) // 2])


def damaged_gzip(path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(good(1)).encode() + b"\n"))
    packed[-6] ^= 0xFF
    path.write_bytes(packed)


def truncated_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([good(1)]), path)
    path.write_bytes(path.read_bytes()[:-20])


def other_parquet(path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": "5"}}
    pq.write_table(pa.Table.from_pylist([row]), path)


def parquet_without_rows(path: Path) -> None:
    schema = pa.schema([("problem_id", pa.string()), ("response", pa.string())])
    pq.write_table(schema.empty_table(), path)


BAD_FILES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: None, "{path}: no such file or directory"),
    (lambda path: path.mkdir(), "{path}: is a directory, not a file"),
    (lambda path: path.write_bytes(b""), "{path}: is empty"),
    (lambda path: path.write_bytes(b"\n \n"), "{path}: holds no rows"),
    (
        lambda path: path.write_bytes("{}".encode("utf-16")),
        "{path}: is UTF-16 text; JSONL, gzip'd JSONL and Parquet are read",
    ),
    (
        lambda path: path.write_bytes(b"\x28\xb5\x2f\xfdrest"),
        "{path}: is zstd-compressed; JSONL, gzip'd JSONL and Parquet are read",
    ),
    (damaged_gzip, "{path}:1: the gzip data is damaged: CRC check failed "),
    (truncated_gzip, "the gzip data ends before its end mark"),
    (truncated_parquet, "{path}: is not readable Parquet: "),
    (
        other_parquet,
        "{path}: has no column 'problem_id'; its columns are prompt, reward_model",
    ),
    (parquet_without_rows, "{path}: holds no rows"),
]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize(("make", "sentence"), BAD_FILES, ids=[s for _, s in BAD_FILES])
def test_a_bad_file_raises_whatever_the_mode(
    tmp_path: Path, make: Callable[[Path], object], sentence: str, on_error: Any
) -> None:
    path = tmp_path / "f.data"
    make(path)
    with pytest.raises(DataError) as caught:
        list(read_rollouts(path, on_error))
    assert sentence.format(path=path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_bad_rows_only_is_bad_even_when_skipping(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "f.jsonl", b"{}", b"{}")
    with pytest.raises(DataError) as caught:
        list(read_rollouts(path, "skip"))
    assert str(caught.value) == (
        f"{path}: has no good row; all 2 were skipped, the first: problem_id is missing"
    )


@pytest.mark.parametrize(
    ("rows", "line", "reason", "good_ids"),
    [
        (
            [{"problem_id": "a"}, b"", {"problem_id": "a"}],
            3,
            "problem_id 'a' repeats that of line 1",
            ["a"],
        ),
        (
            [
                {"problem_id": "a"},
                {"problem_id": "b", "answer_rule": "gsm8k"},
                {"problem_id": "c", "answer_rule": "boxed"},
            ],
            3,
            "answer_rule 'boxed' differs from 'gsm8k' of line 2; a dataset has one rule",
            ["a", "b"],
        ),
    ],
)
def test_rows_of_a_dataset_that_do_not_go_together_name_both_lines(
    tmp_path: Path, rows: list[Any], line: int, reason: str, good_ids: list[str]
) -> None:
    path = write_lines(tmp_path / "f.jsonl", *rows)
    with pytest.raises(DataError) as caught:
        list(read_problems(path))
    assert str(caught.value) == f"{path}:{line}: {reason}"
    assert [problem.problem_id for problem in read_problems(path, "skip")] == good_ids


@pytest.mark.parametrize(
    ("endless", "sentence"),
    [
        (b"\n", r":1\d{6}: more than 1048576 bytes of blank lines end here; the file is not read"),
        (b"x", ":2: is longer than 1000 bytes; the file is not read on"),
    ],
    ids=["lines", "line"],
)
def test_a_small_file_of_gigabytes_without_a_row_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: bytes, sentence: str
) -> None:
    if endless == b"x":
        monkeypatch.setattr("consensuspr.data.readers.MAX_LINE_BYTES", 1000)
    path = tmp_path / "f.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(json.dumps(good(1)).encode() + b"\n")
        for _ in range(256):
            file.write(endless * ((1 << 20) // len(endless)))
    read: list[dict[str, Any]] = []
    with pytest.raises(DataError, match=sentence):
        for row in read_rollouts(path, "skip"):
            read.append(row)
    assert read == [good(1)]


NO_RESPONSE = "line 4: response is missing; the row has problem_id"


@pytest.mark.parametrize(
    ("bad", "listed"),
    [
        ({0: b"{"}, None),  # a single one keeps its place
        (
            {1: b"[]", 3: {"problem_id": "p"}},
            ["2 bad rows", "line 2: holds a list, not an object", NO_RESPONSE],
        ),
        (
            dict.fromkeys(range(0, 10, 2), b"[]"),
            ["5 bad rows", "lines 1, 3, 5 and 2 more: holds a list, not an object"],
        ),
        (
            {at: {"problem_id": "p", "response": at} for at in range(25)},
            [
                "25 bad rows",
                *(f"line {at + 1}: response must be a string, got {at}" for at in range(20)),
                "and 5 more",
            ],
        ),
    ],
)
def test_all_bad_rows_of_a_file_are_listed_at_once(
    tmp_path: Path, bad: dict[int, bytes | dict[str, Any]], listed: list[str] | None
) -> None:
    path = write_lines(tmp_path / "rows.jsonl", *(bad.get(at, good(at)) for at in range(30)))
    read: list[str] = []
    with pytest.raises(DataError) as caught:
        read.extend(row["problem_id"] for row in read_rollouts(path))
    assert read == [f"p{at}" for at in range(min(bad))]  # none after the first bad one
    if listed is None:
        assert caught.value.line == 1
    else:
        first, *others = listed
        assert str(caught.value).split("\n  ") == [f"{path}: {first}", *others]


@pytest.mark.parametrize("name", ["rows.csv", "ROWS.TSV", "rows.csv.gz"])
def test_tables_are_neither_read_nor_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(InputError, match=r"rows are written as .jsonl, .jsonl.gz or .parquet"):
        open_writer(path).__enter__()
    assert not path.exists()
    path.write_text("problem_id,response\n")
    if path.suffix != ".gz":
        with pytest.raises(DataError, match="is a table; JSONL, gzip'd JSONL and Parquet are read"):
            next(read_rollouts(path))
