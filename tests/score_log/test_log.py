"""Score logs on disk: written, killed, merged, followed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.errors import InputError
from consensuspr.score_log import LogReader, ScoreLog, keep_dataset
from consensuspr.score_log import reader as reading
from consensuspr.score_log import writer as writing
from consensuspr.score_log.files import log_files, read_parquet, write_parquet
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import InlineNode, SampleKeys, Score, Status
from tests.processes import wait_for
from tests.score_logs import part_of, rows_in, sample
from tests.watched import DATASET


def files(run: Path) -> list[Path]:
    return sorted((run / "scores").glob("*.parquet"))


def texts(run: Path) -> list[str | None]:
    return [row["response"] for row in rows_in(run, "response")]


def log_of(run: Path, *parts: list[str], side: Any = "trainer", **more: Any) -> None:
    """Write a log of some parts, whose rows are in one file."""
    with closing(ScoreLog(run, side)) as log:
        for number, part in enumerate(parts):
            log.put(part_of(part, **{name: of[number] for name, of in more.items()}))


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a file for each part, and merge four of them."""
    monkeypatch.setattr(writing, "FILE_ROWS", 1)
    monkeypatch.setattr(writing, "MERGE_FILES", 4)


def put_one_by_one(log: ScoreLog, number: int, first: int = 0) -> None:
    for at in range(first, first + number):
        log.put(part_of([str(at)]))
        wait_for(lambda: not log._parts)


def test_rows_are_read_after_a_second_and_at_the_end(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    log = ScoreLog(run, "trainer")
    log.put(part_of(["a", "b"]))
    log.put(part_of(["c"]))
    wait_for(lambda: len(files(run)) == 1)
    log.put(part_of(["d"]))
    log.close()
    log.close()
    assert texts(run) == texts(run / "scores") == ["a", "b", "c", "d"]
    assert sum(pq.read_table(path).num_rows for path in files(run)) == 4
    log.put(part_of(["late"]))
    assert log.dropped_rows == 1


def test_others_cannot_read_a_log(tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = os.umask(0o007)
    try:
        keep_dataset(run, DatasetIndex.load(DATASET))
        log_of(run, ["a"])
    finally:
        os.umask(before)
    modes = {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in run.rglob("*")}
    assert modes == {(False, "0o640"), (True, "0o750")}


def test_a_missing_or_unwritable_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"score_log: cannot write .*file"):
        ScoreLog(tmp_path / "file", "trainer")
    ScoreLog(tmp_path, "server").close()
    assert files(tmp_path) == []
    with pytest.raises(InputError, match="has no score log"):
        LogReader(tmp_path)
    with pytest.raises(InputError, match=r"no column 'text'; it has key, time,"):
        LogReader(tmp_path, ["text"], following=True)


KILLED = """
import itertools, pathlib, sys, time
from consensuspr.score_log import ScoreLog, writer
from tests.score_logs import part_of
writer.FILE_ROWS, writer.MERGE_FILES = 3, 3
log = ScoreLog(pathlib.Path(sys.argv[1]), sys.argv[2])
for number in itertools.count():
    log.put(part_of([f"{number} " + "x" * 2000]))
    if number == 50:
        print("ready", flush=True)
    while log._rows >= 3:
        time.sleep(0)
"""


def test_processes_are_killed_while_they_write_and_merge(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), "server"]
    writers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, cwd=repository, text=True)
        for _ in range(2)
    ]
    reader = LogReader(tmp_path, ["response"], following=True, places=True)
    followed: dict[str, list[str]] = {}

    def follow() -> None:
        for batch in reader.read():
            for row in batch.to_pylist():
                followed.setdefault(row["writer"], []).append(row["response"].split()[0])

    try:
        for process in writers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for _ in range(5):
            follow()
            time.sleep(0.1)
    finally:
        for process in writers:
            process.kill()
            process.communicate()
    assert {process.returncode for process in writers} == {-signal.SIGKILL}
    assert reader.left_out == {}
    follow()
    assert len(followed) == 2
    for found in followed.values():
        assert found == [str(at) for at in range(len(found))]
    number = sum(map(len, followed.values()))
    assert len(rows_in(tmp_path, "key")) == number
    assert len(files(tmp_path)) < number / 6, "they were merged"


AWAITED = """
import asyncio, os, signal, sys
from pathlib import Path
from consensuspr.score_log import ScoreLog
from tests.score_logs import part_of

log = ScoreLog(Path(sys.argv[1]), "trainer")

async def score(at):
    await asyncio.sleep(at * 0.002)
    log.put(part_of([str(at)]))
    await log.written()

async def main():
    await asyncio.gather(*map(score, range(100)))

asyncio.run(main())
log.put(part_of(["behind"]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_row_that_was_awaited(tmp_path: Path, repository: Path) -> None:
    done = subprocess.run([sys.executable, "-c", AWAITED, str(tmp_path)], cwd=repository)
    assert done.returncode == -signal.SIGKILL
    assert sorted(map(int, filter(str.isdecimal, texts(tmp_path)))) == list(range(100))  # type: ignore[arg-type]
    assert len(files(tmp_path)) < 60, "those that came meanwhile share one"


def test_a_disk_that_hangs_holds_nobody_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = threading.Event()
    monkeypatch.setattr(writing, "WRITTEN_S", 0.05)
    monkeypatch.setattr(writing, "write_parquet", lambda *_: hung.wait(30) and 0)
    with closing(ScoreLog(tmp_path, "trainer")) as log:
        log.put(part_of(["a"]))
        asyncio.run(asyncio.wait_for(log.written(), 10))
        hung.set()
    asyncio.run(log.written())


def test_a_merge_that_was_killed_counts_once_and_is_ended(
    tmp_path: Path, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ScoreLog(tmp_path, "trainer")) as log:
        put_one_by_one(log, 3)
        before = {path: path.read_bytes() for path in files(tmp_path)}
        put_one_by_one(log, 2, 3)
    assert [path.stem[-21:] for path in files(tmp_path)] == [
        "0000000000-0000000004",
        "0000000004-0000000005",
    ]
    for path, content in before.items():
        path.write_bytes(content)
    temporary = tmp_path / "scores" / ".x.parquet.1.tmp"
    temporary.write_bytes(b"PAR1")
    os.utime(temporary, (0, 0))
    assert texts(tmp_path) == ["0", "1", "2", "3", "4"]
    with closing(ScoreLog(tmp_path, "server")) as log:
        put_one_by_one(log, 1, 5)
        wait_for(lambda: len(files(tmp_path)) == 3)
    assert not temporary.exists()
    assert texts(tmp_path) == ["0", "1", "2", "3", "4", "5"]


def test_many_files_become_few_and_large_ones_stay(
    tmp_path: Path, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ScoreLog(tmp_path / "small", "trainer")) as log:
        put_one_by_one(log, 40)
    assert len(files(tmp_path / "small")) == 4  # of 16, 16, 4 and 4 rows
    monkeypatch.setattr(writing, "MERGE_BYTES", 30_000)
    with closing(ScoreLog(tmp_path / "large", "trainer")) as log:
        put_one_by_one(log, 40)
    sizes = [path.stat().st_size for path in files(tmp_path / "large")]
    assert len(sizes) > 4
    for run in ("small", "large"):
        assert texts(tmp_path / run) == [str(at) for at in range(40)]


def test_the_same_sample_of_both_sides_counts_once(tmp_path: Path) -> None:
    busy = Score(Status.ANSWER_UNDECIDED, answer_method="load")
    right = Score(Status.OK, 1.0)
    samples = [sample(at) for at in range(4)]
    server = ScoreLog(tmp_path, "server")
    # The first time it failed, the second it was too busy, the reply to the third was lost.
    internal = Score(Status.INTERNAL, message="a defect")
    for scores in ([internal] * 4, [busy] * 4, [right] * 4, [right] * 4):
        server.put(part_of(["a", "b", "c", "d"], scores, samples))
    # Nobody has asked again for these.
    server.put(part_of(["e", "f"], [internal, busy], [sample(8), sample(9)]))
    server.close()
    assert [(row["key"], row["status"]) for row in rows_in(tmp_path)] == [
        *((one.key, "OK") for one in samples),
        (sample(8).key, "INTERNAL"),
        (sample(9).key, "ANSWER_UNDECIDED"),
    ]
    trainer = ScoreLog(tmp_path, "trainer")
    trainer.put(part_of(["a"], [right], samples[:1], penalty=-0.25, final_score=0.75))
    trainer.close()
    rows = rows_in(tmp_path)
    assert [row["side"] for row in rows] == ["trainer"] + ["server"] * 5
    assert rows[0]["final_score"] == 0.75


def test_the_row_of_a_trainer_replaces_the_one_of_the_server(tmp_path: Path) -> None:
    samples = [sample(1), sample(2)]
    log_of(tmp_path, ["a", "b"], side="server", samples=[samples])
    reader = LogReader(tmp_path, ["side"], following=True)
    assert sum(batch.num_rows for batch in reader.read()) == 2
    log_of(tmp_path, ["a"], samples=[samples[:1]])
    assert [side for batch in reader.read() for side in batch["side"].to_pylist()] == ["trainer"]
    assert [numbers.tolist() for numbers in reader.withdrawn.values()] == [[0]]
    assert len(rows_in(tmp_path)) == 2


def test_rows_that_a_disk_does_not_give_are_read_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> list[str]:
        return [text for batch in reader.read() for text in batch["response"].to_pylist()]

    def failing(file: Any, skipped: int, columns: Any) -> Any:
        if "response" in columns and left:
            left.pop()
            raise OSError(5, "Input/output error")
        return of_file(file, skipped, columns)

    left, of_file = [1], read_parquet
    monkeypatch.setattr(reading, "read_parquet", failing)
    log_of(tmp_path, ["a"])
    reader = LogReader(tmp_path, ["response"], following=True)
    assert read() == []
    log_of(tmp_path, ["b"])
    assert sorted(read()) == ["a", "b"]
    assert read() == []


def test_a_verdict_replaces_a_row_without_one(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, ["status"], following=True)
    right, failed = Score(Status.OK, 1.0), Score(Status.INTERNAL, message="a defect")
    for score, read, withdrawn in ((failed, ["INTERNAL"], []), (failed, [], []),
                                   (right, ["OK"], [[0]]), (right, [], [])):  # fmt: skip
        log_of(tmp_path, ["a"], side="server", scores=[[score]], samples=[[sample(1)]])
        assert [name for batch in reader.read() for name in batch["status"].to_pylist()] == read
        assert [numbers.tolist() for numbers in reader.withdrawn.values()] == withdrawn
    assert [row["status"] for row in rows_in(tmp_path, "status")] == ["OK"]


def start_of_run(run: Path, first: int, last: int, unix_s: float, text: str = "x") -> None:
    """Log a sample of each step, as a process of a trainer does."""
    keys = SampleKeys()
    steps = range(first, last + 1)
    log_of(
        run,
        *[[text]] * len(steps),
        samples=[[sample(step, step, keys)] for step in steps],
        unix_s=[unix_s + step for step in steps],
    )


def test_repeated_steps_do_not_count(tmp_path: Path) -> None:
    begun = time.time() - 1000
    logs = [ScoreLog(tmp_path, "trainer") for _ in range(2)]  # of one start, at the same time
    for log, step in zip(logs, (1, 5), strict=True):
        log.put(part_of(["start 0"], samples=[sample(step, step, SampleKeys())], unix_s=begun + 3))
        log.close()
    start_of_run(tmp_path, 1, 5, begun, "start 0")
    start_of_run(tmp_path, 4, 6, begun + 100, "start 1")
    rows = [(row["step"], row["response"]) for row in rows_in(tmp_path, "step", "response")]
    again = [(step, "start 1") for step in (4, 5, 6)]
    assert sorted(rows) == [(step, "start 0") for step in (1, 1, 2, 3)] + again


def test_starts_are_found_in_a_servers_log_alone(tmp_path: Path) -> None:
    begun = time.time() - 1000
    starts = ((0, 0.0), (0, 1.0), (1, 60.0), (1, 61.0))
    log_of(
        tmp_path,
        *([f"start {start}"] for start, _ in starts),
        side="server",
        samples=[[sample(7, 3, SampleKeys())] for _ in starts],
        unix_s=[begun + later_s for _, later_s in starts],
    )
    assert texts(tmp_path) == ["start 1", "start 1"]


def test_a_following_reader_withdraws_repeated_steps(tmp_path: Path) -> None:
    def steps(reader: LogReader) -> list[int]:
        return [step for batch in reader.read() for step in batch["step"].to_pylist()]

    begun = time.time() - 1000
    reader = LogReader(tmp_path, ["step"], following=True)
    start_of_run(tmp_path, 1, 5, begun)
    assert steps(reader) == [1, 2, 3, 4, 5]
    start_of_run(tmp_path, 6, 7, begun + 100)  # goes on where the first ended
    assert steps(reader) == [6, 7]
    assert not reader.withdrawn
    start_of_run(tmp_path, 5, 6, begun + 200)
    assert steps(reader) == [5, 6]
    assert [numbers.tolist() for numbers in reader.withdrawn.values()] == [[4], [0, 1]]
    assert (steps(reader), reader.withdrawn) == ([], {})
    assert sorted(steps(LogReader(tmp_path, ["step"], following=True))) == [1, 2, 3, 4, 5, 6]


def test_a_full_disk_loses_texts_then_rows(
    tmp_path: Path, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int]] = []
    room = {"bytes": 0}
    write = write_parquet

    def full(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
        found = [*batches]
        if sum(batch.nbytes for batch in found) > room["bytes"]:
            raise InputError(f"{path}: cannot be written: No space left on device")
        write(path, iter(found))

    monkeypatch.setattr(writing, "write_parquet", full)
    log = ScoreLog(tmp_path, "trainer", on_drop=lambda rows, texts: dropped.append((rows, texts)))
    for room["bytes"], text in ((0, "no room"), (10_000, "x" * 40_000), (1 << 30, "room")):
        log.put(part_of([text]))
        wait_for(lambda: not log._parts)
        time.sleep(0.1)
    log.close()
    assert dropped == [(1, 0), (0, 1)]
    assert (log.dropped_rows, log.dropped_texts) == (1, 1)
    assert texts(tmp_path) == [None, "room"]


def test_a_row_with_a_defect_is_dropped_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dropped: list[int] = []
    log = ScoreLog(tmp_path, "trainer", on_drop=lambda rows, texts: dropped.append(rows))
    wrong: Any = ["not a number"]
    for text, score in (("a", 1.0), ("b", wrong), ("c", 1.0)):
        log.put(part_of([text], final_score=score))
    log.close()
    assert texts(tmp_path) == ["a", "c"]
    assert (dropped, log.dropped_rows, log.dropped_texts) == ([1], 1, 0)
    assert any("dropped 1 rows: Arrow" in line for line in caplog.messages)


def test_a_dataset_that_could_not_be_kept_is_tried_again(
    tmp_path: Path, small_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def keep(run: Path, index: Any) -> None:
        tries.append(index.digest)
        raise InputError("no space left on device")

    monkeypatch.setattr(writing, "keep_dataset", keep)
    index: Any = SimpleNamespace(digest="sha256:1")
    part = part_of(["a"])
    columns: Any = part.scores
    with closing(ScoreLog(tmp_path, "server")) as log:
        for number in (1, 2):
            log.put_batch(part.rollouts, columns, part.identity, part.options, index)
            wait_for(lambda number=number: len(tries) == number)  # type: ignore[misc]
    assert len(texts(tmp_path)) == 2


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path, small_files: None) -> None:
    run = tmp_path / "run"
    with closing(ScoreLog(run, "server")) as log:
        put_one_by_one(log, 2)
        wait_for(lambda: log._next_row == 2)  # nothing is being written
        shutil.rmtree(run)
        put_one_by_one(log, 3, 2)
    assert texts(run) == ["2", "3", "4"]


def test_a_queue_that_is_full_drops_texts_and_then_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "QUEUE_BYTES", 10_000)
    monkeypatch.setattr(writing, "FILE_S", 3600.0)
    log = ScoreLog(tmp_path, "trainer")
    for _ in range(30):
        log.put(part_of(["x" * 5000]))
    log.close()
    rows = rows_in(tmp_path)
    kept = [row for row in rows if row["response"] is not None]
    assert len(kept) == 1
    assert len(rows) + log.dropped_rows == 30
    assert len(rows) - len(kept) == log.dropped_texts > 0
    assert log.dropped_rows > 0
    assert {row["response_size"] for row in rows} == {5000}


def test_a_queue_counts_all_strings_and_drops_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "QUEUE_BYTES", 10_000)
    monkeypatch.setattr(writing, "FILE_S", 3600.0)
    log = ScoreLog(tmp_path, "trainer")
    large: list[dict[str, Any]] = [
        {"ground_truth": "1" * 20_000},
        {"nodes": [InlineNode(["x=1"], derived=["y" * 20_000])]},
        {"nodes": [["x"] * 200]},
        {"problem_id": "p" * 20_000},
        {"ground_truth": "2"},
    ]
    for changes in large:
        part = part_of(["text"])
        part.rollouts = [replace(part.rollouts[0], **changes)]
        log.put(part)
    log.close()
    rows = rows_in(tmp_path, "problem_id", "response", "response_size", "ground_truth", "inline")
    nothing = {"problem_id": "p0", "response": None, "ground_truth": None, "inline": None}
    nothing["response_size"] = 4  # type: ignore[assignment]
    whole = {**nothing, "response": "text", "ground_truth": "2"}
    assert rows == [nothing, nothing, nothing, whole]
    assert (log.dropped_texts, log.dropped_rows) == (3, 1)


def test_the_oldest_texts_are_given_up_first(tmp_path: Path, small_files: None) -> None:
    for number in range(4):
        with closing(ScoreLog(tmp_path, "trainer", text_bytes=150_000)) as log:
            log.put(part_of([os.urandom(30_000).hex() + str(number)]))
            wait_for(lambda: log._next_row == 1)
            wait_for(lambda: sum(path.stat().st_size for path in files(tmp_path)) <= 150_000)
    kept = [text is not None for text in texts(tmp_path)]
    assert len(kept) == 4
    assert kept == sorted(kept)
    assert set(kept) == {True, False}


def test_without_a_budget_no_text_is_kept(tmp_path: Path) -> None:
    with closing(ScoreLog(tmp_path, "trainer", text_bytes=0)) as log:
        log.put(part_of(["a"]))
    [row] = rows_in(tmp_path)
    assert (row["response"], row["response_size"], log.dropped_texts) == (None, 1, 0)


ENDS = """
import sys, pathlib, threading
from consensuspr.score_log import ScoreLog
from tests.score_logs import part_of
log = ScoreLog(pathlib.Path(sys.argv[1]), "trainer")
log.put(part_of(["a"]))

def start(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")

threading.Thread.start = start
"""


def test_a_process_that_just_ends_writes_its_rows(tmp_path: Path, repository: Path) -> None:
    """From Python 3.12 on, no thread can be started by then."""
    command = [sys.executable, "-c", ENDS, str(tmp_path)]
    ended = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert len(rows_in(tmp_path)) == 1
    assert list(log_files(tmp_path)) == [files(tmp_path)[0].stem[:-22]]
