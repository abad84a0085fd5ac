"""The matcher as its users meet it: arguments, errors, results, pickles, threads."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from consensuspr import core
from consensuspr.core import patterns
from consensuspr.core.patterns import MAX_NODES, Channel, Hit

# --- what a matcher is made of -------------------------------------------------------------


def test_counts(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "5=x"], [], ["y=2"]])
    assert (matcher.num_nodes, matcher.num_patterns) == (3, 3)
    assert matcher.nbytes > 0


def test_expressions_with_one_normal_form_are_one_pattern(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "$x = 5$", "x=5.0", "x=5."], ["x=5"]])
    assert matcher.num_patterns == 2
    assert matcher.match("so x = 5") == [True, True]
    assert matcher.hits("so x = 5")[0].expression == "x=5"


@pytest.mark.parametrize("nodes", [[], [[]], [[""]], [["", "$", " "]], [["**"], []]])
def test_nodes_without_a_pattern_never_match(engine: Any, nodes: list[list[str]]) -> None:
    matcher = engine.Matcher(nodes)
    assert (matcher.num_nodes, matcher.num_patterns) == (len(nodes), 0)
    for text in ("", "x = 5", "$", "**"):
        assert matcher.match(text) == [False] * len(nodes)
        assert matcher.hits(text) == [None] * len(nodes)


def test_punctuation_around_an_expression_is_no_part_of_it(engine: Any) -> None:
    matcher = engine.Matcher([["x = 5."], [": y = 2;"]])
    assert matcher.match("x = 5 and y = 2") == [True, True]


def test_tuples_and_other_sequences_are_nodes_too(engine: Any) -> None:
    matcher = engine.Matcher((("x=5",), ["y=2", "2=y"]))
    assert matcher.match("2 = y") == [False, True]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (["x=5"], r"node 0 is a str"), ([["x=5"], "y=2"], r"node 1 is a str"),
        ([b"x=5"], r"node 0 is a bytes"), ([["x=5", 7]], r"an expression of node 0 is a int"),
        ([["x=5"], [None]], r"an expression of node 1 is a NoneType"),
        ([[b"x=5"]], r"an expression of node 0 is a bytes"),
    ],
)  # fmt: skip
def test_wrong_nodes_are_named(engine: Any, nodes: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        engine.Matcher(nodes)


@pytest.mark.parametrize("nodes", [None, 5, [None], [5]])
def test_what_is_no_sequence_is_refused(engine: Any, nodes: Any) -> None:
    with pytest.raises(TypeError):
        engine.Matcher(nodes)


def test_too_many_nodes_are_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match=f"{MAX_NODES + 1} nodes .* limit is {MAX_NODES}"):
        engine.Matcher([[]] * (MAX_NODES + 1))


def test_too_many_pattern_bytes_are_refused(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_PATTERN_BYTES", 20)
    engine.Matcher([["twelve bytes", "8 bytes."]])
    with pytest.raises(ValueError, match="over 20 bytes of patterns in one matcher"):
        engine.Matcher([["twelve bytes"], ["nine bytes"]])


def test_many_nodes_and_long_expressions(engine: Any) -> None:
    nodes = [[f"x_{{{number}}}={number}"] for number in range(2000)]
    matcher = engine.Matcher([*nodes, ["the cat sat on a mat and " * 400 + "slept"]])
    assert matcher.num_patterns == 2001
    flags = matcher.match("x_7 = 7, $x_{1999} = 1{,}999$, x_8 = 80")
    assert [index for index, flag in enumerate(flags) if flag] == [7, 1999]
    assert matcher.match("the cat sat on a mat and\n" * 400 + "slept")[2000]


def test_patterns_inside_patterns(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"], ["4+x=5"], ["2*4+x=5"], ["5"], ["x"]])
    assert matcher.match("2*4+x=5") == [False, False, True, True, False]
    assert matcher.match("(x=5)") == [True, False, False, True, True]


# --- derived forms -------------------------------------------------------------------------


def test_expand_finds_equal_forms(engine: Any) -> None:
    plain = engine.Matcher([["x=12*4"]], statements=False)
    expanded = engine.Matcher([["x=12*4"]], expand=True, statements=False)
    assert plain.num_patterns == 1 < expanded.num_patterns
    assert not plain.match("4 × 12 = x")[0]
    assert expanded.match("4 × 12 = x") == [True]
    assert not expanded.match("12*5=x")[0]


def test_a_hit_of_a_derived_form_names_that_form(engine: Any) -> None:
    matcher = engine.Matcher([["x=12*4"]], expand=True)
    assert matcher.hits("x = 12 * 4") == [Hit(0, 10, "x=12*4", Channel.PATTERN)]
    (hit,) = matcher.hits("so 12 * 4 = x")
    assert engine.normalize(hit.expression) == "12*4=x"


# --- texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_anything_like_bytes_is_a_text(engine: Any, make: Callable[[bytes], Any]) -> None:
    matcher = engine.Matcher([["x=5"]])
    assert matcher.match(make(b"x = 5")) == [True]
    assert engine.normalize(make(b"x = 5")) == "x=5"


@pytest.mark.parametrize("text", [None, 5, 2**40, 0.5, ["x=5"], [120, 61, 53], object()])
def test_what_is_no_text_is_refused(engine: Any, text: Any) -> None:
    matcher = engine.Matcher([["x=5"]])
    for work in (engine.normalize, matcher.match, matcher.spans, matcher.hits):
        with pytest.raises(TypeError):
            work(text)
    with pytest.raises(TypeError):
        engine.match_batch([matcher], [text])


def test_empty_text(engine: Any) -> None:
    assert engine.normalize("") == engine.normalize(b"") == ""
    assert engine.Matcher([["x=5"]]).match("") == [False]


# --- batches -------------------------------------------------------------------------------


def test_batch(engine: Any) -> None:
    first, second = engine.Matcher([["x=5"], ["y=2"]]), engine.Matcher([["z=1"]])
    texts = ["x = 5", b"z = 1", "x = 5 and y = 2", ""]
    result = engine.match_batch([first, second, first, second], texts)
    assert isinstance(result, core.BatchResult)
    assert len(result) == 4
    assert result.num_matched.dtype == np.int32
    assert result.num_matched.tolist() == [1, 1, 2, 0]
    flags = [result.matched(index) for index in range(4)]
    assert [each.tolist() for each in flags] == [[True, False], [True], [True, True], [False]]
    assert all(each.dtype == np.bool_ for each in flags)


def test_empty_batch(engine: Any) -> None:
    result = engine.match_batch([], [])
    assert len(result) == 0 and result.num_matched.shape == (0,)
    with pytest.raises(IndexError, match="text 0 of a batch of 0"):
        result.matched(0)


def test_batch_of_nodes_without_patterns(engine: Any) -> None:
    result = engine.match_batch([engine.Matcher([]), engine.Matcher([[]])], ["x", "y"], 2)
    assert result.num_matched.tolist() == [0, 0]
    assert [result.matched(index).tolist() for index in range(2)] == [[], [False]]


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_a_text_that_is_not_in_the_batch(engine: Any, index: int) -> None:
    result = engine.match_batch([engine.Matcher([["x"]])] * 2, ["x", "y"])
    with pytest.raises(IndexError, match=f"text {index} of a batch of 2"):
        result.matched(index)


def test_batch_arguments(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"]])
    with pytest.raises(ValueError, match="1 matchers for 2 texts"):
        engine.match_batch([matcher], ["a", "b"])
    with pytest.raises(ValueError, match="threads must be 0 or more, got -1"):
        engine.match_batch([matcher], ["a"], threads=-1)
    with pytest.raises((TypeError, AttributeError)):
        engine.match_batch(["x=5"], ["a"])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_deadline_that_has_passed(engine: Any, threads: int) -> None:
    matcher = engine.Matcher([["x=5"]])
    texts = ["the cat sat on a mat. " * 10_000] * 4
    with pytest.raises(TimeoutError, match="the deadline passed before 4 texts were matched"):
        engine.match_batch([matcher] * 4, texts, threads, deadline=time.monotonic() - 1)


def test_the_deadline_is_checked_inside_a_text(engines: Any) -> None:
    native, _ = engines
    text = ("the cat sat = on a mat. " * 400 + "\n\n") * 2000
    # Far more than can be done in time.
    with pytest.raises(TimeoutError):
        native.match_batch(
            [native.Matcher([["x=5"]])], [text], deadline=time.monotonic() + 1e-3, counts=False
        )


def test_nodes_are_found_in_every_part_of_a_long_text(engine: Any) -> None:
    nodes = [[f"x={number}"] for number in range(8)]
    matcher = engine.Matcher([*nodes, ["never=0"]], statements=False)
    # Sizes at which the compiled engine changes its way.
    sizes = (100, 8192, 8193, 30_000) if engine.name == "native" else (100,)
    for size, end in itertools.product(sizes, ("\n\n", "\n\n\n\n", "\n")):
        prose = ("the cat sat on a mat. " * size)[:size]
        text = end.join(f"x = {number}{end}{prose} so x = {number}" for number in (7, 3, 5, 0))
        expected = [number in (7, 3, 5, 0) for number in range(8)]
        assert matcher.match(text) == [*expected, False]
        assert matcher.match(text.replace("so x =", "so y =")) == [*expected, False]
        assert not any(matcher.match(text.replace("x = ", "xy = ")))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_threads_change_nothing(engine: Any, threads: int) -> None:
    # Long enough that a batch is worth several threads.
    matchers = [engine.Matcher([[f"x={number}"], ["y=2"]]) for number in range(40)]
    prose = "the cat sat on the mat, and y = 3. " * (800 if engine.name == "native" else 8)
    texts: list[str | bytes] = [f"{prose} x = {number % 7}. {prose}" for number in range(40)]
    texts[3] = str(texts[3]).encode()
    texts[4] = f"é\ud800 {texts[4]!s}"
    result = engine.match_batch(matchers, texts, threads=threads)
    assert result.num_matched.tolist() == [1] * 7 + [0] * 33


def test_one_matcher_serves_many_threads(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"], ["12*4=48"]])
    prose = "the cat sat on the mat. " * (20 if engine.name == "native" else 2)
    ends = [f"So {'x = 5' if number % 2 else '12 × 4 = 48'}, and then" for number in range(60)]
    texts = [prose + end + prose for end in ends]
    expected = [[bool(number % 2), not number % 2] for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(matcher.match, texts)) == expected
        hits = list(pool.map(matcher.hits, texts))
        batches = list(pool.map(lambda _: engine.match_batch([matcher] * 60, texts, 2), range(6)))
    assert [[hit is not None for hit in row] for row in hits] == expected
    assert all(batch.num_matched.tolist() == [1] * 60 for batch in batches)


# --- pickles -------------------------------------------------------------------------------


def test_pickle(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "5=x"], [], ["12*4=48"]], expand=True)
    other = pickle.loads(pickle.dumps(matcher))
    assert type(other) is type(matcher)
    assert (other.num_nodes, other.num_patterns) == (matcher.num_nodes, matcher.num_patterns)
    text = "5 = x and 48 = 4 * 12"
    assert other.hits(text) == matcher.hits(text)


# --- the package ---------------------------------------------------------------------------


def test_the_package_offers_one_of_the_engines(engines: Any) -> None:
    chosen = {"native": engines[0], "python": engines[1]}[core.BACKEND]
    assert core.normalize is chosen.normalize
    assert core.Matcher is chosen.Matcher
    assert core.match_batch is chosen.match_batch
