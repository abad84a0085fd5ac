"""Datasets that are put together on disk: the same bytes, and little memory."""

from __future__ import annotations

import logging
import mmap
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from consensuspr.data import open_writer
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex


def write(path: Path, count: int) -> Path:
    with open_writer(path) as out:
        for number in range(count):
            out.write(row(number * 7 % count))
    return path


def row(number: int) -> dict[str, Any]:
    def node(at: int) -> dict[str, Any]:
        texts = [f"x_{{{at}}}=\\frac{{{number}}}{{{at + 3}}}+{k}" for k in range(6)]
        return {"expressions": texts[:2], "derived": texts[2:]}

    return {
        "problem_id": f"größe-{number}" if number % 5 == 0 else f"p{number}",
        "ground_truth": str(number),
        "nodes": [node(at) for at in range(7)],
    }


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put every dataset together on disk."""
    monkeypatch.setattr("consensuspr.scoring.dataset_index.MAX_MEMORY_BYTES", 1)


def test_on_disk_and_in_memory_make_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "set.jsonl", 300)
    small = DatasetIndex.load(path)
    monkeypatch.setattr("consensuspr.scoring.dataset_index.MAX_MEMORY_BYTES", 1)
    large = DatasetIndex.load(path)
    assert isinstance(small.image.buffer, bytes)
    assert isinstance(large.image.buffer, mmap.mmap)
    assert large.image.buffer[:] == small.image.buffer
    assert large.problem_ids() == small.problem_ids()
    large.save(tmp_path / "large.index")
    small.save(tmp_path / "small.index")
    assert (tmp_path / "large.index").read_bytes() == (tmp_path / "small.index").read_bytes()
    entry = large.entry("p299")  # still there after it was written from
    assert entry is not None
    assert entry.ground_truth == "299"
    large.close()


@pytest.mark.usefixtures("on_disk")
def test_nothing_stays_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    index = DatasetIndex.load(write(tmp_path / "set.jsonl", 50))
    assert list(folder.iterdir()) == []
    index.close()


@pytest.mark.usefixtures("on_disk")
def test_a_temporary_directory_that_cannot_hold_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "set.jsonl", 50)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(InputError) as caught:
        DatasetIndex.load(path)
    assert str(caught.value) == (
        f"{tmp_path / 'absent'}: cannot hold a large dataset while it is loaded: "
        "No such file or directory"
    )


# A process may write files of so many bytes, as if the disk were full then: in the middle of the
# records (which come at once, or from a buffer when the reading of them begins), and in what is
# made of them.
@pytest.mark.parametrize(
    ("output", "share"),
    [
        ("set.index", 0.0),
        ("set.index", 0.5),
        ("set.index", 0.999),
        ("set.index", 1.01),
        ("other.jsonl", 0.01),
        ("other.jsonl.gz", 0.01),
        ("other.parquet", 0.01),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path: Path, output: str, share: float) -> None:
    path = write(tmp_path / "set.jsonl", 400)
    records = sum(len(record) for record in records_of(path))
    code = (
        "import resource, sys\n"
        "from consensuspr.scoring import dataset_index\n"
        "from consensuspr.cli import main\n"
        "dataset_index.MAX_MEMORY_BYTES = 1\n"
        "limit = int(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "sys.exit(main(sys.argv[2:]))\n"
    )
    limit = str(int(share * records))
    command = [sys.executable, "-c", code, limit, "derive", str(path), "--no-progress"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / output)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    folder = tempfile.gettempdir()
    where = {
        "set.index": f"{folder}: cannot hold a large dataset while it is loaded",
        "other.parquet": f"{folder}: cannot hold the rows of {tmp_path / output} before they are "
        "written",
    }.get(output, f"{tmp_path / output}: cannot be written")
    reason = "File too large"
    if share == 0:  # then no directory can be found that takes anything
        where, reason = where.replace(folder, "the temporary directory"), "No usable temporary dir"
    assert done.stderr.startswith(f"consensuspr: error: {where}: {reason}")
    assert len(done.stderr.splitlines()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.jsonl"]


def records_of(path: Path) -> list[bytes]:
    index = DatasetIndex.load(path)
    return [index.image.record(at) for at in range(len(index))]


@pytest.mark.usefixtures("on_disk")
def test_memory_does_not_grow_with_what_problems_hold(tmp_path: Path) -> None:
    sizes = (500, 2500)
    paths = [write(tmp_path / f"{count}.jsonl", count) for count in sizes]
    DatasetIndex.load(paths[0]).close()  # what is imported and cached on the way
    peaks = []
    for path in paths:
        tracemalloc.start()
        index = DatasetIndex.load(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert index.nbytes / len(index) > 1200
        index.close()
    # An id, its line, and where its record lies.
    assert (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]) < 400


def test_a_long_load_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "set.jsonl", 600)
    with caplog.at_level(logging.INFO):
        DatasetIndex.load(path)
    assert not [text for text in caplog.messages if "so far" in text]
    monkeypatch.setattr("consensuspr.scoring.dataset_index.PROGRESS_S", 0.0)
    with caplog.at_level(logging.INFO):
        DatasetIndex.load(path)
    said = [text.partition(" in ")[0] for text in caplog.messages if "so far" in text]
    assert said == [f"{path}: {count} problems read so far" for count in (256, 512)]
    assert f"{path}: all 600 problems read, putting them in order" in caplog.messages
