"""The statement channel: what is read as a statement, what it reaches, and how it is shown."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from consensuspr.core.patterns import Channel, Hit
from consensuspr.core.pure.statements import expression_keys, read_statements
from consensuspr.core.statements import key_hash, operands_hash


def channel(engine: Any, expressions: list[str], text: str, **options: Any) -> int:
    """Return how a text reaches a node of these expressions."""
    matcher = engine.Matcher([expressions], **options)
    return int(engine.match_batch([matcher], [text]).channels(0)[0])


# --- channels and hits -------------------------------------------------------------------------

CODE = "```python\napril = 48\nmay = april / 2\n```\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so 48/2=24", Channel.STATEMENT),  # the pattern is there, too
        ("half of 48 is 24", Channel.STATEMENT),  # 1/2 of 48: ones are left out
        ("12 + 12 = 24", 0),
        ("48 clips / 2 = 24 clips", Channel.STATEMENT),
        (CODE, Channel.CODE),
        (CODE + "48 / 2 = 24", Channel.STATEMENT),  # prose comes before code
        ("x=48/2", Channel.PATTERN),
        ("24 = 48 / 3", 0),
        ("", 0),
    ],
)
def test_the_first_statement_is_the_channel(engine: Any, text: str, expected: int) -> None:
    assert channel(engine, ["48/2=24", "x=48/2"], text, code="computed") == expected


@pytest.mark.parametrize("options", [{}, {"code": "written"}, {"code": "computed"}])
def test_each_call_may_ask_code_for_its_results(engine: Any, options: Any) -> None:
    matcher = engine.Matcher([["48/2=24"]], code="computed")
    expected = 0 if options.get("code") == "written" else Channel.CODE
    assert engine.match_batch([matcher], [CODE], **options).channels(0).tolist() == [expected]
    (hit,) = matcher.hits(CODE, **options)
    assert (hit.channel if hit else 0) == expected
    assert pickle.loads(pickle.dumps(matcher)).hits(CODE) == matcher.hits(CODE)


@pytest.mark.parametrize(
    ("text", "options", "values"),
    [
        (CODE, {}, 1),
        (CODE + "24", {}, 1),
        (CODE + "from 1 to 48: 24", {}, 3),  # 24, 1 and 48 might have been it
        (CODE + " ".join(map(str, range(1, 100))), {}, 99),
        (CODE + "some 24.0 of 24, ½ and 0.25", {}, 4),
        (CODE + "from 1 to 48", {}, 1),  # no result decides
        (CODE + "from 1 to 48: 24", {"code": "computed"}, 1),
        (CODE + "48 / 2 = 24, from 1 to 50", {}, 1),  # prose reaches the node
    ],
)
def test_numbers_among_which_a_result_is_found_count_as_values(
    engine: Any, text: str, options: dict[str, Any], values: int
) -> None:
    matcher = engine.Matcher([["48/2=24"]])
    assert engine.match_batch([matcher], [text], **options).num_values.tolist() == [values]


def test_an_unknown_credit_for_code_is_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match="sometimes"):
        engine.Matcher([["48/2=24"]], code="sometimes")


def test_without_statements_only_patterns_count(engine: Any) -> None:
    text = "24 = 48 / 2 and 2*24=48"
    nodes = [["48/2=24"], ["24*2=48"], ["2*24=48"]]
    with_statements, without = engine.Matcher(nodes), engine.Matcher(nodes, statements=False)
    assert with_statements.match(text) == [True, True, True]
    assert without.match(text) == [False, False, True]
    for hits in (without.hits(text), with_statements.hits(text, statements=False)):
        assert [hit and hit.channel for hit in hits] == [None, None, Channel.PATTERN]
    batch = engine.match_batch([with_statements], [text], statements=False)
    assert batch.channels(0).tolist() == [0, 0, Channel.PATTERN]


@pytest.mark.parametrize(
    ("expand", "derived"), [(True, ()), (False, [["500+700=1200"]]), (False, ())]
)
def test_equal_forms_make_keys_too(engine: Any, expand: bool, derived: Any) -> None:
    matcher = engine.Matcher([["5*100+700=1200"]], expand=expand, derived=derived)
    found = matcher.hits("700 pens and then some: 1200 = 700 + 500")
    if expand or derived:
        (hit,) = found
        assert (hit.expression, hit.channel) == ("500+700=1200", Channel.STATEMENT)
    else:
        assert found == [None]


@pytest.mark.parametrize(
    ("expressions", "marked"),
    [
        (["24-7=17"], "So ⟦24 students - 7 students = 17⟧ students, and 24 - 7 = 17."),
        (["24-7=17"], "é𝑥日 ⟦24 − 7 = 17⟧"), (["24-7=17"], "Left = ⟦24 - 7 = 17⟧"),
        (["4*6=24"], "⟦4*6 + 3 = 27⟧"), (["4*6+3=27"], "⟦4*6 + 3 = 24 + 3⟧ = 27"),
        (["1/2*26=13"], "now ⟦half of 26 is 13⟧."),
        (["120/3=40"], "speed = ⟦120 / 3\nspeed = 40⟧ km/h"), (["120/3=40"], "3x = ⟦120\nx = 40⟧"),
        (["48/2=24"], "```python\nmay = ⟦48 / 2⟧\n```"),
        (["48/2=24"], "```python\nx = 48\n⟦x /= 2⟧\n```"),
        (["48/2=24"], "\ud800 \x00 ⟦48 / 2 = 24⟧"), (["0.2*45=9"], "⟦20% of 45 is 9⟧"),
        (["1/2*26=13"], "\\[ ⟦\\frac{1}{2} \\times 26 = 13⟧ \\]"),
    ],
)  # fmt: skip
def test_span(engine: Any, expressions: list[str], marked: str) -> None:
    text = marked.replace("⟦", "").replace("⟧", "")
    start, end = marked.index("⟦"), marked.index("⟧") - 1
    (hit,) = engine.Matcher([expressions], code="computed").hits(text)
    assert (hit.start, hit.end, hit.expression) == (start, end, expressions[0])
    assert hit.channel == (Channel.CODE if "```" in text else Channel.STATEMENT)


def test_a_hit_names_the_expression_that_its_key_was_made_of(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "12*4=48", "6*8=48"]])
    assert matcher.hits("8 pens × 6 = 48 pens") == [Hit(0, 15, "6*8=48", Channel.STATEMENT)]


def test_one_statement_reaches_every_node_with_its_key(engine: Any) -> None:
    matcher = engine.Matcher([["6*8=48"], ["8*6=48"], ["48=8*6"], ["6+8=14"], []])
    assert matcher.match("8 pens × 6 = 48 pens") == [True, True, True, False, False]


def test_a_batch_tells_channels_and_counts(engine: Any) -> None:
    matchers = [
        engine.Matcher([["48/2=24"], ["2*3=6"]]),
        engine.Matcher([]),
        engine.Matcher([["x"]]),
    ]
    texts = ["48 / 2 = 24, 2 * 12 = 24 and 2*3 = 6", CODE, "7 of 9"]
    batch = engine.match_batch(matchers, texts, threads=2)
    assert [batch.channels(index).tolist() for index in range(3)] == [[2, 2], [], [0]]
    assert batch.num_matched.tolist() == [2, 0, 0]
    assert batch.num_values.tolist() == [2, 1, 0]  # 24, 6; 24
    assert batch.num_numbers.tolist() == [6, 2, 2]
    silent = engine.match_batch(matchers, texts, counts=False)
    assert (silent.num_values, silent.num_numbers) == (None, None)
    assert silent.channels(0).tolist() == [2, 2]
    unstated = engine.match_batch(matchers, texts, statements=False)
    assert unstated.num_values.tolist() == [2, 1, 0]
    with pytest.raises(IndexError, match="text 3 of a batch of 3"):
        batch.channels(3)


def test_names_do_not_outlive_their_text(engine: Any) -> None:
    matcher = engine.Matcher([["48/2=24"]], code="computed")
    texts = ["```python\napril = 48\n```", "```python\nmay = april / 2\n```"]
    assert [matcher.match(text) for text in texts] == [[False], [False]]
    assert matcher.match("\n".join(texts)) == [True]
    lines = ["speed = 48 / 2\n", "speed = 24\n"]
    assert [matcher.match(text) for text in lines] == [[False], [False]]
    assert matcher.match("".join(lines)) == [True]


# --- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("6*8=48", [((48, 1), ((6, 1), (8, 1)))]), ("48=8*6", [((48, 1), ((6, 1), (8, 1)))]),
        ("6*8=40+8", [((48, 1), ((6, 1), (8, 1))), ((48, 1), ((8, 1), (40, 1)))]),
        ("15%*80=12", [((12, 1), ((3, 20), (80, 1)))]),
        ("50/7=7.14", [((50, 7), ((7, 1), (50, 1)))]), ("-3+5=2", [((2, 1), ((3, 1), (5, 1)))]),
        ("1*6=6", [((6, 1), ((6, 1),))]), ("6*8=49", []), ("6*8", []), ("x=48", []), ("48", []),
        ("", []),
    ],
)  # fmt: skip
def test_keys_of_an_expression(engines: Any, expression: str, keys: list[Any]) -> None:
    from consensuspr.core.native import statements as compiled

    found = expression_keys(expression)
    assert found == keys
    assert compiled.expression_keys(expression) == [key_hash(key) for key in found]


def test_both_readers_hash_operands_alike(engines: Any) -> None:
    from consensuspr.core.native import statements as compiled

    text = "2 * 3 - 8/1 = -2 and 15% of 80 = 12"
    found = [operands_hash(each.key.operands) for each in read_statements(text).statements]
    assert found and [row[2] for row in compiled.read_statements(text)[0]] == found
