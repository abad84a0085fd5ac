"""A JSON body, one element at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.http.json_body import MAX_DEPTH, MAX_MEMBERS, Bounds, members, text, value
from tests.linear import assert_linear

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()

VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)

SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: \r\n")])


@given(st.dictionaries(st.text(), VALUES), SPACES, st.booleans())
def test_finds_what_json_finds(
    content: dict[str, Any], separators: tuple[str, str], ascii_only: bool
) -> None:
    written = json.dumps(content, separators=separators, ensure_ascii=ascii_only)
    body = written.encode("utf-8", "surrogatepass")
    try:
        body.decode()
    except UnicodeDecodeError:
        return
    found = members(b" " + body + b"\n").values
    assert {key: value(b" " + body, at, key) for key, at in found.items()} == content


@given(st.lists(VALUES), SPACES)
def test_finds_the_elements_of_a_list(content: list[Any], separators: tuple[str, str]) -> None:
    body = json.dumps({"list": content}, separators=separators).encode()
    found = members(body, ["list"], 1000).lists["list"]
    assert [value(body, at, "it") for at in found] == content


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "expected an object at byte 0, found 'its end'"),
        (b"[1]", "expected an object at byte 0"),
        (b'"text"', "expected an object at byte 0"),
        (b"{", "expected a key at byte 1"),
        (b'{"a"', "expected ':' at byte 4"),
        (b'{"a":', "expected a value at byte 5"),
        (b'{"a":,', "expected a value at byte 5"),
        (b'{"a":1', "expected ',' or '}' at byte 6"),
        (b'{"a":1,}', "expected a key at byte 7"),
        (b'{"a":1} x', "expected nothing more at byte 8, found 'x'"),
        (b'{"a":"x', "the body ends within the string that starts at byte 5"),
        (b'{"a":"x\\"', "the body ends within the string that starts at byte 5"),
        (b'{"a":[1', "the body ends within the value that starts at byte 5"),
        (b'{"a":1,"a":2}', "the key 'a' twice"),
        (b'{"a":1,"\\u0061":2}', "the key 'a' twice"),
        (b'{"\xff":1}', "a key is not UTF-8 at byte 2"),
        (b'{"a":' + b"[" * 100_000, f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_says_where_a_body_is_wrong(body: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        members(body)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (b'"text"', "q must be a list"),
        (b"", "q must be a list"),
        (b"[", "expected a value at byte 6"),
        (b"[1", "expected ',' or ']' at byte 7"),
        (b"[1,]", "expected a value at byte 8"),
        (b"[1 2]", "expected ',' or ']' at byte 8"),
        (b"[1,2,3,4]", "q holds more than 3 elements"),
    ],
)
def test_says_where_a_list_is_wrong(array: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        members(b'{"q":' + array, ["q"], 3)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (b"tru", "it is no JSON value"),
        (b'"\\x"', "it is no JSON value"),
        (b'"a\nb"', "it is no JSON value"),
        (b'"\xf0\x9f"', "it is not UTF-8 at byte 1"),
        (b"9" * 10_000, "it is no JSON value"),
        (b"[1}", "it is no JSON value"),
    ],
)
def test_says_why_a_value_is_wrong(written: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        value(written, Bounds(0, len(written)), "it")
    assert sentence in str(error.value)


def test_a_text_is_nothing_else() -> None:
    with pytest.raises(InputError, match=r"query\[0\] must be a string, got \{\"a\": 1\}"):
        text(b'{"a": 1}', Bounds(0, 8), "query[0]")


@pytest.mark.parametrize("hostile", ["\\\\", '\\"', "\\\\\\\\", "[{", '\\"]', "x"])
def test_time_is_linear(hostile: str) -> None:
    def body_of(size: int) -> str:
        return '{"a":"' + hostile * (size // len(hostile)) + '"}'

    assert_linear(lambda body: members(body.encode()), body_of, 200_000)


def test_a_body_has_a_handful_of_members() -> None:
    body = json.dumps({f"key{number}": number for number in range(MAX_MEMBERS)}).encode()
    assert len(members(body).values) == MAX_MEMBERS
    with pytest.raises(InputError, match="more than 64 members"):
        members(body[:-1] + b',"more":1}')
