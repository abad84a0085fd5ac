"""The store: what is asked at one moment agrees, searches go on, and nothing stays behind."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from consensuspr.score_log import ScoreLog
from consensuspr.scoring.types import SampleKeys
from consensuspr.web.sources import FOLDER_PREFIX, LogSource
from consensuspr.web.store import Filter, Moment, Store
from consensuspr.web.views import Views
from tests.score_logs import part_of, sample

BEGAN = time.time() - 1000


def log_steps(run: Path, start: int, steps: range, each: int = 1, text: str = "start") -> None:
    """Log some samples a step, as one start of a trainer."""
    log, keys = ScoreLog(run, "trainer"), SampleKeys()
    for step in steps:
        samples = [sample(each * step + at, step, keys) for at in range(each)]
        texts = [f"{text} {start}"] * each
        log.put(part_of(texts, samples=samples, unix_s=BEGAN + 100 * start + step))
    log.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of five steps."""
    log_steps(tmp_path / "run", 1, range(1, 6), each=4)
    return tmp_path / "run"


@pytest.fixture
def opened(run: Path) -> Iterator[Store]:
    """Its store, read."""
    opened = Store([LogSource(run)])
    opened.read_whole()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["p/a/score-log"], ["a"]),
        (["p/a/score-log", "p/b/score-log"], ["a", "b"]),
        (["p/a/score-log", "q/a/score-log", "q/b"], ["p/a", "q/a", "b"]),
        (["p/a/seed0", "p/b/seed0", "p/a/seed0"], ["a/seed0", "b/seed0", "a/seed0"]),
    ],
)
def test_runs_of_one_folder_name_are_told_apart(
    tmp_path: Path, folders: list[str], names: list[str]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    store = Store([LogSource(tmp_path / folder) for folder in folders])
    assert [run.source.name for run in store.runs] == names
    store.close()


def counts(now: Moment) -> list[int]:
    """Return how many samples there are, counted in several ways."""
    total, rows = now.count(Filter(limit=500)), now.page(Filter(limit=500))
    where, values = now.where(Filter())
    [steps] = now.rows(f"SELECT count(DISTINCT step) AS n FROM samples WHERE {where}", values)
    return [total, len(rows), now.runs[0].rows, 4 * steps["n"]]


def test_a_moment_stays_as_it_was_while_samples_come(opened: Store, run: Path) -> None:
    with opened.moment() as before:
        log_steps(run, 2, range(6, 9), each=4)
        opened.read_whole()
        assert counts(before) == [20] * 4
        with opened.moment() as after:
            assert counts(after) == [32] * 4
            assert after.revision > before.revision
        assert counts(before) == [20] * 4


def test_a_moment_stays_as_it_was_while_a_run_is_read_anew(opened: Store, run: Path) -> None:
    views = Views(opened)
    with views.now() as before, opened.moment() as moment:
        log_steps(run, 2, range(4, 7), each=4)  # steps 4 and 5 are done again
        opened.read_whole()
        assert counts(moment) == [20] * 4
        assert before.state()["runs"][0]["samples"] == before.answer("samples")["total"] == 20
        key = moment.page(Filter(limit=1))[0]["key"]
        assert before.answer(f"sample/0/{key}")["text"][0]["text"] == "start 1"
    with views.now() as after, opened.moment() as moment:
        assert counts(moment) == [24] * 4
        assert after.state()["runs"][0]["samples"] == after.answer("samples")["total"] == 24
        key = moment.page(Filter(limit=1))[0]["key"]
        assert after.answer(f"sample/0/{key}")["text"][0]["text"] == "start 2"
        # Of what was read before nothing is left.
        [left] = moment.rows("SELECT count(*) AS n FROM samples")
        assert left["n"] == 24
    views.close()


def test_results_are_kept_until_more_samples_come(opened: Store, run: Path) -> None:
    made: list[int] = []
    for _ in range(3):
        with opened.moment() as now:
            now.remembered(("x",), lambda: made.append(1))
    assert made == [1]
    log_steps(run, 2, range(6, 7))
    opened.read_whole()
    with opened.moment() as now:
        now.remembered(("x",), lambda: made.append(2))
    assert made == [1, 2]


def test_folders_of_pages_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / f"{FOLDER_PREFIX}killed"
    killed.mkdir()
    os.utime(killed, (0, 0))
    first, second = Store([]), Store([])
    assert not killed.exists()
    assert len(list(tmp_path.glob(f"{FOLDER_PREFIX}*"))) == 2, "one that lives keeps its own"
    for opened in (first, second):
        opened.close()
    assert not list(tmp_path.glob(f"{FOLDER_PREFIX}*"))
