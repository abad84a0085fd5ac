"""Replies as models write them: found generously, read strictly."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.llm import REPLY_SCHEMA, ClaimedNode, MalformedReplyError, read_reply
from consensusbench.llm import Reply
from tests.consensusbench.extraction.llm.conftest import GOOD, node, reply_text

LIMIT = 200_000


def read(text: str, finish_reason: str = "stop") -> list[ClaimedNode]:
    return read_reply(Reply(text, "m", finish_reason), LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here are the nodes:\n\n{GOOD}\n\nI hope that helps {{really}}!",
        f'<think>maybe {{"nodes": []}}? The problem says {{1}}.</think>\n{GOOD}',
        # The form repeated, a broken attempt, and then the answer.
        f'{{"nodes": [{{"label": "..."}}]}} and then {GOOD}',
        f'{{"nodes": [{{"label": "never closed", {GOOD}',
        f'The set \\{{1, 2\\}} and \\frac{{1}}{{2}}, "quoted", {GOOD}',
        GOOD.replace("]}", "],}"),
        GOOD.replace("]}]}", "],\n},\n]\n}"),
        # A server's own keys do no harm.
        GOOD.replace('{"nodes"', '{"thoughts": {"a": [1]}, "nodes"'),
    ],
)
def test_the_object_is_found(text: str) -> None:
    claims = read(text)
    assert [claim.expressions[0] for claim in claims] == [
        "15 \\times 12 = 180",
        "180 \\cdot 5 = 900",
    ]
    assert claims[0].rewritten == ["180=15*12"]
    assert claims[0].claimed_support == 3


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\\frac{1}{2}", r"\frac{1}{2}"),
        (r"\frac{1}{2} \times 3", r"\frac{1}{2} \times 3"),
        (r"15 \times 12 \neq 5", r"15 \times 12 \neq 5"),
        (r"\cdot \beta \right) \theta", r"\cdot \beta \right) \theta"),
        (r"\underline{x} = \{1\}", r"\underline{x} = \{1\}"),
        (r"50\% of 3", r"50\% of 3"),
        (r"a \u003d b", "a = b"),
        (r"he said \"x=5\"", 'he said "x=5"'),
        (r"a\nb", "a\nb"),
    ],
)
def test_latex_survives_json(written: str, meant: str) -> None:
    text = GOOD[:11] + '{"type": "equation", "expressions": ["' + written + '"]}]}'
    assert read(text)[0].expressions == [meant]


def test_a_reply_that_the_server_took_for_thinking_counts() -> None:
    assert len(read_reply(Reply(" ", "m", "stop", reasoning=f"Well. {GOOD}"), LIMIT)) == 2
    with pytest.raises(MalformedReplyError, match="no JSON object"):
        read_reply(Reply("", "m", "stop", reasoning="hmm"), LIMIT)


def test_an_empty_list_is_a_reply() -> None:
    assert read('{"nodes": []}') == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        ("I cannot do that.", "it holds no JSON object"),
        (GOOD[:-5], "its JSON object is never closed"),
        ('{"nodes": 5}', "nodes: Input should be a valid list"),
        ('{"items": []}', 'its JSON object has no key "nodes"'),
        ('{"a": {"nodes": []}}', "nodes: Field required"),
        (reply_text(node()), "nodes[0].expressions: List should have at least 1 item"),
        (reply_text(node("x=1"), node("x=2", type="lemma")), "nodes[1].type: Input should be"),
        (reply_text(node("x=1", expressions="x=1")), "nodes[0].expressions: Input should be a"),
        ('{"nodes": [{"type": "value", "expressions": [5]}]}', "nodes[0].expressions[0]: Input"),
        ('{"nodes": [1 2]}', "its JSON is broken at line 1 column 14"),
        ('{"nodes": ' + "9" * 5_000 + "}", "its JSON holds a number of too many digits"),
        ("x" * (LIMIT + 1), "it has 200001 characters, the limit is 200000"),
    ],
)
def test_faults_are_named(text: str, fault: str) -> None:
    with pytest.raises(MalformedReplyError) as caught:
        read(text)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_faults_are_counted() -> None:
    with pytest.raises(MalformedReplyError, match="and 5 more"):
        read(reply_text(*[node("x=1", type="?")] * 10))


def test_a_reply_that_was_cut_says_so_but_counts_if_it_is_whole() -> None:
    with pytest.raises(MalformedReplyError, match="cut at the limit of tokens"):
        read(GOOD[:-20], "length")
    assert len(read(GOOD + " and fur", "length")) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"' * 60_000,
        '{"a":' * 30_000,
        '{"nodes":' + "[" * 100_000 + "]" * 80_000 + "}",
        "{}" * 90_000,
        '{"a": "' + "\\" * 150_000,
        '{"nodes": [' + "," * 150_000 + "]}",
        '{"nodes": [' + ", " * 80_000 + "]}",
        "{" + " " * 150_000,
        '"' * 199_999,
    ],
)
def test_hostile_replies_are_refused_in_no_time(text: str) -> None:
    start = time.monotonic()
    with pytest.raises(MalformedReplyError):
        read(text)
    assert time.monotonic() - start < 5.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["nodes", "type", "expressions", "label", "x"]), inner)
    ),
    max_leaves=12,
)


@given(st.text(max_size=200) | JSON.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        claims = read(text)
    except MalformedReplyError:
        return
    assert all(claim.expressions for claim in claims)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_well_formed_replies_are_read_as_written(expressions: list[str]) -> None:
    clean = [text for text in expressions if not set(text) & set("\b\f\t\n\r")]
    if clean:
        text = json.dumps({"nodes": [{"type": "value", "expressions": clean}]})
        assert read(text)[0].expressions == clean


def objects(schema: Any) -> list[dict[str, Any]]:
    """Return all object types within a schema."""
    if isinstance(schema, list):
        return [one for part in schema for one in objects(part)]
    if not isinstance(schema, dict):
        return []
    inner = [one for part in schema.values() for one in objects(part)]
    return [schema, *inner] if schema.get("type") == "object" else inner


def test_the_schema_is_one_that_strict_servers_take() -> None:
    found = objects(REPLY_SCHEMA)
    assert len(found) == 2
    for one in found:
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])
    keys = set(found[1]["properties"])
    assert keys == set(ClaimedNode.model_fields)
