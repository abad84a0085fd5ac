"""The suite of many problems, on few."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.children.dataset import Loaded, problem_id
from benchmarks.measure import Context, Resident, WrongAnswerError, resident
from benchmarks.suites import problems
from benchmarks.suites.problems import Sizes, measure
from consensuspr.data import read_problems

FORMATS = ("prepared", "jsonl", "jsonl.gz", "parquet")


def context(scratch: Path) -> Context:
    return Context(full=False, seed=20, rounds=1, data=None, scratch=scratch)


@pytest.mark.slow
def test_every_format_of_every_size_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "PAPER", 40)
    found = measure(context(tmp_path), Sizes((20, 40), (20,), (20,), 1))
    shown = {
        (figure.parameters["problems"], figure.parameters["from"])
        for figure in found.figures
        if figure.name == "ready to score"
    }
    both = {(count, name) for count in (20, 40) for name in FORMATS}
    assert shown == both | {(20, "jsonl, forms to make")}
    assert [check.target for check in found.checks] == [
        "ready_5577_s",
        "ready_5577_mb",
        "million_resident_bytes",
    ]
    seconds, megabytes, _ = (check.value for check in found.checks)
    assert seconds is not None
    assert seconds > 0
    # Forty problems may fit into what the process had from the system before.
    assert megabytes is not None
    assert megabytes >= 0
    assert found.checks[2].value is None
    assert "bytes of each further problem up to 40" in found.checks[2].note
    assert "1,000,000" in found.checks[2].note
    served = {figure.name for figure in found.figures if "server" in str(figure.parameters["from"])}
    assert "workers, used: sum of PSS" in served
    assert list(tmp_path.glob("problems-*")) == []


@pytest.mark.slow
def test_a_million_problems_are_judged_by_a_million(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "MILLION", 400)
    (check,) = measure(context(tmp_path), Sizes((20, 400), (), (), 1)).checks
    assert check.target == "million_resident_bytes"
    assert check.value is not None
    assert "up to 400" in check.note


def test_formats_that_differ_are_no_contenders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(path: Path, problems: list[dict[str, object]], count: int, *, stored: bool) -> Path:
        return write(path, problems, count - (path.suffix == ".gz"), stored=stored)

    write = problems.write
    monkeypatch.setattr(problems, "write", lossy)
    with pytest.raises(WrongAnswerError, match="20 problems have 2 digests"):
        measure(context(tmp_path), Sizes((20,), (), (), 1))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_files_hold_each_id_once_and_the_pool_in_turn(tmp_path: Path, name: str) -> None:
    pool = problems.make_pool(3, 4)
    path = problems.write(tmp_path / name, pool, 10, stored=True)
    found = {problem.problem_id: problem for problem in read_problems(path)}
    assert sorted(found) == [problem_id(number) for number in range(10)]
    for number in range(10):
        expected = problems.content(pool, number, 10)
        assert found[problem_id(number)].ground_truth == expected["ground_truth"]
    bare = problems.write(tmp_path / name, pool, 10, stored=False)
    assert all(node.derived is None for one in read_problems(bare) for node in one.nodes)


def test_memory_is_told_apart() -> None:
    held = resident()
    block = bytearray(b"x" * (32 << 20))
    more = resident()
    assert more.anonymous - held.anonymous > 24 << 20
    assert more.rss == more.anonymous + more.mapped
    del block


def test_a_process_that_gave_memory_back_has_none_more() -> None:
    more, less = Resident(5 << 20, 3 << 20, 0), Resident(4 << 20, 2 << 20, 0)
    loaded = Loaded(1.0, 1.0, before=more, after=less, read=less, peak=5 << 20, digest="")
    assert (loaded.own, loaded.grown) == (0, 0)
