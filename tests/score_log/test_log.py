"""Score logs on disk: written, killed, torn, closed, followed."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.errors import InputError
from consensuspr.score_log import LogReader, Position, ScoreLog, keep_dataset
from consensuspr.score_log import segments as segmenting
from consensuspr.score_log import writer as writing
from consensuspr.score_log.schema import Side, record_batch
from consensuspr.score_log.segments import (
    ABANDONED_S,
    Losses,
    OpenSegment,
    Segment,
    new_stem,
    segments,
)
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import SampleKeys, Score, Status
from tests.score_logs import part_of, rows_in, sample, wait_until
from tests.watched import DATASET


def files(run: Path) -> list[str]:
    return sorted(path.suffix for path in (run / "scores").iterdir() if path.suffix)


def test_what_was_put_is_read(tmp_path: Path) -> None:
    log = ScoreLog(tmp_path / "new" / "run", "trainer")
    log.put(part_of(["a", "b"]))
    log.put(part_of(["c"]))
    run = log.run
    wait_until(lambda: len(rows_in(run)) == 3)
    assert files(run) == [".arrows"]
    log.close()
    log.close()
    assert files(run) == [".parquet"]
    assert [row["response"] for row in rows_in(run)] == ["a", "b", "c"]
    assert [row["response"] for row in rows_in(run / "scores", "response")] == ["a", "b", "c"]
    [closed] = (run / "scores").glob("*.parquet")
    assert pq.read_table(closed).num_rows == 3


def test_a_stream_of_an_earlier_release_is_closed(tmp_path: Path) -> None:
    batch = record_batch([part_of(["a", "b"])], "trainer", SampleKeys())
    batch = batch.drop_columns(["scoring_version"])
    path = tmp_path / "scores" / f"{new_stem('trainer', 0)}.arrows"
    path.parent.mkdir()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    segmenting.close_segment(Segment(path.stem, path))
    assert files(tmp_path) == [".parquet"]
    assert [row["response"] for row in rows_in(tmp_path)] == ["a", "b"]
    assert {row["scoring_version"] for row in rows_in(tmp_path)} == {None}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_others_cannot_read_a_log(tmp_path: Path, mask: int) -> None:
    run = tmp_path / "run"
    index = DatasetIndex.load(DATASET)

    def modes(kind: str) -> set[str]:
        paths = [path for path in run.rglob("*") if path.is_dir() == (kind == "folder")]
        return {oct(path.stat().st_mode & 0o777) for path in paths}

    before = os.umask(mask)
    try:
        with closing(ScoreLog(run, "trainer", text_bytes=1)) as log:
            keep_dataset(run, index)
            log.put(part_of(["a"]))
            wait_until(lambda: rows_in(run))
            Losses(1, 0).save(run, "x")
            assert modes("file") == {oct(0o640 & ~mask)}
        assert {path.suffix for path in run.rglob("*")} >= {".parquet", ".index", ".lost"}
        assert modes("file") == {oct(0o640 & ~mask)}
        assert modes("folder") == {oct(0o750 & ~mask)}
    finally:
        os.umask(before)


def test_without_rows_nothing_is_left(tmp_path: Path) -> None:
    ScoreLog(tmp_path, "server").close()
    assert files(tmp_path) == []
    with pytest.raises(InputError, match="holds no score log"):
        LogReader(tmp_path)


def test_what_cannot_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"score_log: cannot write .*file"):
        ScoreLog(tmp_path / "file", "trainer")


def test_an_unknown_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'text'; it has key, time,"):
        LogReader(tmp_path, ["text"], following=True)


def stream_of(run: Path, parts: list[list[str]], side: Any = "trainer") -> Path:
    """Write an open segment whose writer is gone, a batch a part; return its path."""
    (run / "scores").mkdir(parents=True, exist_ok=True)
    stream = OpenSegment(run / "scores", new_stem(side, 1))
    for texts in parts:
        stream.write(record_batch([part_of(texts)], side, SampleKeys()))
    stream.close()
    return stream.segment.path


@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stream_torn_at_any_byte_gives_its_whole_batches(tmp_path: Path, stride: int) -> None:
    path = stream_of(tmp_path, [["a"], ["b", "c"]])
    whole = path.read_bytes()
    ends = [0]
    with path.open("rb") as file:
        ends += [end for _, end in writing_batches(file)]
    found = []
    near = {end + by for end in (*ends, schema_end(whole)) for by in range(-9, 10)}
    sizes = [at for at in range(len(whole)) if at % stride == 0 or at in near]
    for size in sizes:
        path.write_bytes(whole[:size])
        reader = LogReader(tmp_path, ["response"])
        rows = sum(batch.num_rows for batch in reader.read())
        found.append(rows)
        said = "are no whole row" in "".join(reader.left_out.values())
        assert said == (size not in (0, schema_end(whole), *ends)), size
    assert found == [int(size >= ends[1]) for size in sizes]
    path.write_bytes(whole)
    assert len(rows_in(tmp_path)) == 3


def writing_batches(file: Any) -> list[tuple[pa.RecordBatch, int]]:
    from consensuspr.score_log.segments import StreamReader

    return list(StreamReader(file).batches())


def schema_end(whole: bytes) -> int:
    from consensuspr.score_log.schema import SCHEMA

    return len(SCHEMA.serialize().to_pybytes())


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 64, b"\xff" * 64, b"\xff\xff\xff\xff" + b"\x7f" * 60, b"text", os.urandom(500)],
    ids=["zeros", "ones", "huge", "short", "noise"],
)
def test_a_tail_of_anything_is_left_out_and_said(tmp_path: Path, tail: bytes) -> None:
    path = stream_of(tmp_path, [["a"], ["b"]])
    path.write_bytes(path.read_bytes() + tail)
    reader = LogReader(tmp_path)
    assert sum(batch.num_rows for batch in reader.read()) == 2
    assert [f"{len(tail)} bytes" in said for said in reader.left_out.values()] == [True]


def test_a_closed_file_that_is_none_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream_of(tmp_path, [["a"]])
    (tmp_path / "scores" / "20200101T000000-trainer-x-1-1.parquet").write_bytes(b"PAR1 not")
    reader = LogReader(tmp_path)
    assert sum(batch.num_rows for batch in reader.read()) == 1
    assert ["no segment of a score log" in said for said in reader.left_out.values()] == [True]
    list(reader.read())
    assert len([line for line in caplog.messages if "no segment of a score log" in line]) == 1


def side_is_there(run: Path, side: str) -> bool:
    return any(row["side"] == side for row in rows_in(run, "side"))


def closed_more_than(run: Path, number: int) -> bool:
    return files(run).count(".parquet") > number


KILLED = """
import itertools, sys, pathlib
from consensuspr.score_log import ScoreLog
from consensuspr.score_log import writer
from tests.score_logs import part_of
writer.FLUSH_S = 0.0
log = ScoreLog(pathlib.Path(sys.argv[1]), sys.argv[2])
for number in itertools.count():
    log.put(part_of([f"{number} " + "x" * 20000]))
    if number == 50:
        print("ready", flush=True)
"""


def test_two_processes_are_killed_while_they_write(
    tmp_path: Path, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), side],
            stdout=subprocess.PIPE,
            cwd=repository,
            text=True,
        )
        for side in ("trainer", "server")
    ]
    try:
        for process in writers:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for side in ("trainer", "server"):
            wait_until(partial(side_is_there, tmp_path, side))
        assert all(segment.is_being_written for segment in segments(tmp_path) if segment.is_open)
    finally:
        for process in writers:
            process.kill()
            process.communicate()
    assert {process.returncode for process in writers} == {-signal.SIGKILL}
    before = rows_in(tmp_path, "side", "response")
    assert len(before) > 2
    # Of each as many as it had written, in order, none half.
    for side in ("trainer", "server"):
        texts = [row["response"] for row in before if row["side"] == side]
        assert [text.split()[0] for text in texts] == [str(at) for at in range(len(texts))]
        assert {len(text.split()[1]) for text in texts} == {20000}
    with caplog.at_level(logging.WARNING):
        log = ScoreLog(tmp_path, "trainer")
        log.put(part_of(["later"]))
        wait_until(lambda: sum(segment.is_open for segment in segments(tmp_path)) == 1)
        log.close()
    assert len(rows_in(tmp_path, "key")) == len(before) + 1
    assert files(tmp_path).count(".arrows") == 0


def test_a_stream_of_another_machine_is_left_alone_until_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock may be one that this machine cannot see."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(segmenting, "_machine", lambda: "elsewhere")
        path = stream_of(tmp_path, [["a"]])
    ScoreLog(tmp_path, "server").close()
    assert files(tmp_path) == [".arrows"]
    assert Segment(path.stem, path).is_being_written
    os.utime(path, (0, time.time() - ABANDONED_S - 60))
    assert not Segment(path.stem, path).is_being_written
    ScoreLog(tmp_path, "server").close()
    assert files(tmp_path) == [".parquet"]
    assert len(rows_in(tmp_path)) == 1


def test_a_disk_without_locks_takes_a_log_and_keeps_streams_until_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    path = stream_of(tmp_path, [["a"]])
    log = ScoreLog(tmp_path, "trainer", text_bytes=1)
    log.put(part_of(["b"]))
    log.close()
    assert files(tmp_path) == [".arrows", ".parquet"]
    os.utime(path, (0, time.time() - ABANDONED_S - 60))
    ScoreLog(tmp_path, "trainer", text_bytes=1).close()
    assert files(tmp_path) == [".parquet", ".parquet"]
    texts = [row["response"] for row in rows_in(tmp_path)]
    assert texts == [None, None], "the budget of texts is kept without locks too"


def test_a_network_disk_locks_what_is_open_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def as_nfs_does(file: Any, how: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        if how & fcntl.LOCK_EX and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(number, how)

    monkeypatch.setattr(fcntl, "flock", as_nfs_does)
    stream_of(tmp_path, [["a"]])
    ScoreLog(tmp_path, "trainer").close()
    assert files(tmp_path) == [".parquet"]


def test_streams_whose_writers_are_gone_are_closed_at_every_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(writing, "FLUSH_S", 0.0)
    log = ScoreLog(tmp_path, "trainer")
    stream_of(tmp_path, [["left"]], "server")
    log.put(part_of(["a"]))
    wait_until(lambda: files(tmp_path) == [".parquet", ".parquet"])
    log.close()
    assert len(rows_in(tmp_path)) == 2


def test_both_files_of_a_segment_count_once(tmp_path: Path) -> None:
    path = stream_of(tmp_path, [["a"], ["b"]])
    stream = path.read_bytes()
    ScoreLog(tmp_path, "trainer").close()
    assert files(tmp_path) == [".parquet"]
    path.write_bytes(stream)  # as where it was killed before the stream was removed
    assert len(rows_in(tmp_path)) == 2
    ScoreLog(tmp_path, "trainer").close()
    assert files(tmp_path) == [".parquet"]
    assert len(rows_in(tmp_path)) == 2


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


def test_samples_without_a_key_are_all_different(tmp_path: Path) -> None:
    for _ in range(2):
        log = ScoreLog(tmp_path, "server")
        log.put(part_of(["same", "same"]))
        log.close()
    assert len(rows_in(tmp_path)) == 4


def test_a_reader_follows(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, ["response"], following=True)

    def come() -> list[str]:
        return [row["response"] for batch in reader.read() for row in batch.to_pylist()]

    assert come() == []
    log = ScoreLog(tmp_path, "trainer")
    log.put(part_of(["a"]))
    wait_until(lambda: come() == ["a"])
    log.put(part_of(["b", "c"]))
    found: list[str] = []

    def both() -> bool:
        found.extend(come())
        return found == ["b", "c"]

    wait_until(both)
    resumed = Position.of_json(reader.position.to_json())
    log.put(part_of(["d"]))
    log.close()  # a stream becomes a file under the reader
    assert come() == ["d"]
    assert come() == []
    other = LogReader(tmp_path, ["response"], position=resumed, following=True)
    assert [row for batch in other.read() for row in batch["response"].to_pylist()] == ["d"]
    with pytest.raises(InputError, match="no position in a score log"):
        Position.of_json("[1]")


def test_while_following_a_servers_row_waits_for_its_trainers(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, ["side"], following=True)

    def come() -> list[str]:
        return [side for batch in reader.read() for side in batch["side"].to_pylist()]

    server, trainer = ScoreLog(tmp_path, "server"), ScoreLog(tmp_path, "trainer")
    # In an hour, for however long the rest takes: what was scored half a minute ago does not wait.
    later = time.time() + 3600
    server.put(part_of(["a", "b"], samples=[sample(1), sample(2)], unix_s=later))
    server.put(part_of(["old"], samples=[sample(3)], unix_s=time.time() - 3600))
    server.close()
    trainer.put(part_of(["a"], samples=[sample(1)]))
    trainer.close()
    assert come() == ["trainer"]
    stream_of(tmp_path, [["old"]], "server")
    assert len(rows_in(tmp_path)) == 4


def test_steps_that_a_later_start_did_again_do_not_count(tmp_path: Path) -> None:
    begun = time.time() - 1000
    for start, (first, last) in enumerate([(1, 5), (4, 6)]):
        # Two workers of each start, which write at the same time.
        for _ in range(2):
            keys = SampleKeys()
            log = ScoreLog(tmp_path, "trainer")
            for step in range(first, last + 1):
                log.put(
                    part_of(
                        [f"start {start}"],
                        samples=[sample(step, step, keys)],
                        unix_s=begun + 100 * start + step,
                    )
                )
            log.close()
    rows = rows_in(tmp_path, "step", "response")
    counted = sorted({(row["step"], row["response"]) for row in rows})
    assert counted == [(1, "start 0"), (2, "start 0"), (3, "start 0")] + [
        (step, "start 1") for step in (4, 5, 6)
    ]
    assert len(rows) == 12


def test_two_processes_of_one_start_may_score_one_after_the_other(tmp_path: Path) -> None:
    """Eight workers begin at once; who scores few samples is no earlier start."""
    logs = [ScoreLog(tmp_path, "trainer") for _ in range(3)]
    for number, log in enumerate(logs):
        log.put(part_of(["a"], samples=[sample(number, 1, SampleKeys())], unix_s=time.time()))
        log.close()
    assert len(rows_in(tmp_path)) == 3


def test_a_stream_that_is_being_made_is_left_to_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers begin at once: one looks for streams to close before another has locked its own."""
    (tmp_path / "scores").mkdir()
    lock = segmenting.try_lock

    def looked_for_first(file: Any, *, shared: bool = False) -> bool | None:
        with monkeypatch.context() as patched:
            patched.setattr(segmenting, "try_lock", lock)
            assert segmenting.close_abandoned(tmp_path) == []
        return lock(file, shared=shared)

    monkeypatch.setattr(segmenting, "try_lock", looked_for_first)
    made = OpenSegment(tmp_path / "scores", new_stem("trainer", 1))
    assert not made.is_removed
    made.close()


def test_a_server_alone_tells_processes_of_one_start_from_the_next(tmp_path: Path) -> None:
    begun = time.time() - 1000
    log = ScoreLog(tmp_path, "server")
    for start, later_s in ((0, 0.0), (0, 1.0), (1, 60.0), (1, 61.0)):
        samples = [sample(7, 3, SampleKeys())]
        log.put(part_of([f"start {start}"], samples=samples, unix_s=begun + later_s))
    log.close()
    assert [row["response"] for row in rows_in(tmp_path)] == ["start 1", "start 1"]


def test_who_follows_hears_that_steps_were_done_again(tmp_path: Path) -> None:
    def start(first: int, last: int, unix_s: float) -> None:
        keys = SampleKeys()
        log = ScoreLog(tmp_path, "trainer")
        for step in range(first, last + 1):
            samples = [sample(step, step, keys)]
            log.put(part_of(["x"], samples=samples, unix_s=unix_s + step))
        log.close()

    def steps(reader: LogReader) -> list[int]:
        return [step for batch in reader.read() for step in batch["step"].to_pylist()]

    begun = time.time() - 1000
    reader = LogReader(tmp_path, ["step"], following=True)
    start(1, 5, begun)
    assert steps(reader) == [1, 2, 3, 4, 5]
    start(6, 7, begun + 100)  # goes on where the first ended
    assert steps(reader) == [6, 7]
    assert not reader.redone
    start(5, 6, begun + 200)
    assert steps(reader) == [5, 6]
    assert reader.redone
    assert sorted(steps(LogReader(tmp_path, ["step"], following=True))) == [1, 2, 3, 4, 5, 6]


def assert_told(run: Path, log: ScoreLog) -> None:
    """Assert that who reads the run is told what its writer has lost."""
    reader = LogReader(run)
    list(reader.read())
    (sentence,) = reader.left_out.values()
    rows, texts = (f"{n} row{'s' * (n > 1)}" for n in (log.lost_rows, log.lost_texts))
    what = [*([rows] * bool(log.lost_rows)), *([f"the text of {texts}"] * bool(log.lost_texts))]
    assert f"had to give up {' and '.join(what)}; figures" in sentence


def test_losses_are_told_where_nobody_else_has_the_rows(tmp_path: Path) -> None:
    def lose_one(side: Side) -> None:
        log = ScoreLog(tmp_path, side)
        log.put(part_of(["kept"]))
        wrong: Any = ["not a number"]
        log.put(part_of(["lost"], final_score=wrong))
        log.close()
        assert log.lost_rows == 1

    def told() -> list[str]:
        reader = LogReader(tmp_path)
        list(reader.read())
        return [*reader.left_out.values()]

    lose_one("server")
    [sentence] = told()
    assert "had to give up 1 row; figures" in sentence
    lose_one("trainer")
    [sentence] = told()
    assert "-trainer-" in sentence, "of a sample that the server lost the trainer's row is there"
    # What is no such file tells nothing, and breaks nothing.
    (tmp_path / "scores" / "folder.lost").mkdir()
    for number, text in enumerate(('"x"', "[]", '{"rows": null, "texts": 0}', "", '{"rows": 1}')):
        (tmp_path / "scores" / f"{number}.lost").write_text(text)
    assert told() == [sentence]


def test_a_full_disk_costs_texts_and_rows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[tuple[int, int]] = []
    log = ScoreLog(tmp_path, "trainer", on_loss=lambda rows, texts: lost.append((rows, texts)))
    room = {"bytes": 0}
    write = os.write

    def full(file: int, data: Any) -> int:
        taken = bytes(data)[: room["bytes"]]
        if len(taken) < len(data) and not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room["bytes"] -= len(taken)
        return write(file, taken)  # the first part of it, as a disk that gets full does

    monkeypatch.setattr("consensuspr.score_log.segments.os.write", full)
    log.put(part_of(["no room at all"]))
    wait_until(lambda: lost == [(1, 0)])
    room["bytes"] = 20_000
    log.put(part_of([os.urandom(40_000)]))  # of 40 KB, 20 fit: it goes in without its text
    wait_until(lambda: lost[1:] == [(1, 0)] or lost[1:] == [(0, 1)])
    room["bytes"] = 1 << 30
    log.put(part_of(["room"]))
    log.close()
    assert (log.lost_rows, log.lost_texts) == tuple(map(sum, zip(*lost, strict=True)))
    texts = [row["response"] for row in rows_in(tmp_path)]
    assert texts[-1] == "room"
    assert len(texts) == 3 - log.lost_rows
    assert_told(tmp_path, log)


def test_a_row_with_a_defect_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[int] = []
    monkeypatch.setattr(writing, "FLUSH_S", 3600.0)
    log = ScoreLog(tmp_path, "trainer", on_loss=lambda rows, texts: lost.append(rows))
    wrong: Any = ["not a number"]
    log.put(part_of(["a"]))
    log.put(part_of(["b"], final_score=wrong))
    log.put(part_of(["c"]))
    log.close()
    assert [row["response"] for row in rows_in(tmp_path)] == ["a", "c"]
    assert (lost, log.lost_rows, log.lost_texts) == ([1], 1, 0)
    assert "a defect of the score log" in caplog.messages
    assert any("1 rows are lost: Arrow" in line for line in caplog.messages)


@pytest.mark.parametrize("broken", ["_rotate", "_leave_removed", "_keep_datasets", "_on_loss"])
def test_no_defect_ends_the_thread(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*given: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(writing, "FLUSH_S", 0.0)
    log = ScoreLog(tmp_path, "trainer")
    with monkeypatch.context() as patched:
        patched.setattr(log._writer, broken, defect)
        log.put(part_of(["a"]))
        wait_until(lambda: len(rows_in(tmp_path)) == 1)
        log._writer._lose(0, 0, "to tell of it")
        wait_until(lambda: any("a defect: a defect" in line for line in caplog.messages))
        log.put(part_of(["b"]))
        wait_until(lambda: len(rows_in(tmp_path)) == 2)
    log.close()
    assert files(tmp_path) == [".parquet"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_comes_when_the_thread_has_ended_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended(BaseException):
        pass

    def end(*given: object) -> None:
        raise Ended

    log = ScoreLog(tmp_path, "trainer")
    monkeypatch.setattr(log._writer, "_write", end)
    log.put(part_of(["a", "b"]))
    wait_until(lambda: log.lost_rows == 2)
    assert any("the thread that writes has ended" in line for line in caplog.messages)
    log.put(part_of(["c"]))
    assert log.lost_rows == 3
    log.close()


def test_a_dataset_that_could_not_be_kept_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def keep(run: Path, index: Any) -> None:
        tries.append(index.digest)
        if len(tries) == 1:
            raise InputError("no space left on device")

    monkeypatch.setattr(writing, "keep_dataset", keep)
    monkeypatch.setattr(writing, "KEEP_AGAIN_S", 0.0)
    monkeypatch.setattr(writing, "FLUSH_S", 0.0)
    log = ScoreLog(tmp_path, "server")
    index: Any = SimpleNamespace(digest="sha256:1")

    def kept() -> bool:
        log._writer.keep(index)
        log.put(part_of(["a"]))
        return len(tries) >= 2

    wait_until(kept)
    log.close()
    assert len(tries) == 2


def test_a_folder_that_is_removed_costs_what_was_in_it_and_nothing_later(tmp_path: Path) -> None:
    run = tmp_path / "run"
    log = ScoreLog(run, "server")
    log.put(part_of(["a", "b"]))
    wait_until(lambda: len(rows_in(run)) == 2)
    shutil.rmtree(run)
    log.put(part_of(["c"]))
    log.close()
    assert [row["response"] for row in rows_in(run)] == ["c"]
    assert log.lost_rows == 2
    assert_told(run, log)


def test_a_queue_that_is_full_drops_texts_and_then_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "QUEUE_BYTES", 10_000)
    monkeypatch.setattr(writing, "FLUSH_S", 3600.0)
    log = ScoreLog(tmp_path, "trainer")
    for _ in range(30):
        log.put(part_of(["x" * 5000]))
    log.close()
    rows = rows_in(tmp_path)
    kept = [row for row in rows if row["response"] is not None]
    assert 1 <= len(kept) <= 2
    assert len(rows) + log.lost_rows == 30
    assert len(rows) - len(kept) == log.lost_texts > 0
    assert log.lost_rows > 0
    assert {row["response_size"] for row in rows} == {5000}
    assert_told(tmp_path, log)


def test_the_oldest_texts_are_given_up_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 1)  # a segment for each flush
    for number in range(4):
        log = ScoreLog(tmp_path, "trainer", text_bytes=150_000)
        log.put(part_of([os.urandom(30_000).hex() + str(number)]))
        log.close()
    texts = [row["response"] for row in rows_in(tmp_path)]
    kept = [text is not None for text in texts]
    assert kept == sorted(kept)
    assert any(kept)
    assert not all(kept)
    assert len(texts) == 4
    total = sum(path.stat().st_size for path in (tmp_path / "scores").glob("*.parquet"))
    assert total <= 150_000


def test_without_a_budget_no_text_is_kept(tmp_path: Path) -> None:
    log = ScoreLog(tmp_path, "trainer", text_bytes=0)
    log.put(part_of(["a"]))
    log.close()
    [row] = rows_in(tmp_path)
    assert (row["response"], row["response_size"], log.lost_texts) == (None, 1, 0)


def test_a_huge_text_is_a_batch_of_its_own(tmp_path: Path) -> None:
    log = ScoreLog(tmp_path, "trainer")
    for size in (10, 16 << 20, 10):
        log.put(part_of(["x" * size]))
    log.close()
    assert [len(row["response"]) for row in rows_in(tmp_path)] == [10, 16 << 20, 10]


ENDS = """
import sys, pathlib, threading
from consensuspr.score_log import ScoreLog
from tests.score_logs import part_of, wait_until
log = ScoreLog(pathlib.Path(sys.argv[1]), "trainer")
wait_until(lambda: (one := log._writer._closer) and one.ident and not one.is_alive())
log.put(part_of(["a"]))

def start(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")

threading.Thread.start = start
"""


def test_a_process_that_just_ends_closes_its_segment(tmp_path: Path, repository: Path) -> None:
    """From Python 3.12 on, no thread can be started by then."""
    command = [sys.executable, "-c", ENDS, str(tmp_path)]
    ended = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert files(tmp_path) == [".parquet"]
    assert len(rows_in(tmp_path)) == 1


def test_a_segment_is_closed_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 5000)
    monkeypatch.setattr(writing, "FLUSH_S", 0.0)
    log = ScoreLog(tmp_path, "trainer")
    for number in range(3):
        log.put(part_of([str(number)]))
        wait_until(partial(closed_more_than, tmp_path, number))
    log.close()
    assert [row["response"] for row in rows_in(tmp_path)] == ["0", "1", "2"]


def test_names_of_segments_say_their_side(tmp_path: Path) -> None:
    stem = new_stem("server", 3)
    assert Segment(stem, tmp_path / f"{stem}.arrows").side == "server"
