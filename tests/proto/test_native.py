"""The compiled half of the codec does what the codec does by messages, whatever bytes come."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout, Sample, Score, ScoreColumns, ScoreOptions, Status
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire import codec
from tests.proto.test_codec import IDENTITY, any_texts, identities, options, rollouts, scores

T = TypeVar("T")

native = pytest.importorskip("consensuspr.wire.native", reason="the compiled half is not built")

ROLLOUT = pb.Rollout(
    problem_id="p", response=b"text", ground_truth="18", num_tokens=300, data_source="gsm8k",
    rollout_id="r",
)  # fmt: skip
REQUEST = pb.ScoreRequest(
    protocol_version=7, run="night", rollouts=[ROLLOUT, pb.Rollout(), ROLLOUT]
).SerializeToString()
SCORES = [
    Score(
        Status.OK, 0.5, 1.0, 0.5, 2, 1, (True, False), 150.0, ((0, 1), None), "", "18", "canonical",
        1.0, 0.5, b"\1\0", (0.25, 0.75),
    ),
    Score(Status.NO_NODES, message="none"),
]  # fmt: skip
REPLY = codec.encode_score_response(ScoreColumns.of(SCORES), IDENTITY)


@contextmanager
def by_messages() -> Iterator[None]:
    """Within, the codec has no compiled half."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "native", None)
        yield


def outcome(call: Callable[[], T]) -> T | tuple[type[Exception], str]:
    """Return what a call returns, or how it fails."""
    try:
        return call()
    except DecodeError:
        return DecodeError, ""
    except InputError as error:
        return InputError, str(error)


def agree(call: Callable[[], T]) -> T | tuple[type[Exception], str]:
    """Return the outcome of a call, which is that by messages."""
    ours = outcome(call)
    with by_messages():
        assert ours == outcome(call)
    return ours


Edit = Callable[[bytes], bytes]


def _edit(at: int, taken: int, put: bytes) -> Edit:
    return lambda data: data[: at % (len(data) + 1)] + put + data[at % (len(data) + 1) + taken :]


edits = st.builds(_edit, st.integers(0, 1 << 16), st.integers(0, 3), st.binary(max_size=4))


def mutated(message: bytes) -> st.SearchStrategy[bytes]:
    """Return messages that are nearly one."""

    def carry_out(changes: list[Edit]) -> bytes:
        data = message
        for change in changes:
            data = change(data)
        return data

    return st.lists(edits, max_size=4).map(carry_out)


@pytest.fixture(autouse=True, scope="module")
def one_request_id() -> Iterator[None]:
    """Requests that differ in nothing but their ids are alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "urandom", lambda size: b"\7" * size)
        yield


def test_the_compiled_half_is_in_use() -> None:
    assert codec.native is importlib.import_module("consensuspr.wire.native")


@given(st.lists(rollouts, max_size=4), options)
def test_requests_are_the_same_bytes(some: list[Rollout], asked: ScoreOptions) -> None:
    request = agree(lambda: codec.encode_score_request(some, asked))
    assert isinstance(request, bytes)
    found = agree(lambda: codec.decode_score_request(request))
    assert isinstance(found[0], codec.RequestHead)
    assert found[0].protocol_version == PROTOCOL_VERSION
    assert (found[0].options, found[1]) == (asked, some)


@pytest.mark.parametrize("nodes", [None, [["x=1"]]])
def test_what_names_a_sample_is_read_where_a_log_is_kept(nodes: list[list[str]] | None) -> None:
    whole = Sample(b"k" * 16, 3, "g\ud800", "train")
    samples = [whole, Sample(b"K" * 16, -1), Sample(b"short", 2**40, "g"), None]
    some = [Rollout(str(at), b"x", nodes=nodes, sample=one) for at, one in enumerate(samples)]
    request = agree(lambda: codec.encode_score_request(some, ScoreOptions()))
    assert isinstance(request, bytes)
    plain = agree(lambda: codec.decode_score_request(request))
    assert [one.sample for one in plain[1]] == [None] * 4  # type: ignore[union-attr]
    named = agree(lambda: codec.decode_named_request(request))
    by_request = b"\7" * 8 + bytes(7)
    assert [one.sample for one in named[1]] == [  # type: ignore[union-attr]
        whole._replace(group="g\ufffd"),
        Sample(b"K" * 16),
        Sample(by_request + b"\2", None, "g"),
        Sample(by_request + b"\3"),
    ]


class Label(str):
    """A text of the caller's own kind."""


@given(any_texts, any_texts, any_texts, st.none() | any_texts, st.integers(-1, 2**33))
@example("p", "\ud800", "", "\ud800", 0)
def test_any_python_text_is_sent_alike(
    problem_id: str, response: str, truth: str, label: str | None, num_tokens: int
) -> None:
    rollout = Rollout(problem_id, response, truth, num_tokens, None, label, label)
    for one in (
        rollout,
        replace(rollout, problem_id=Label(problem_id), response=Label(response)),
        replace(rollout, response=response.encode("utf-16", "surrogatepass")),
        replace(rollout, nodes=[[truth]]),
    ):
        agree(partial(codec.encode_score_request, [one], ScoreOptions()))


@pytest.mark.parametrize("odd", ["é", "’", "\ud800", "𝑥"])
@pytest.mark.parametrize("every", [1, 7, 16, 17, 1000])
def test_a_text_is_encoded_as_python_does(odd: str, every: int) -> None:
    # Sixteen characters at a time, and lengths whose own length grows while they are encoded.
    for length in (*range(1, 50), *range(60, 132), *range(5440, 5470), *range(16360, 16390)):
        plain = "".join([chr(97 + at % 26) for at in range(length)])
        text = odd.join(plain[at : at + every] for at in range(0, length, every)) + odd
        request = codec.encode_score_request([Rollout("p", text)], ScoreOptions())
        (rollout,) = pb.ScoreRequest.FromString(request).rollouts
        assert rollout.response == text.encode("utf-8", "surrogatepass"), length
        with by_messages():
            assert request == codec.encode_score_request([Rollout("p", text)], ScoreOptions())


@given(
    st.lists(st.integers(0, 400), max_size=30),
    st.integers(1, 2000),
    st.integers(1, 7),
    st.integers(100, 400),
)
def test_batches_are_cut_alike(sizes: list[int], most: int, number: int, largest: int) -> None:
    items: list[codec.Item] = [
        Rollout(str(at), "xé’𝑥"[at % 4] * size) for at, size in enumerate(sizes)
    ]
    items[::3] = map(codec.encoded_item, items[::3])
    bounds = codec.RequestBounds(most, number, largest, largest + 9)

    def encode(_: int, item: codec.Item) -> codec.EncodedRollout:
        return codec.encoded_item(item)

    start = 0
    while start < len(items):
        piece = agree(partial(codec.encode_piece, items, ScoreOptions(), start, bounds, encode))
        assert isinstance(piece, codec.RequestPiece)
        assert piece.end > start
        start = piece.end


@pytest.mark.parametrize("item", [None, "text", Rollout("p", 3), Rollout(4, "text")])  # type: ignore[arg-type]
def test_what_is_no_rollout_is_for_the_caller_to_name(item: Any) -> None:
    def refuse(position: int, one: Any) -> Any:
        raise InputError(f"{position}: {one}")

    bounds = codec.RequestBounds(100, 100, 100, 100)
    items = [Rollout("p", "fine"), item]
    start = agree(lambda: codec.encode_piece(items, ScoreOptions(), 1, bounds, refuse))
    assert start == (InputError, f"1: {item}")


@given(mutated(REQUEST))
@example(REQUEST + b"\x42\x02\x10\x01")  # a response that is a number
@example(REQUEST + b"\x42\x06\x0a\x01a\x0a\x01b")  # two problem ids
@example(REQUEST + b"\x42\x03\x0a\x01\xff")  # no UTF-8
@example(REQUEST + b"\x42\x04\x2a\x02\x0a\x00")  # inline nodes
@example(REQUEST + b"\xc2\x00\x00")  # a tag that is longer than it need be
@example(REQUEST + b"\x43\x44")  # a group
@example(REQUEST + b"\x42\xff\xff\xff\xff\x0f")  # longer than the request
@example(REQUEST + b"\x42\x04\x42\x0242")  # what names a sample is no message
def test_requests_are_read_alike(data: bytes) -> None:
    agree(lambda: codec.decode_named_request(data))


@given(st.lists(scores, max_size=4), identities)
def test_replies_say_the_same(some: list[Score], identity: Any) -> None:
    columns = ScoreColumns.of(some)
    reply = codec.encode_score_response(columns, identity)
    with by_messages():
        assert codec.decode_score_response(reply) == (some, identity)
        reply = codec.encode_score_response(columns, identity)
    assert codec.decode_score_response(reply) == (some, identity)


@given(mutated(REPLY))
@example(REPLY + b"\x1a\x01\x01")  # more statuses, apart from the others
@example(REPLY + b"\x18\x01")  # one that is not packed
@example(REPLY + b"\xb2\x06\x01x")  # a field of a newer server
def test_replies_are_read_alike(data: bytes) -> None:
    agree(lambda: codec.decode_score_response(data))


def test_what_a_reply_has_is_what_was_scored() -> None:
    assert codec.decode_score_response(REPLY) == (SCORES, IDENTITY)
