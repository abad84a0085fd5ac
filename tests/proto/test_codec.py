"""Messages and values: what one side encodes, the other decodes to the same; batches in pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.rewards import (
    CodeCredit,
    NcrKind,
    NcrOptions,
    RewardKind,
    RewardSpec,
    Unanswered,
)
from consensuspr.scoring.types import (
    CHANNELS,
    AnswerRule,
    Identity,
    InlineNode,
    OnUndecided,
    Rollout,
    Sample,
    Score,
    ScoreColumns,
    ScoreOptions,
    Status,
)
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    cut,
    decode_options,
    decode_reward,
    decode_rollout,
    decode_rollouts,
    decode_score_response,
    encode_explain_request,
    encode_response,
    encode_rollout,
    encode_rollout_field,
    encode_score_request,
    encode_score_response,
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
    code=st.sampled_from(CodeCredit),
    unanswered=st.sampled_from(Unanswered),
)
nodes = st.builds(
    InlineNode,
    expressions=st.lists(texts, max_size=4).map(tuple),
    node_id=texts,
    derived=st.lists(texts, max_size=4).map(tuple),
    is_final=st.booleans(),
    weight=st.none() | st.floats(0, 1e6),
)
budgets = st.none() | st.builds(GuardBudget, uint32s, uint32s, uint32s, uint32s)
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
).map(lambda rollout: rollout if rollout.nodes is not None else replace(rollout, budget=None))
spans = st.tuples(uint32s, uint32s)


def sound(score: Score) -> Score:
    """Return a score whose parts say the same of its nodes."""
    score.matched = tuple(map(bool, score.channel_numbers))
    if score.spans is not None:
        score.shares = tuple(float(at) for at, _ in enumerate(score.spans))
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


def digest_of(checksum: bytes) -> str:
    return f"sha256:{checksum.hex()}"


options = st.builds(
    ScoreOptions,
    reward=rewards,
    epoch=uint32s,
    dataset=labels,
    answer_rule=st.none() | st.sampled_from(AnswerRule),
    on_undecided=st.sampled_from(OnUndecided),
    include_spans=st.booleans(),
    run=labels.map(lambda text: (text and "".join(filter(str.isprintable, text))[:32]) or None),
    expect_digest=st.none() | st.binary(min_size=32, max_size=32).map(digest_of),
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
    scoring_version=texts.filter(bool),
)
IDENTITY = Identity("d", "sha256:0", "2", "1", RewardSpec.linear(), 0, AnswerRule.AUTO, "1")


@given(st.lists(rollouts, max_size=3), st.lists(scores, max_size=3), identities)
def test_values_come_back(some: list[Rollout], found: list[Score], identity: Identity) -> None:
    for request in (some, map(encode_rollout_field, some)):
        message = pb.ScoreRequest.FromString(encode_score_request(request, ScoreOptions()))
        assert decode_rollouts(message) == some
    reply = encode_score_response(ScoreColumns.of(found), identity)
    assert decode_score_response(reply) == (found, identity)


def test_samples_are_read_if_asked_for() -> None:
    whole = Sample(b"k" * 16, 3, "g\ud800", "train")
    samples = [whole, Sample(b"K" * 16, -1), Sample(b"short", 2**40, "g"), None]
    some = [Rollout(str(at), b"x", sample=sample) for at, sample in enumerate(samples)]
    request = pb.ScoreRequest.FromString(encode_score_request(some, ScoreOptions()))
    assert [each.sample for each in decode_rollouts(request)] == [None] * 4
    request.request_id = 7
    key = bytes(7) + b"\7" + bytes(7)
    assert [each.sample for each in decode_rollouts(request, with_samples=True)] == [
        whole._replace(group="g\ufffd"),
        Sample(b"K" * 16),
        Sample(key + b"\2", None, "g"),
        Sample(key + b"\3"),
    ]
    request.request_id = 0  # of an older client
    assert [each.sample for each in decode_rollouts(request, with_samples=True)][2:] == [None, None]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_a_response_of_any_length_is_written_as_protobuf_does(size: int) -> None:
    sent = Rollout("p", "é" + "x" * size, "18", 300)
    request = pb.ScoreRequest.FromString(encode_score_request([sent], ScoreOptions()))
    assert request.rollouts[0] == encode_rollout(sent)


@given(st.lists(scores, max_size=3), st.lists(scores, max_size=3))
def test_columns_of_two_pieces_are_those_of_all(first: list[Score], then: list[Score]) -> None:
    columns = ScoreColumns.of(first)
    columns.extend(ScoreColumns.of(then))
    assert columns.scores() == first + then


@given(options)
def test_options_come_back_from_both_requests(asked: ScoreOptions) -> None:
    request = pb.ScoreRequest.FromString(encode_score_request([], asked))
    assert request.protocol_version == PROTOCOL_VERSION
    assert decode_options(request) == asked
    explain = _over_the_wire(encode_explain_request(Rollout("p", "text"), asked))
    assert explain.protocol_version == PROTOCOL_VERSION
    assert decode_options(explain) == replace(asked, include_spans=True)


@given(any_texts, any_texts, any_texts)
def test_any_python_text_can_be_sent(problem_id: str, response: str, expression: str) -> None:
    rollout = Rollout(problem_id, response, ground_truth=expression, nodes=[[expression]])
    back = decode_rollout(_over_the_wire(encode_rollout(rollout)))
    assert back.problem_id == valid_text(problem_id)
    assert back.response == encode_response(response)
    assert back.ground_truth == valid_text(expression)
    assert back.nodes == [InlineNode((valid_text(expression),))]


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


def test_what_all_scores_have_costs_no_bytes() -> None:
    usual = Score(Status.OK, ncr=0.5, ncr_raw=0.5, guard=1.0)
    for score, columns in (
        (usual, set()),
        (replace(usual, ncr_raw=1.0, guard=0.5), {"ncrs_raw", "guards"}),
        (replace(usual, tpn=3.0), {"tpns"}),
    ):
        reply = encode_score_response(ScoreColumns.of([score]), IDENTITY)
        message = pb.ScoreResponse.FromString(reply)
        sent = {name for name in ("ncrs_raw", "guards", "tpns") if getattr(message, name)}
        assert sent == columns
        assert decode_score_response(reply)[0] == [score]


def test_a_channel_of_a_newer_server_counts_as_a_pattern() -> None:
    score = Score(Status.OK, ncr=1.0, channel_numbers=bytes((2, 9)))
    [back] = decode_score_response(encode_score_response(ScoreColumns.of([score]), IDENTITY))[0]
    assert back.channels == ("statement", "pattern")


@pytest.mark.parametrize(
    ("bend", "sentence"),
    [
        (lambda reply: reply.ncrs.append(1.0), "ncrs must have 2 entries, one per status, got 3"),
        (lambda reply: reply.answers.pop(), "answers must have 2 entries, one per status, got 1"),
        (lambda reply: reply.num_nodes.pop(), "num_nodes must have 2 entries"),
        (lambda reply: reply.tpns.append(1.0), "tpns must have 2 entries, one per status, got 1"),
        (lambda reply: reply.num_channels.__setitem__(0, 3), "channels must have 4 .* got 2"),
        (lambda reply: reply.unanswered.append(2), "unanswered must be of 2 scores, got .* 2"),
        (lambda reply: reply.messages.update({7: "why"}), "messages must be of 2 scores, .* 7"),
        (lambda reply: reply.statuses.__setitem__(1, 99), "status must be one of .*, got 99"),
    ],
)
def test_a_reply_whose_columns_do_not_fit_is_refused(
    bend: Callable[[pb.ScoreResponse], object], sentence: str
) -> None:
    score = Score(Status.OK, ncr=1.0, answer="1", channel_numbers=b"\1")
    columns = ScoreColumns.of([score, score])
    reply = pb.ScoreResponse.FromString(encode_score_response(columns, IDENTITY))
    bend(reply)
    with pytest.raises(InputError, match=sentence):
        decode_score_response(reply.SerializeToString())


# What a client means that does not know guard and statements.
PAPER: NcrOptions = {"guard": False, "statements": False, "code": "computed"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (pb.RewardSpec(), RewardSpec.linear(0.5, **PAPER)),
        (pb.RewardSpec(kind=pb.REWARD_KIND_LINEAR, alpha=0.0), RewardSpec.linear(0.0, **PAPER)),
        (pb.RewardSpec(kind=pb.REWARD_KIND_CURRICULUM), RewardSpec.curriculum(1, **PAPER)),
        (
            pb.RewardSpec(kind=pb.REWARD_KIND_CURRICULUM, switch_epoch=0),
            RewardSpec.curriculum(0, **PAPER),
        ),
        (pb.RewardSpec(guard=True), RewardSpec.linear(**PAPER | {"guard": True})),
        (
            pb.RewardSpec(code=pb.CODE_CREDIT_WRITTEN, unanswered=pb.UNANSWERED_ZERO),
            RewardSpec.linear(**PAPER | {"code": "written", "unanswered": "zero"}),
        ),
        (
            pb.RewardSpec(final_nodes=False),
            RewardSpec.linear(**PAPER | {"final_nodes": False}),
        ),
    ],
)
def test_an_absent_number_is_the_default_and_never_zero(
    message: pb.RewardSpec, expected: RewardSpec
) -> None:
    assert decode_reward(message) == expected


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (pb.ScoreRequest(answer_rule=99), "answer_rule must be one of 1 .AUTO.*, got 99"),  # type: ignore[arg-type]
        (pb.ScoreRequest(on_undecided=7), "on_undecided must be one of .*, got 7"),  # type: ignore[arg-type]
        (
            pb.ScoreRequest(reward=pb.RewardSpec(kind=9)),  # type: ignore[arg-type]
            "reward.kind must be one of .*, got 9",
        ),
        (
            pb.ScoreRequest(reward=pb.RewardSpec(code=3)),  # type: ignore[arg-type]
            r"reward.code must be one of 1 \(WRITTEN\), 2 \(COMPUTED\), got 3",
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
        protocol_version=PROTOCOL_VERSION,
        normal_form_version="1",
        answer_version="2",
        core_backend="native",
        datasets=(
            DatasetInfo("a", "sha256:0", 1, 2, 3, 4, 5, 6),
            DatasetInfo("b", "", 0, 0, 0, 0, 0),
        ),
        max_response_bytes=6,
        max_message_bytes=7,
        max_rollouts=8,
        max_inline_nodes=9,
        max_expressions_per_node=10,
        max_expression_bytes=11,
        max_inline_bytes=12,
        scoring_version="2",
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
