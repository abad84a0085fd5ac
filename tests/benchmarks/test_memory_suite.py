"""The memory suite, run for real on little."""

from __future__ import annotations

import pytest

from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context
from benchmarks.suites import memory

# A dozen interpreters and a server are started to be looked at.
pytestmark = pytest.mark.slow

TINY = memory.Sizes(batch=40, text_bytes=2_000, nodes=(2, 50), matcher_nodes=400, workers=(1,))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    """The suite's result, a real server's memory among it."""
    return memory.measure(Context(False, 1, 1, None, tmp_path_factory.mktemp("scratch")), TINY)


def values(result: SuiteResult, name: str, parameter: str) -> dict[object, float]:
    """Return the figures called ``name`` by one of their parameters."""
    return {f.parameters[parameter]: f.value for f in result.figures if f.name == name}


def test_imports_are_above_the_bare_interpreter(result: SuiteResult) -> None:
    found = values(result, "resident after start", "process")
    bare = found.pop("the interpreter alone")
    assert set(found) == set(memory.IMPORTS) - {"the interpreter alone"}
    assert all(value > bare for value in found.values())


def test_more_nodes_take_more(result: SuiteResult) -> None:
    found = values(result, "nbytes of a matcher", "nodes")
    assert 0 < found[2] < found[50]
    assert values(result, "resident of a matcher", "nodes")[50] > 0


def test_a_batch_is_measured_in_each_way(result: SuiteResult) -> None:
    found = values(result, "peak of a batch beyond its texts", "call")
    assert set(found) == {
        "match_batch, 1 threads",
        "match_batch, 2 threads",
        "LocalClient.score, the first",
        "LocalClient.score, the next",
    }
    assert found["LocalClient.score, the first"] > 0


def test_a_server_is_counted_with_its_workers(result: SuiteResult) -> None:
    found = [figure for figure in result.figures if figure.name == "server, all processes"]
    assert [figure.parameters["when"] for figure in found] == [
        "idle",
        "after a batch",
        "after five batches",
    ]
    for figure in found:
        assert figure.parameters["processes"] == 2
        assert figure.value > 20
