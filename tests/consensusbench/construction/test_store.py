"""The inputs of a build on disk, and a build that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction.store import Inputs, StoredRollout, sampling_records
from consensuspr.errors import DataError
from tests.consensusbench.conftest import journal_records
from tests.consensusbench.construction.conftest import HERE, Toys, outputs, written
from tests.processes import descendants, wait_for, wait_until_gone

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


@given(ROWS)
def test_every_text_comes_back_once_with_its_problem(rows: Sequence[RolloutRow]) -> None:
    with tempfile.TemporaryDirectory() as folder, Inputs(Path(folder)) as inputs:
        for number, model, name, text, label in rows:
            inputs.add(number, model, StoredRollout(name, "", text), label)
        inputs.finish()
        assert not os.listdir(folder)  # the file has no name
        for number in range(-1, 6):
            of_problem = [row for row in rows if row[0] == number]
            stored = inputs.rollouts_of(number)
            texts = {inputs.read(found.at).response for found in stored}
            assert texts == {row[3] for row in of_problem}
            assert sum(found.repeats for found in stored) + len(stored) == len(of_problem)
            for found in stored:
                name, _, text = inputs.read(found.at)
                same = [row for row in of_problem if row[3] == text]
                # Of a repeated text, the first model in the alphabet, and its first name.
                assert found.model == min(row[1] for row in same)
                assert (name or "") == min(row[2] or "" for row in same if row[1] == found.model)
                labels = {row[4] for row in same}
                expected = False if False in labels else None if None in labels else True
                assert found.label == expected


def test_sampling_records_end_up_in_the_dataset(tmp_path: Path) -> None:
    toys = Toys.of(tmp_path, 2)
    beside = {"prompt": "Solve {problem}", "per_problem": 5}
    path = tmp_path / "rollouts.jsonl.provenance.json"
    path.write_text(json.dumps(beside | {"counts": {"rows": 12}}))
    toys.build()
    assert toys.made()["provenance"]["sampling"] == [beside]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "holds no JSON object; remove it to build without it"),
        ("{", "holds no JSON object"),
        (json.dumps({"prompt": "x" * 70_000}), "holds 70014 bytes, the limit is 65536"),
    ],
)
def test_a_bad_sampling_record_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "r.provenance.json").write_text(content)
    with pytest.raises(DataError, match=rf"r\.provenance\.json: {sentence}"):
        sampling_records([tmp_path / "r"])


SCRIPT = """
import sys
from pathlib import Path
from construction_toys import ToyExtractor, ToyRefiner
from consensusbench.construction import BuildJob, OutputPaths, build

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    paths = OutputPaths(folder / "dataset.jsonl", folder / "dataset.audit.jsonl")
    build(BuildJob((folder / "rollouts.jsonl",), paths, ToyExtractor(sleep_s=0.1), ToyRefiner(),
                   folder / "problems.jsonl"))
"""


def test_a_killed_build_goes_on_and_leaves_no_worker(tmp_path: Path, repository: Path) -> None:
    toys = Toys.of(tmp_path, problems := 16)
    toys.write()

    def extracted() -> int:
        return len(journal_records(tmp_path / "dataset.jsonl.partial"))

    path = os.pathsep.join([str(repository), str(HERE), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        wait_for(lambda: extracted() >= 5, process, 60)
        workers = descendants(process.pid)
        assert workers
    finally:
        process.kill()
        process.wait()
    wait_until_gone(workers)
    assert not any(path.exists() for path in outputs(tmp_path).all())
    left = extracted()
    assert 5 <= left < problems
    assert toys.build().resumed == left
    assert not (tmp_path / "dataset.jsonl.partial").exists()
    clean = toys.at("clean")
    clean.build()
    assert written(outputs(tmp_path)) == written(outputs(clean.folder))
