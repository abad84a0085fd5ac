"""Messages and values: what one side encodes, the other decodes to the same; batches in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.rewards import NcrKind, NcrOptions, RewardKind, RewardSpec
from consensuspr.scoring.types import (
    CHANNELS,
    AnswerRule,
    Identity,
    InlineNode,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    cut,
    decode_identity,
    decode_options,
    decode_reward,
    decode_rollout,
    decode_score,
    encode_explain_request,
    encode_identity,
    encode_response,
    encode_rollout,
    encode_score,
    encode_score_request,
    valid_text,
)
from consensuspr.wire.server_info import (
    DatasetInfo,
    ServerInfo,
    decode_server_info,
    encode_server_info,
)

# Text that is valid UTF-8, and text that Python allows beyond it.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
any_texts = st.text(st.characters(), max_size=40)
labels = texts.map(lambda text: text or None)
units = st.floats(0, 1)
uint32s = st.integers(0, 2**32 - 1)
rewards = st.builds(
    RewardSpec,
    kind=st.sampled_from(RewardKind),
    alpha=units,
    switch_epoch=uint32s,
    guard=st.booleans(),
    statements=st.booleans(),
    final_nodes=st.booleans(),
    ncr=st.sampled_from(NcrKind),
    after_think=st.booleans(),
)
nodes = st.builds(
    InlineNode,
    expressions=st.lists(texts, max_size=4).map(tuple),
    node_id=texts,
    derived=st.lists(texts, max_size=4).map(tuple),
    is_final=st.booleans(),
    weight=st.none() | st.floats(0, 1e6),
)
budgets = st.none() | st.builds(GuardBudget, uint32s, uint32s)
rollouts = st.builds(
    Rollout,
    problem_id=texts,
    response=st.binary(max_size=60),
    ground_truth=st.none() | texts,
    num_tokens=st.none() | st.integers(1, 2**32 - 1),
    nodes=st.none() | st.lists(nodes, max_size=3),
    data_source=labels,
    rollout_id=labels,
    budget=budgets,
).map(lambda one: one if one.nodes is not None else replace(one, budget=None))
spans = st.tuples(uint32s, uint32s)


def sound(score: Score) -> Score:
    """Return a score whose parts say the same of its nodes."""
    score.matched = tuple(map(bool, score.channel_numbers))
    if score.ncr is None:
        score.ncr_raw = score.guard = None
    return score


scores = st.builds(
    Score,
    status=st.sampled_from(Status),
    reward=st.none() | units,
    acc=st.none() | st.sampled_from([0.0, 1.0]),
    ncr=st.none() | units,
    num_nodes=uint32s,
    num_matched=uint32s,
    matched=st.lists(st.booleans(), max_size=5).map(tuple),
    tpn=st.none() | st.floats(0, allow_infinity=False),
    spans=st.none() | st.lists(st.none() | spans, min_size=1, max_size=5).map(tuple),
    message=texts,
    answer=st.none() | texts,
    answer_method=texts,
    ncr_raw=units,
    guard=units,
    channel_numbers=st.binary(max_size=5).map(lambda some: bytes(n % len(CHANNELS) for n in some)),
).map(sound)
options = st.builds(
    ScoreOptions,
    reward=rewards,
    epoch=uint32s,
    dataset=labels,
    answer_rule=st.none() | st.sampled_from(AnswerRule),
    on_undecided=st.sampled_from(OnUndecided),
    include_spans=st.booleans(),
)
identities = st.builds(
    Identity,
    dataset=texts,
    dataset_digest=texts,
    normal_form_version=texts,
    answer_version=texts,
    reward=rewards,
    epoch=uint32s,
    answer_rule=st.sampled_from(AnswerRule),
    server_version=texts,
)


@given(rollouts, scores, identities)
def test_values_come_back(rollout: Rollout, score: Score, identity: Identity) -> None:
    assert decode_rollout(_over_the_wire(encode_rollout(rollout))) == rollout
    assert decode_score(_over_the_wire(encode_score(score))) == score
    assert decode_identity(_over_the_wire(encode_identity(identity))) == identity


@given(options)
def test_options_come_back_from_both_requests(asked: ScoreOptions) -> None:
    request = _over_the_wire(encode_score_request([], asked))
    assert request.protocol_version == PROTOCOL_VERSION
    assert decode_options(request) == asked
    explain = _over_the_wire(encode_explain_request(Rollout("p", "text"), asked))
    assert explain.protocol_version == PROTOCOL_VERSION
    assert decode_options(explain).reward == asked.reward
    assert decode_options(explain).include_spans


@given(any_texts, any_texts, any_texts)
def test_any_python_text_can_be_sent(problem_id: str, response: str, expression: str) -> None:
    rollout = Rollout(problem_id, response, ground_truth=expression, nodes=[[expression]])
    back = decode_rollout(_over_the_wire(encode_rollout(rollout)))
    assert back.problem_id == valid_text(problem_id)
    assert back.response == encode_response(response)
    assert back.ground_truth == valid_text(expression)
    assert back.nodes == [InlineNode((valid_text(expression),))]


@given(any_texts)
def test_valid_text_only_replaces_lone_surrogates(text: str) -> None:
    cleaned = valid_text(text)
    cleaned.encode("utf-8")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        assert "�" in cleaned or len(cleaned) < len(text)  # a pair of halves is one character
    else:
        assert cleaned == text


@pytest.mark.parametrize("num_tokens", [0, -1, 2**32])
def test_a_token_count_that_is_none_is_not_sent(num_tokens: int) -> None:
    message = encode_rollout(Rollout("p", "text", num_tokens=num_tokens))
    assert not message.HasField("num_tokens")


def test_no_nodes_and_nodes_not_sent_differ() -> None:
    assert decode_rollout(encode_rollout(Rollout("p", "text", nodes=[]))).nodes == []
    assert decode_rollout(encode_rollout(Rollout("p", "text"))).nodes is None


@pytest.mark.parametrize("node", ["x=12", [3], ["x=12", None], InlineNode("x=12")])
def test_what_is_no_list_of_expressions_is_a_node_without_any(node: Any) -> None:
    back = decode_rollout(encode_rollout(Rollout("p", "text", nodes=[node])))
    assert back.nodes == [InlineNode(())]


def test_a_server_that_knows_no_guard_had_none() -> None:
    score = decode_score(
        pb.RolloutScore(status=pb.STATUS_OK, ncr=0.5, matched=[True, False], num_nodes=2)
    )
    assert (score.ncr_raw, score.guard, score.channels) == (0.5, 1.0, ("pattern", ""))
    unknown = decode_score(pb.RolloutScore(status=pb.STATUS_NO_NODES))
    assert (unknown.ncr_raw, unknown.guard, unknown.channels) == (None, None, ())
    newer = pb.RolloutScore(status=pb.STATUS_OK, matched=[True, True], channels=bytes((2, 9)))
    assert decode_score(newer).channels == ("statement", "pattern")


@pytest.mark.parametrize(
    ("channels", "size"),
    [((), 0), ((0, 1, 1, 0), 0), ((1, 2, 0), 5), ((3,), 3)],
)
def test_channels_cost_bytes_only_where_they_say_something(
    channels: tuple[int, ...], size: int
) -> None:
    score = Score(Status.OK, ncr=0.5, ncr_raw=0.5, guard=1.0, channel_numbers=bytes(channels))
    bare = Score(Status.OK, ncr=0.5, ncr_raw=0.5, guard=1.0)
    sizes = [len(encode_score(one).SerializeToString()) for one in (score, bare)]
    assert sizes[0] - sizes[1] == size


# What a client means that does not know guard and statements.
PAPER: NcrOptions = {"guard": False, "statements": False}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (pb.RewardSpec(), RewardSpec.linear(0.5, **PAPER)),
        (pb.RewardSpec(kind=pb.REWARD_KIND_LINEAR), RewardSpec.linear(0.5, **PAPER)),
        (pb.RewardSpec(kind=pb.REWARD_KIND_LINEAR, alpha=0.0), RewardSpec.linear(0.0, **PAPER)),
        (pb.RewardSpec(kind=pb.REWARD_KIND_CURRICULUM), RewardSpec.curriculum(1, **PAPER)),
        (
            pb.RewardSpec(kind=pb.REWARD_KIND_CURRICULUM, switch_epoch=0),
            RewardSpec.curriculum(0, **PAPER),
        ),
        (pb.RewardSpec(guard=True), RewardSpec.linear(guard=True, statements=False)),
        (pb.RewardSpec(statements=True), RewardSpec.linear(guard=False, statements=True)),
        (
            pb.RewardSpec(final_nodes=False),
            RewardSpec(RewardKind.LINEAR, guard=False, statements=False, final_nodes=False),
        ),
    ],
)
def test_an_absent_number_is_the_default_and_never_zero(
    message: pb.RewardSpec, expected: RewardSpec
) -> None:
    assert decode_reward(message) == expected


@pytest.mark.parametrize("alpha", [-0.01, 1.01, math.inf, math.nan])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match=r"alpha must be .*\[0, 1\], got "):
        decode_reward(pb.RewardSpec(alpha=alpha))


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (pb.ScoreRequest(answer_rule=99), "answer_rule must be one of 1 .AUTO.*, got 99"),  # type: ignore[arg-type]
        (pb.ScoreRequest(on_undecided=7), "on_undecided must be one of .*, got 7"),  # type: ignore[arg-type]
        (
            pb.ScoreRequest(reward=pb.RewardSpec(kind=9)),  # type: ignore[arg-type]
            "reward.kind must be one of .*, got 9",
        ),
    ],
)
def test_a_number_of_a_newer_protocol_is_refused_and_not_defaulted(
    request_: pb.ScoreRequest, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        decode_options(_over_the_wire(request_))


def test_server_info_comes_back() -> None:
    info = ServerInfo(
        server_version="1.2.3",
        protocol_version=1,
        normal_form_version="1",
        answer_version="2",
        core_backend="native",
        datasets=(DatasetInfo("a", "sha256:0", 1, 2, 3, 4, 5), DatasetInfo("b", "", 0, 0, 0, 0, 0)),
        max_response_bytes=6,
        max_message_bytes=7,
        max_rollouts=8,
        max_inline_nodes=9,
        max_expressions_per_node=10,
        max_expression_bytes=11,
        max_inline_bytes=12,
    )
    assert decode_server_info(_over_the_wire(encode_server_info(info))) == info


def _over_the_wire(message: Any) -> Any:
    back = type(message)()
    back.ParseFromString(message.SerializeToString())
    return back


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 7))
def test_pieces_hold_all_items_in_order_within_bounds(
    sizes: list[int], max_bytes: int, max_items: int
) -> None:
    pieces = list(cut(sizes, lambda size: size, max_bytes, max_items))
    assert [size for piece in pieces for size in piece] == sizes
    for piece in pieces:
        assert len(piece) <= max_items
        assert len(piece) <= 1 or sum(piece) <= max_bytes

    # No two neighbours would have fitted into one.
    for piece, following in pairwise(pieces):
        assert len(piece) == max_items or sum(piece) + following[0] > max_bytes


def test_nothing_is_one_empty_piece() -> None:
    assert list(cut([], len, 10, 10)) == [[]]


def test_items_are_drawn_when_their_piece_is_built() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            drawn.append(item)
            yield item

    next(cut(items(), lambda _: 1, 5, 100))
    assert drawn == list(range(6))
