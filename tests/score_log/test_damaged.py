"""Every reader of a run skips a damaged file, names it and shows the rest."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from consensuspr.cli import main
from consensuspr.score_log import LogReader, ScoreLog, writer
from tests.damaged_logs import DAMAGES, damage
from tests.processes import wait_for
from tests.score_log.test_replay import logged
from tests.score_logs import part_of, rows_in, write_log
from tests.watched import DATASET, opened


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run of two files, and the rows of each."""
    run = tmp_path_factory.mktemp("whole")
    logged(run)
    return run, logged(run)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_named_and_the_others_are_read(
    tmp_path: Path,
    whole: tuple[Path, int],
    name: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, number = whole
    run = shutil.copytree(folder, tmp_path / "run")
    path = damage(run, name)
    assert main(["curves", str(run), "--json"]) == 0, capfd.readouterr().err
    points = json.loads(capfd.readouterr().out)
    assert sum(point["samples"] for point in points) == number
    [message] = [line for line in caplog.messages if path in line]
    assert DAMAGES[name][1] in message
    assert "left out" in message


def test_every_reader_shows_the_other_files(
    tmp_path: Path, whole: tuple[Path, int], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, number = whole
    names = {name: damage(shutil.copytree(folder, tmp_path / name), name) for name in DAMAGES}
    for command in ("replay", "explain"):
        assert main([command, str(tmp_path / "cut"), "--json"]) == 0, capfd.readouterr().err
    with opened(*(tmp_path / name for name in DAMAGES), dataset=DATASET) as page:
        page.wait_read()
        for run in page.get("state")["runs"]:
            name = run["name"]
            assert run["samples"] == number, name
            [sentence] = run["left_out"]
            assert names[name] in sentence
            assert DAMAGES[name][1] in sentence
            [row, *_] = page.get("samples", run=run["id"], kind="failed")["rows"]
            assert page.get(f"sample/{run['id']}/{row['key']}")


def test_the_page_shows_a_reward_that_is_no_number_as_unknown(tmp_path: Path) -> None:
    rows = [
        {"time": 1, "step": 1, "status": "OK", "reward": value, "acc": 1.0}
        for value in (math.nan, math.inf)
    ]
    write_log(tmp_path, rows)
    with opened(tmp_path) as page:
        page.wait_read()
        shown = page.get("samples")["rows"]
        assert [(row["reward"], row["acc"]) for row in shown] == [(None, 1.0)] * 2
        assert page.get("curves")["runs"][0]["x"] == [1]


def test_a_file_without_any_row_left_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(tmp_path)
    damage(tmp_path, "null key")
    assert main(["curves", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("the score log has no sample\n")


def test_a_file_that_is_still_being_copied_is_read_once_it_is_whole(tmp_path: Path) -> None:
    number = logged(tmp_path)
    [path] = (tmp_path / "scores").glob("*.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    reader = LogReader(tmp_path, following=True)
    assert not list(reader.read())
    assert len(reader.left_out) == 1
    path.write_bytes(content)
    assert sum(batch.num_rows for batch in reader.read()) == number
    assert not reader.left_out


def test_a_damaged_file_does_not_lift_the_bound_on_texts(tmp_path: Path) -> None:
    logged(tmp_path)
    logged(tmp_path)
    first, _ = sorted((tmp_path / "scores").glob("*.parquet"))
    first.write_bytes(b"PAR1 not")
    with closing(ScoreLog(tmp_path, "trainer", text_bytes=0)) as log:
        log.put(part_of(["a"]))
        wait_for(lambda: {row["response"] for row in rows_in(tmp_path, "response")} == {None})


def test_a_damaged_file_costs_no_later_one_of_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FILE_ROWS", 1)
    with closing(ScoreLog(tmp_path, "trainer")) as log:
        for text in ("a", "b", "c"):
            log.put(part_of([text]))
            wait_for(lambda: not log._parts)
    sorted((tmp_path / "scores").glob("*.parquet"))[1].write_bytes(b"PAR1 not")
    assert [row["response"] for row in rows_in(tmp_path)] == ["a", "c"]
