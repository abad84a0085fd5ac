"""Which token reached a node, in texts of any tokenizer whose decoding puts tokens together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consensuspr.client.training.credit import (
    Finder,
    finder_of_bytes,
    finder_of_decoding,
    node_tokens,
)

# Anything: letters, code points of 2 to 4 bytes, the mark for bytes that are no text.
TEXTS = st.text(st.sampled_from("ab1=+ \n√é€�😀\u0301"), max_size=40)
CUTS = st.lists(st.integers(0, 200), max_size=30)


def cut(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return the tokens of a text, cut anywhere; some of them write nothing."""
    places = sorted(min(at, len(text)) for at in cuts)
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def by_definition(tokens: Sequence[bytes], end: int) -> int | None:
    """Return the first token with which the first code points of the text are complete.

    That is where the bytes that they are made of end.
    """
    text = b"".join(tokens)
    complete = [
        size
        for size in range(len(text) + 1)
        # A cut through a code point shows where both sides of it decode to something else.
        if text[:size].decode(errors="replace") + text[size:].decode(errors="replace")
        == text.decode(errors="replace")
    ]
    ends = {len(text[:size].decode(errors="replace")): size for size in complete}
    size = ends.get(end)
    if size is None:
        return None
    return next(at for at in range(len(tokens)) if sum(map(len, tokens[: at + 1])) >= size)


def finders(tokens: Sequence[bytes]) -> list[Finder]:
    """Return both finders of a text."""

    def decode(ids: Sequence[int]) -> str:
        return b"".join(tokens[at] for at in ids).decode(errors="replace")

    return [finder_of_bytes(tokens), finder_of_decoding(range(len(tokens)), decode)]


@given(TEXTS, CUTS)
@example("€", [1, 2])
@example("a😀", [0, 2, 2, 3, 4])
def test_a_token_is_found_where_the_last_code_point_ends(text: str, cuts: list[int]) -> None:
    tokens = cut(text.encode(), cuts)
    for end in range(1, len(text) + 1):
        expected = by_definition(tokens, end)
        by_bytes, by_decoding = (find(end) for find in finders(tokens))
        assert by_bytes == expected
        # The mark for bytes that are no text looks like a code point of which bytes are missing.
        assert by_decoding == expected or text[end - 1] == "\ufffd"


@given(st.binary(max_size=30) | TEXTS.map(str.encode), CUTS)
@example(b"\xe2\x82A", [1, 2])
@example(b"\xff\xe2\x82", [1])
@example(b"\xed\xa0\x80", [1])
def test_bytes_that_are_no_text_count_as_the_mark_for_it(text: bytes, cuts: list[int]) -> None:
    tokens = cut(text, cuts)
    find = finder_of_bytes(tokens)
    shown = text.decode(errors="replace")
    before = 0
    for end in range(1, len(shown) + 1):
        token = find(end)
        assert token is not None and token >= before
        before = token
        # Complete with this token, and not before.
        assert b"".join(tokens[: token + 1]).decode(errors="replace")[:end] == shown[:end]
        if (expected := by_definition(tokens, end)) is not None:
            assert token == expected
    assert find(len(shown) + 1) is None


@given(TEXTS, CUTS, st.data())
def test_tokens_that_write_nothing_reach_nothing(
    text: str, cuts: list[int], data: st.DataObject
) -> None:
    tokens = [token for token in cut(text.encode(), cuts) if token]
    at = data.draw(st.integers(0, len(tokens)))
    special = [*tokens[:at], b"", *tokens[at:]]
    for end in range(1, len(text) + 1):
        [plain, _], [found, also] = (
            [find(end) for find in finders(one)] for one in (tokens, special)
        )
        assert found != at
        assert also == found or text[end - 1] == "\ufffd"
        assert plain is not None and found == plain + (plain >= at)


@given(TEXTS.filter(bool), CUTS, st.data())
def test_no_token_of_a_tool_earns_anything(text: str, cuts: list[int], data: st.DataObject) -> None:
    tokens = cut(text.encode(), cuts)
    policy = data.draw(st.lists(st.integers(0, 1), min_size=len(tokens), max_size=len(tokens)))
    end = data.draw(st.integers(1, len(text)))
    find = finder_of_bytes(tokens)
    [alone, missed] = node_tokens([(0, end), None], find)
    assert missed is None
    [earned, missed] = node_tokens([(0, end), None], find, policy)
    assert missed is None
    assert alone is not None and earned == (alone if policy[alone] else None)


def sentence_piece(pieces: list[str]) -> Callable[[Sequence[int]], str]:
    """Return the decoding of a tokenizer that writes blanks as ▁ and drops the first."""

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces[at] for at in ids).replace("▁", " ").removeprefix(" ")

    return decode


@pytest.mark.parametrize(("end", "token"), [(1, 0), (2, 1), (3, 1), (5, 3), (6, 4), (7, None)])
def test_a_tokenizer_may_write_otherwise_at_the_start(end: int, token: int | None) -> None:
    pieces = ["▁x", "▁=", "", "▁1", "2"]
    decode = sentence_piece(pieces)
    assert decode(range(5)) == "x = 12"
    assert finder_of_decoding(range(5), decode)(end) == token
