"""Requests: what the client encodes and the server decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import InlineNode, Rollout
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.enums import (
    ANSWER_RULE_TO_WIRE,
    ON_UNDECIDED_TO_WIRE,
    REWARD_KIND_TO_WIRE,
    decode_answer_rule,
    decode_on_undecided,
    decode_reward_kind,
)
from consensuspr.wire.options import MAX_UINT32, ScoreOptions
from consensuspr.wire.text import encode_response, is_valid, valid_text

DEFAULT_REWARD = RewardSpec.linear()


def encode_reward(reward: RewardSpec) -> pb.RewardSpec:
    """Return the message of a reward, every number filled in."""
    return pb.RewardSpec(
        kind=REWARD_KIND_TO_WIRE[reward.kind],
        alpha=reward.alpha,
        switch_epoch=reward.switch_epoch,
    )


def decode_reward(message: pb.RewardSpec) -> RewardSpec:
    """Return the reward of a message; an absent number is the default, never 0.

    Raises:
        InputError: the kind is unknown or alpha is outside [0, 1].
    """
    kind = decode_reward_kind(message.kind)
    alpha = message.alpha if message.HasField("alpha") else DEFAULT_REWARD.alpha
    switch = (
        message.switch_epoch if message.HasField("switch_epoch") else DEFAULT_REWARD.switch_epoch
    )
    try:
        return RewardSpec(kind, alpha=alpha, switch_epoch=switch)
    except ValueError as error:
        raise InputError(f"reward: {error}") from None


def encode_rollout(rollout: Rollout) -> pb.Rollout:
    """Return the message of one rollout; never fails for what the rollout's text holds."""
    try:
        return _make_message(pb.Rollout, rollout, _as_it_is)
    except UnicodeEncodeError:
        return _make_message(pb.Rollout, rollout, valid_text)


def encode_rollout_field(rollout: Rollout) -> bytes:
    """Return one rollout as it stands in the bytes of a scoring request.

    It is a whole request that holds nothing else: serialised messages that stand one behind the
    other are, by protobuf's rules, one message with all that they repeat.  So a request is
    joined from parts whose sizes are known, and no text is copied into a message of a mebibyte
    and out of it again.
    """
    request = pb.ScoreRequest()
    try:
        _make_message(request.rollouts.add, rollout, _as_it_is)
    except UnicodeEncodeError:
        request = pb.ScoreRequest()  # without what was begun
        _make_message(request.rollouts.add, rollout, valid_text)
    return request.SerializeToString()


def join_score_request(fields: Iterable[bytes], options: ScoreOptions) -> bytes:
    """Return the bytes of the request for rollouts that :func:`encode_rollout_field` encoded."""
    return b"".join((encode_score_request((), options).SerializeToString(), *fields))


def as_sent(rollout: Rollout) -> Rollout:
    """Return the rollout that a server would score, for whoever scores it without one.

    Nearly always the rollout itself; a copy where the protocol cannot carry all of its text.
    """
    texts = [rollout.response, rollout.problem_id, rollout.ground_truth]
    for node in rollout.nodes or ():
        whole = node if isinstance(node, InlineNode) else InlineNode(expressions=node)
        texts += [*_expressions(whole), *whole.derived]
    if all(is_valid(text) for text in texts if isinstance(text, str)):
        return rollout
    return decode_rollout(encode_rollout(rollout))


def decode_rollout(message: pb.Rollout) -> Rollout:
    """Return the rollout of a message; empty labels are None."""
    has = message.HasField
    # In the order of the fields: by name takes half as long again, thousands of times a batch.
    return Rollout(
        message.problem_id,
        message.response,
        message.ground_truth if has("ground_truth") else None,
        message.num_tokens if has("num_tokens") else None,
        _decode_nodes(message.nodes) if has("nodes") else None,
        message.data_source or None,
        message.rollout_id or None,
    )


def encode_score_request(messages: Iterable[pb.Rollout], options: ScoreOptions) -> pb.ScoreRequest:
    """Return the request for rollouts that are messages already."""
    return pb.ScoreRequest(
        protocol_version=PROTOCOL_VERSION,
        dataset=valid_text(options.dataset or ""),
        reward=encode_reward(options.reward),
        epoch=options.epoch,
        answer_rule=_encode_answer_rule(options),
        on_undecided=ON_UNDECIDED_TO_WIRE[options.on_undecided],
        include_spans=options.include_spans,
        rollouts=messages,
    )


def encode_explain_request(rollout: Rollout, options: ScoreOptions) -> pb.ExplainRequest:
    """Return the request to explain one rollout; spans are always part of the reply."""
    return pb.ExplainRequest(
        protocol_version=PROTOCOL_VERSION,
        dataset=valid_text(options.dataset or ""),
        reward=encode_reward(options.reward),
        epoch=options.epoch,
        answer_rule=_encode_answer_rule(options),
        on_undecided=ON_UNDECIDED_TO_WIRE[options.on_undecided],
        rollout=encode_rollout(rollout),
    )


def decode_options(request: pb.ScoreRequest | pb.ExplainRequest) -> ScoreOptions:
    """Return how the request wants to be scored, defaults filled in.

    Raises:
        InputError: an enumeration's number is unknown or alpha is outside [0, 1].
    """
    return ScoreOptions(
        reward=decode_reward(request.reward),
        epoch=request.epoch,
        dataset=request.dataset or None,
        answer_rule=decode_answer_rule(request.answer_rule),
        on_undecided=decode_on_undecided(request.on_undecided),
        include_spans=request.include_spans if isinstance(request, pb.ScoreRequest) else True,
    )


def _as_it_is(text: str) -> str:
    return text


def _make_message(
    make: Callable[..., pb.Rollout], rollout: Rollout, clean: Callable[[str], str]
) -> pb.Rollout:
    tokens = rollout.num_tokens
    return make(
        problem_id=clean(rollout.problem_id),
        response=encode_response(rollout.response),
        ground_truth=None if rollout.ground_truth is None else clean(rollout.ground_truth),
        # A count that is none makes no TPN; on the wire it would be an error of the batch.
        num_tokens=tokens if tokens is not None and 0 < tokens <= MAX_UINT32 else None,
        nodes=None if rollout.nodes is None else _nodes_message(rollout.nodes, clean),
        data_source=clean(rollout.data_source or ""),
        rollout_id=clean(rollout.rollout_id or ""),
    )


def _nodes_message(
    nodes: Sequence[InlineNode | Sequence[str]], clean: Callable[[str], str]
) -> pb.InlineNodes:
    whole = (
        node if isinstance(node, InlineNode) else InlineNode(expressions=node) for node in nodes
    )
    return pb.InlineNodes(
        nodes=(
            pb.InlineNode(
                node_id=clean(node.node_id),
                expressions=map(clean, _expressions(node)),
                derived=map(clean, node.derived),
            )
            for node in whole
        )
    )


def _expressions(node: InlineNode) -> Sequence[str]:
    """Return a node's expressions, none where they are no list of strings.

    The protocol cannot carry a bare string or a number there; a node without expressions
    is INVALID_NODES, which is what such a node is wherever it is scored.
    """
    given = node.expressions
    if (
        isinstance(given, str)
        or not isinstance(given, Iterable)
        or not all(isinstance(text, str) for text in given)
    ):
        return ()
    return given


def _decode_nodes(message: pb.InlineNodes) -> list[InlineNode]:
    return [
        InlineNode(
            expressions=tuple(node.expressions), node_id=node.node_id, derived=tuple(node.derived)
        )
        for node in message.nodes
    ]


def _encode_answer_rule(options: ScoreOptions) -> pb.AnswerRule.ValueType:
    rule = options.answer_rule
    return pb.ANSWER_RULE_UNSPECIFIED if rule is None else ANSWER_RULE_TO_WIRE[rule]
