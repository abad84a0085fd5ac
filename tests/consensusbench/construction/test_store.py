"""What a build keeps on disk: rollouts, how they were sampled, and extractions of a killed one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction.store import Inputs, SpooledRollout, sampling_records
from consensuspr.errors import DataError
from tests.consensusbench.conftest import journal_records
from tests.consensusbench.construction.conftest import HERE, Listener, Toys, outputs, written
from tests.processes import descendants, wait_for, wait_until_gone

# Rollouts put on disk in any order come back by problem, each text once.

ROWS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["", "ada", "bea"]),
        st.one_of(st.none(), st.text(max_size=4)),
        st.text(max_size=6) | st.sampled_from(["same", "same too", "\ud800 lone"]),
        st.sampled_from([None, False, True]),
    )
)
RolloutRow = tuple[int, str, str | None, str, bool | None]


def spooled(folder: Path, rows: Sequence[RolloutRow]) -> Inputs:
    """Return the finished inputs of rows."""
    inputs = Inputs(folder)
    for problem, model, name, text, label in rows:
        inputs.add(problem, model, SpooledRollout(name, "", text), label)
    inputs.finish()
    return inputs


@given(ROWS)
def test_every_text_comes_back_once_with_its_problem(rows: list[RolloutRow]) -> None:
    with tempfile.TemporaryDirectory() as folder, spooled(Path(folder), rows) as inputs:
        for problem in range(-1, 6):
            mine = [row for row in rows if row[0] == problem]
            stored = inputs.rollouts_of(problem)
            assert {inputs.read(one.at).response for one in stored} == {row[3] for row in mine}
            assert sum(one.repeats for one in stored) + len(stored) == len(mine)
            for one in stored:
                name, _, text = inputs.read(one.at)
                same = [row for row in mine if row[3] == text]
                # Of a repeated text, the first model in the alphabet, and its first name.
                assert one.model == min(row[1] for row in same)
                assert (name or "") == min(row[2] or "" for row in same if row[1] == one.model)
                labels = {row[4] for row in same}
                assert one.label == (False if False in labels else None if None in labels else True)


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with spooled(tmp_path, [(0, "ada", "r", "text", True)]):
        assert list(tmp_path.iterdir()) == []


# How rollouts were sampled: the file beside them ends up in the dataset.


def test_what_lies_beside_rollouts_is_recorded(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 2)
    beside = {"prompt": "Solve {problem}", "per_problem": 5, "counts": {"rows": 12}}
    (tmp_path / "rollouts.jsonl.provenance.json").write_text(json.dumps(beside))
    toys.build()
    assert toys.made()["provenance"]["sampling"] == [
        {"prompt": "Solve {problem}", "per_problem": 5}
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "holds no JSON object; remove it to build without it"),
        ("{", "holds no JSON object"),
        (json.dumps({"prompt": "x" * 70_000}), "holds 70014 bytes, the limit is 65536"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "r.provenance.json").write_text(content)
    with pytest.raises(DataError, match=rf"r\.provenance\.json: {sentence}"):
        sampling_records([tmp_path / "r"])


# A real process that is killed or interrupted in the middle of a build, and the next one.

PROBLEMS = 24

SCRIPT = """
import sys
from pathlib import Path
from construction_toys import ToyExtractor, ToyRefiner
from consensusbench.construction import BuildJob, OutputPaths, build

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    paths = OutputPaths(folder / "dataset.jsonl", folder / "dataset.audit.jsonl")
    build(BuildJob((folder / "rollouts.jsonl",), paths, ToyExtractor(sleep_s=0.15), ToyRefiner(),
                   folder / "problems.jsonl"))
"""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let children heed Ctrl-C also where these tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    """Problems and rollouts, written into their folder."""
    toys = Toys.of(tmp_path, PROBLEMS)
    toys.write()
    return toys


@contextmanager
def running(repository: Path, folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a build in a process group of its own and wait until some problems are extracted."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(repository), str(HERE), *sys.path])},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: extracted(folder) >= 5, process, 60)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def half_done(toys: Toys, repository: Path) -> Iterator[subprocess.Popen[str]]:
    """A build of the toys' folder that has some problems extracted."""
    with running(repository, toys.folder, "-c", SCRIPT, str(toys.folder)) as process:
        yield process


def extracted(folder: Path) -> int:
    """Return how many problems the journal of a build holds."""
    return len(journal_records(folder / "dataset.jsonl.partial"))


def test_a_killed_build_goes_on_where_it_was_and_leaves_no_worker(
    toys: Toys, half_done: subprocess.Popen[str]
) -> None:
    workers = descendants(half_done.pid)
    assert workers
    half_done.kill()
    half_done.wait()
    wait_until_gone(workers)
    assert not any(path.exists() for path in outputs(toys.folder).all())
    left = extracted(toys.folder)
    assert 5 <= left < PROBLEMS
    listener = Listener()
    report = toys.build(listener)
    assert listener.notes == ["an earlier run left extracted problems; going on with the others"]
    assert report.resumed == left
    assert not (toys.folder / "dataset.jsonl.partial").exists()
    clean = toys.at("clean")
    clean.build()
    assert written(outputs(toys.folder)) == written(outputs(clean.folder))


def test_an_interrupted_command_says_how_it_goes_on(tmp_path: Path, repository: Path) -> None:
    problems, rollouts = map(str, Toys.of(tmp_path, 1500).write())
    command = [
        "-m", "consensusbench.cli", "build", rollouts, "--no-progress", "--problems", problems,
        "--output", str(tmp_path / "dataset.jsonl"),
    ]  # fmt: skip
    with running(repository, tmp_path, *command) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[0] == "what is extracted is kept; the same command goes on from there"
    assert "Traceback" not in said
