"""Replies: what the server encodes and the client decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from consensuspr.scoring.types import AnswerRule, Identity, Score
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.enums import (
    ANSWER_RULE_TO_WIRE,
    STATUS_TO_WIRE,
    decode_answer_rule,
    decode_status,
)
from consensuspr.wire.requests import decode_reward, encode_reward
from consensuspr.wire.text import valid_text

if TYPE_CHECKING:
    from consensuspr.scoring.explain import Explanation, NodeExplanation

Span = tuple[int, int]


def encode_score(score: Score) -> pb.RolloutScore:
    """Return the message of one score; what is None stays absent."""
    return _make_message(pb.RolloutScore, score)


def _make_message(make: Callable[..., pb.RolloutScore], score: Score) -> pb.RolloutScore:
    return make(
        status=STATUS_TO_WIRE[score.status],
        acc=score.acc,
        ncr=score.ncr,
        reward=score.reward,
        tpn=score.tpn,
        num_nodes=score.num_nodes,
        num_matched=score.num_matched,
        matched=score.matched,
        spans=None if score.spans is None else map(_encode_node_span, score.spans),
        message=valid_text(score.message),
        answer_method=score.answer_method,
        answer=None if score.answer is None else valid_text(score.answer),
    )


def decode_score(message: pb.RolloutScore) -> Score:
    """Return the score of a message.

    Raises:
        InputError: the status is not one of this protocol version.
    """
    has = message.HasField
    spans = message.spans
    # In the order of the fields: by name takes half as long again, thousands of times a batch.
    return Score(
        decode_status(message.status),
        message.reward if has("reward") else None,
        message.acc if has("acc") else None,
        message.ncr if has("ncr") else None,
        message.num_nodes,
        message.num_matched,
        tuple(message.matched),
        message.tpn if has("tpn") else None,
        # No spans and no nodes look alike on the wire, and mean the same.
        tuple(map(_decode_node_span, spans)) if spans else None,
        message.message,
        message.answer if has("answer") else None,
        message.answer_method,
    )


def encode_identity(identity: Identity) -> pb.Identity:
    """Return the message of an identity."""
    return pb.Identity(
        dataset=identity.dataset,
        dataset_digest=identity.dataset_digest,
        normal_form_version=identity.normal_form_version,
        answer_version=identity.answer_version,
        reward=encode_reward(identity.reward),
        epoch=identity.epoch,
        answer_rule=ANSWER_RULE_TO_WIRE[identity.answer_rule],
        server_version=identity.server_version,
    )


def decode_identity(message: pb.Identity) -> Identity:
    """Return the identity of a message.

    Raises:
        InputError: the reward or the answer rule is not one of this protocol version.
    """
    return Identity(
        dataset=message.dataset,
        dataset_digest=message.dataset_digest,
        normal_form_version=message.normal_form_version,
        answer_version=message.answer_version,
        reward=decode_reward(message.reward),
        epoch=message.epoch,
        answer_rule=decode_answer_rule(message.answer_rule) or AnswerRule.AUTO,
        server_version=message.server_version,
    )


def encode_score_response(scores: Iterable[Score], identity: Identity) -> pb.ScoreResponse:
    """Return the reply to a batch, scores in request order."""
    response = pb.ScoreResponse(identity=encode_identity(identity))
    for score in scores:
        # In its place: a message made elsewhere would be copied there.
        _make_message(response.scores.add, score)
    return response


def encode_explain_response(explanation: Explanation) -> pb.ExplainResponse:
    """Return the reply to a request for an explanation."""
    return pb.ExplainResponse(
        score=encode_score(explanation.score),
        nodes=map(_encode_node_explanation, explanation.nodes),
        normal_form=valid_text(explanation.normal_form),
        identity=encode_identity(explanation.identity),
    )


def decode_explain_response(message: pb.ExplainResponse) -> Explanation:
    """Return the explanation of a message.

    Raises:
        InputError: an enumeration's number is not one of this protocol version.
    """
    # Here and not above: this brings the matcher along, which a scoring client never needs.
    from consensuspr.scoring.explain import Explanation, NodeExplanation

    return Explanation(
        score=decode_score(message.score),
        nodes=tuple(
            NodeExplanation(
                node_id=node.node_id,
                label=node.label,
                matched=node.matched,
                is_final=node.is_final,
                span=(node.span.start, node.span.end) if node.HasField("span") else None,
                expression=node.expression,
                expressions=tuple(node.expressions),
            )
            for node in message.nodes
        ),
        normal_form=message.normal_form,
        identity=decode_identity(message.identity),
    )


def _encode_node_explanation(node: NodeExplanation) -> pb.NodeExplanation:
    return pb.NodeExplanation(
        node_id=valid_text(node.node_id),
        label=valid_text(node.label),
        matched=node.matched,
        is_final=node.is_final,
        span=None if node.span is None else pb.Span(start=node.span[0], end=node.span[1]),
        expression=valid_text(node.expression),
        expressions=map(valid_text, node.expressions),
    )


def _encode_node_span(span: Span | None) -> pb.NodeSpan:
    return pb.NodeSpan() if span is None else pb.NodeSpan(span=pb.Span(start=span[0], end=span[1]))


def _decode_node_span(message: pb.NodeSpan) -> Span | None:
    return (message.span.start, message.span.end) if message.HasField("span") else None
