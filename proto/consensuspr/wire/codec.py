"""Convert values of ``consensuspr.scoring`` to protobuf messages and back.

The functions of both directions stand side by side, so that a new field is added to both.

A ``str`` may hold lone surrogates (a tokenizer's byte fallback, ``surrogateescape``).  A protobuf
string may not, and rejects the whole message, so they are replaced.

A newer peer may send an enum number that this release does not know.  It raises
:class:`InputError`: a default would score by a rule that nobody asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from itertools import accumulate, pairwise
from os import urandom
from typing import Any, Generic, NamedTuple, TypeVar

from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget, GuardFigures
from consensuspr.scoring.rewards import CodeCredit, NcrKind, RewardKind, RewardSpec, Unanswered
from consensuspr.scoring.types import (
    CHANNELS,
    FIRST_SCORING_VERSION,
    MAX_UINT32,
    SAMPLE_KEY_BYTES,
    AnswerRule,
    Explanation,
    Identity,
    InlineNode,
    NodeExplanation,
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

# About a mebibyte amortises the cost of an RPC, and several requests of one batch still run at
# once.  The number bounds the reply when responses are short.
PIECE_BYTES = 1 << 20
PIECE_ROLLOUTS = 256

DEFAULT_REWARD = RewardSpec.linear()

Span = tuple[int, int]

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)


def cut(
    items: Iterable[T], size: Callable[[T], int], max_bytes: int, max_items: int
) -> Iterator[list[T]]:
    """Yield the items in order, in pieces within the bounds, each drawn when it is built.

    An item larger than ``max_bytes`` is a piece of its own.  No items are one empty piece,
    because an empty batch has an identity too.
    """
    piece: list[T] = []
    piece_bytes = 0
    any_yet = False
    for item in items:
        item_bytes = size(item)
        if piece and (len(piece) >= max_items or piece_bytes + item_bytes > max_bytes):
            yield piece
            any_yet = True
            piece, piece_bytes = [], 0
        piece.append(item)
        piece_bytes += item_bytes
    if piece or not any_yet:
        yield piece


def encode_response(response: str | bytes) -> bytes:
    """Return the bytes of a response as they are sent and matched.

    A lone surrogate becomes its three-byte form, which the normal form reads as invalid bytes.
    """
    if isinstance(response, bytes):
        return response
    return response.encode("utf-8", "surrogatepass")


def valid_text(text: str) -> str:
    """Return ``text`` with each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    # UTF-16 joins real pairs, so that only lone halves fail.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def values_of(kind: Any, source: object) -> dict[str, Any]:
    """Return the values of a dataclass or message by the names of the fields of ``kind``."""
    return {field.name: getattr(source, field.name) for field in fields(kind)}


class _Enumeration(Generic[E]):
    """The members of an enumeration and the protocol's numbers of the same names."""

    def __init__(self, field: str, members: type[E], numbers: Any, prefix: str) -> None:
        self._field = field
        self.number_of: dict[E, Any] = {
            member: numbers.Value(f"{prefix}_{member.name}") for member in members
        }
        self._member_of: dict[int, E] = {n: member for member, n in self.number_of.items()}

    def member(self, number: int) -> E:
        """Return the member of a number; raise InputError if this version does not know it."""
        try:
            return self._member_of[number]
        except KeyError:
            known = sorted(self._member_of.items())
            names = ", ".join(f"{n} ({member.name})" for n, member in known)
            raise InputError(f"{self._field} must be one of {names}, got {number}") from None

    def member_or(self, number: int, unspecified: D) -> E | D:
        """Return the member of a number, ``unspecified`` if the field is not set."""
        return unspecified if number == 0 else self.member(number)


_STATUSES = _Enumeration("status", Status, pb.Status, "STATUS")
_ANSWER_RULES = _Enumeration("answer_rule", AnswerRule, pb.AnswerRule, "ANSWER_RULE")
_ON_UNDECIDED = _Enumeration("on_undecided", OnUndecided, pb.OnUndecided, "ON_UNDECIDED")
_REWARD_KINDS = _Enumeration("reward.kind", RewardKind, pb.RewardKind, "REWARD_KIND")
_NCR_KINDS = _Enumeration("reward.ncr", NcrKind, pb.NcrKind, "NCR_KIND")
_CODE_CREDITS = _Enumeration("reward.code", CodeCredit, pb.CodeCredit, "CODE_CREDIT")
_UNANSWERED = _Enumeration("reward.unanswered", Unanswered, pb.Unanswered, "UNANSWERED")


# -- rewards and options ---------------------------------------------------------------------------


def encode_reward(reward: RewardSpec) -> pb.RewardSpec:
    """Return the message of a reward, every field set."""
    return pb.RewardSpec(
        kind=_REWARD_KINDS.number_of[reward.kind],
        alpha=reward.alpha,
        switch_epoch=reward.switch_epoch,
        guard=reward.guard,
        statements=reward.statements,
        final_nodes=reward.final_nodes,
        ncr=_NCR_KINDS.number_of[NcrKind(reward.ncr)],
        after_think=reward.after_think,
        code=_CODE_CREDITS.number_of[CodeCredit(reward.code)],
        unanswered=_UNANSWERED.number_of[Unanswered(reward.unanswered)],
    )


def decode_reward(message: pb.RewardSpec) -> RewardSpec:
    """Return the reward of a message.

    An absent number is the default, never 0.  Absent ``guard``, ``statements`` and ``code`` mean
    the behaviour before these fields existed.
    """
    kind = _REWARD_KINDS.member_or(message.kind, RewardKind.LINEAR)
    alpha = message.alpha if message.HasField("alpha") else DEFAULT_REWARD.alpha
    switch = (
        message.switch_epoch if message.HasField("switch_epoch") else DEFAULT_REWARD.switch_epoch
    )
    try:
        return RewardSpec(
            kind,
            alpha=alpha,
            switch_epoch=switch,
            guard=message.guard,
            statements=message.statements,
            final_nodes=message.final_nodes if message.HasField("final_nodes") else True,
            ncr=_NCR_KINDS.member_or(message.ncr, NcrKind.PLAIN),
            after_think=message.after_think,
            code=_CODE_CREDITS.member_or(message.code, CodeCredit.COMPUTED),
            unanswered=_UNANSWERED.member_or(message.unanswered, Unanswered.NCR),
        )
    except ValueError as error:
        raise InputError(f"reward: {error}") from None


def _fill_options(request: pb.ScoreRequest | pb.ExplainRequest, options: ScoreOptions) -> None:
    request.protocol_version = PROTOCOL_VERSION
    request.dataset = valid_text(options.dataset or "")
    request.reward.CopyFrom(encode_reward(options.reward))
    request.epoch = options.epoch
    if options.answer_rule is not None:
        request.answer_rule = _ANSWER_RULES.number_of[options.answer_rule]
    request.on_undecided = _ON_UNDECIDED.number_of[options.on_undecided]
    request.run = options.run or ""
    request.expect_digest = options.expect_digest or ""


def decode_options(request: pb.ScoreRequest | pb.ExplainRequest) -> ScoreOptions:
    """Return the options of a request, defaults filled in; raise InputError for wrong ones."""
    score = request if isinstance(request, pb.ScoreRequest) else None
    return ScoreOptions(
        reward=decode_reward(request.reward),
        epoch=request.epoch,
        dataset=request.dataset or None,
        answer_rule=_ANSWER_RULES.member_or(request.answer_rule, None),
        on_undecided=_ON_UNDECIDED.member_or(request.on_undecided, OnUndecided.COUNT_WRONG),
        include_spans=score is None or score.include_spans,
        run=request.run or None,
        expect_digest=request.expect_digest or None,
        probe=score is not None and score.probe,
    )


# -- rollouts --------------------------------------------------------------------------------------


def encode_rollout(rollout: Rollout) -> pb.Rollout:
    """Return the message of one rollout."""
    message = _without_response(rollout)
    message.response = encode_response(rollout.response)
    return message


def _without_response(rollout: Rollout) -> pb.Rollout:
    # Assignments take two thirds of the time of keyword arguments.
    message = pb.Rollout()
    message.problem_id = valid_text(rollout.problem_id)
    if rollout.ground_truth is not None:
        message.ground_truth = valid_text(rollout.ground_truth)
    # The server would reject the whole request for another number.
    if rollout.num_tokens is not None and 0 < rollout.num_tokens <= MAX_UINT32:
        message.num_tokens = rollout.num_tokens
    if rollout.data_source:
        message.data_source = valid_text(rollout.data_source)
    if rollout.rollout_id:
        message.rollout_id = valid_text(rollout.rollout_id)
    if rollout.nodes is not None:
        message.nodes.CopyFrom(_encode_nodes(rollout.nodes, rollout.budget))
    if rollout.sample is not None:
        key, step, group, split = rollout.sample
        message.sample.key = key
        message.sample.group = valid_text(group or "")
        message.sample.split = valid_text(split or "")
        if step is not None and 0 <= step <= MAX_UINT32:
            message.sample.step = step
    return message


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the lowest first."""
    if 127 < number < 1 << 14:  # nearly every response
        return bytes((number & 127 | 128, number >> 7))
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


_LENGTH_DELIMITED = 2
_ROLLOUTS_TAG = _varint(pb.ScoreRequest.ROLLOUTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED)
_RESPONSE_TAG = _varint(pb.Rollout.RESPONSE_FIELD_NUMBER << 3 | _LENGTH_DELIMITED)


class EncodedRollout(NamedTuple):
    """One rollout as a field of a scoring request, and its response apart."""

    head: bytes
    response: bytes

    @property
    def num_bytes(self) -> int:
        """Size of the field."""
        return len(self.head) + len(self.response)


def encode_rollout_field(rollout: Rollout) -> EncodedRollout:
    """Return one rollout as a field of a scoring request.

    Serialised fields of a message can be concatenated in any order.  The response is appended by
    hand, because protobuf copies a long text several times.
    """
    response = encode_response(rollout.response)
    fields = _without_response(rollout).SerializeToString() + _RESPONSE_TAG + _varint(len(response))
    length = _varint(len(fields) + len(response))
    return EncodedRollout(_ROLLOUTS_TAG + length + fields, response)


def encode_score_request(
    rollouts: Iterable[Rollout | EncodedRollout], options: ScoreOptions
) -> bytes:
    """Return the bytes of a request; a rollout may be encoded already."""
    request = pb.ScoreRequest(
        include_spans=options.include_spans,
        probe=options.probe,
        request_id=int.from_bytes(urandom(8), "little"),
    )
    _fill_options(request, options)
    parts = [request.SerializeToString()]
    for rollout in rollouts:
        parts += rollout if isinstance(rollout, EncodedRollout) else encode_rollout_field(rollout)
    return b"".join(parts)


def decode_rollouts(request: pb.ScoreRequest, with_samples: bool = False) -> list[Rollout]:
    """Return the rollouts of a request, with their samples if a score log needs them.

    A rollout without a sample key gets one from the request's id and its position.
    """
    rollouts = [*map(decode_rollout, request.rollouts)]
    if with_samples:
        request_id = request.request_id.to_bytes(8, "big")
        for at, (rollout, message) in enumerate(zip(rollouts, request.rollouts, strict=True)):
            sample = message.sample
            key = sample.key
            if len(key) != SAMPLE_KEY_BYTES:
                if not request.request_id:  # an older client
                    continue
                key = request_id + at.to_bytes(8, "big")
            step = sample.step if sample.HasField("step") else None
            rollout.sample = Sample(key, step, sample.group or None, sample.split or None)
    return rollouts


def decode_rollout(message: pb.Rollout) -> Rollout:
    """Return the rollout of a message without its sample; empty labels are None."""
    has = message.HasField
    with_nodes = has("nodes")
    return Rollout(
        message.problem_id,
        message.response,
        message.ground_truth if has("ground_truth") else None,
        message.num_tokens or None,
        _decode_nodes(message.nodes) if with_nodes else None,
        message.data_source or None,
        message.rollout_id or None,
        _decode_budget(message.nodes) if with_nodes else None,
    )


def as_sent(rollout: Rollout) -> Rollout:
    """Return the rollout that a server would get: the same, or a copy without lone surrogates."""
    texts = [rollout.response, rollout.problem_id, rollout.ground_truth]
    for node in rollout.nodes or ():
        whole = node if isinstance(node, InlineNode) else InlineNode(expressions=node)
        texts += [*_expressions(whole), *whole.derived]
    try:
        for text in texts:
            if isinstance(text, str) and not text.isascii():
                text.encode()
    except UnicodeEncodeError:
        return decode_rollout(encode_rollout(rollout))
    return rollout


def encode_explain_request(rollout: Rollout, options: ScoreOptions) -> pb.ExplainRequest:
    """Return the request to explain one rollout; spans are always part of the reply."""
    request = pb.ExplainRequest(rollout=encode_rollout(rollout))
    _fill_options(request, options)
    return request


# -- inline nodes ----------------------------------------------------------------------------------


def _encode_nodes(
    nodes: Sequence[InlineNode | Sequence[str]], budget: GuardBudget | None
) -> pb.InlineNodes:
    message = pb.InlineNodes()
    for given in nodes:
        node = given if isinstance(given, InlineNode) else InlineNode(expressions=given)
        message.nodes.add(
            node_id=valid_text(node.node_id),
            expressions=map(valid_text, _expressions(node)),
            derived=map(valid_text, node.derived),
            is_final=node.is_final,
            weight=_weight(node.weight),
        )
    if budget is not None:
        # The scorer rejects a count of 0 and the largest length, as it rejects these numbers.
        message.budget.statements = _countable(budget.statements, 0)
        message.budget.numbers = _countable(budget.numbers, 0)
        message.budget.length = _countable(budget.length, MAX_UINT32)
        message.budget.equations = _countable(budget.equations, MAX_UINT32)
    return message


def _weight(weight: object) -> float | None:
    """Return a weight as it is sent; NaN for a value that is not a number."""
    if weight is None:
        return None
    try:
        return float(weight) if type(weight) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _countable(number: object, invalid: int) -> int:
    return number if type(number) is int and 0 <= number <= MAX_UINT32 else invalid


def _expressions(node: InlineNode) -> Sequence[str]:
    """Return a node's expressions, none if they are not a list of strings.

    The protocol cannot carry anything else.  A node without expressions is INVALID_NODES.
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
            expressions=tuple(node.expressions),
            node_id=node.node_id,
            derived=tuple(node.derived),
            is_final=node.is_final,
            weight=node.weight if node.HasField("weight") else None,
        )
        for node in message.nodes
    ]


def _decode_budget(message: pb.InlineNodes) -> GuardBudget | None:
    if not message.HasField("budget"):
        return None
    budget = message.budget
    return GuardBudget(budget.statements, budget.numbers, budget.length, budget.equations)


# -- replies ---------------------------------------------------------------------------------------


def encode_score_response(columns: ScoreColumns, identity: Identity) -> bytes:
    """Return the reply to a batch, scores in request order."""
    return _score_response(columns, identity).SerializeToString()


def _score_response(columns: ScoreColumns, identity: Identity) -> pb.ScoreResponse:
    answers = columns.answer
    count = len(columns)
    message = pb.ScoreResponse(
        identity=encode_identity(identity),
        statuses=[_STATUSES.number_of[status] for status in columns.status],
        rewards=columns.reward,
        accs=columns.acc,
        ncrs=columns.ncr,
        ncrs_raw=() if columns.ncr_raw == columns.ncr else columns.ncr_raw,
        guards=() if columns.guard.count(1.0) == count else columns.guard,
        tpns=() if all(map(math.isnan, columns.tpn)) else columns.tpn,
        num_nodes=columns.num_nodes,
        num_matched=columns.num_matched,
        channels=b"".join(columns.channel_numbers),
        num_channels=map(len, columns.channel_numbers),
        answers=["" if answer is None else valid_text(answer) for answer in answers],
        unanswered=[at for at, answer in enumerate(answers) if answer is None],
        answer_methods=columns.answer_method,
        messages={at: valid_text(text) for at, text in columns.messages.items()},
    )
    if columns.spans:
        for at in range(count):
            nodes = zip(columns.spans.get(at, ()), columns.shares.get(at, ()), strict=True)
            message.spans.add(
                nodes=[pb.NodeSpan(span=_encode_span(span), share=share) for span, share in nodes]
            )
    return message


def decode_score_response(reply: bytes) -> tuple[list[Score], Identity]:
    """Return the scores of a reply and their identity.

    Raises DecodeError if the bytes are no reply, InputError if this version does not know a value.
    """
    message = pb.ScoreResponse.FromString(reply)
    return _columns(message).scores(), decode_identity(message.identity)


def _columns(message: pb.ScoreResponse) -> ScoreColumns:
    statuses = [*map(_STATUSES.member, message.statuses)]
    count = len(statuses)

    def column(name: str, absent: list[Any] | None = None) -> list[Any]:
        found = [*getattr(message, name)]
        if len(found) == count:
            return found
        if not found and absent is not None:
            return absent
        raise InputError(f"{name} must have {count} entries, one per status, got {len(found)}")

    def by_position(name: str, values: Mapping[int, T]) -> dict[int, T]:
        if values and max(values) >= count:
            raise InputError(f"{name} must be of {count} scores, got position {max(values)}")
        return dict(values)

    ncrs = column("ncrs")
    answers = column("answers")
    for at in by_position("unanswered", dict.fromkeys(message.unanswered)):
        answers[at] = None
    # A score without spans and one without nodes look alike, and mean the same.
    spans = {at: of.nodes for at, of in enumerate(column("spans", [])) if of.nodes}
    return ScoreColumns(
        status=statuses,
        reward=column("rewards"),
        acc=column("accs"),
        ncr=ncrs,
        num_nodes=column("num_nodes"),
        num_matched=column("num_matched"),
        tpn=column("tpns", [math.nan] * count),
        answer=answers,
        answer_method=column("answer_methods"),
        ncr_raw=column("ncrs_raw", ncrs),
        guard=column("guards", [1.0] * count),
        channel_numbers=_decode_channels(message.channels, column("num_channels")),
        messages=by_position("messages", message.messages),
        spans={at: tuple(map(_decode_span, nodes)) for at, nodes in spans.items()},
        shares={at: tuple([node.share for node in nodes]) for at, nodes in spans.items()},
    )


_CHANNELS = {name: pb.Channel.Value(f"CHANNEL_{name.upper()}") for name in CHANNELS if name}
_CHANNELS[""] = pb.CHANNEL_UNSPECIFIED
# A channel of a newer peer counts as a pattern.
_KNOWN_CHANNELS = bytes(n if n < len(CHANNELS) else CHANNELS.index("pattern") for n in range(256))


def _decode_channels(channels: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the channels of each score."""
    ends = [*accumulate(sizes, initial=0)]
    if ends[-1] != len(channels):
        raise InputError(
            f"channels must have {ends[-1]} entries, one per node, got {len(channels)}"
        )
    known = channels.translate(_KNOWN_CHANNELS)
    return [known[start:end] for start, end in pairwise(ends)]


def _encode_span(span: Span | None) -> pb.Span | None:
    return None if span is None else pb.Span(start=span[0], end=span[1])


def _decode_span(message: pb.NodeSpan | pb.NodeExplanation) -> Span | None:
    return (message.span.start, message.span.end) if message.HasField("span") else None


def encode_identity(identity: Identity) -> pb.Identity:
    """Return the message of an identity."""
    values = values_of(Identity, identity)
    values["reward"] = encode_reward(identity.reward)
    values["answer_rule"] = _ANSWER_RULES.number_of[identity.answer_rule]
    return pb.Identity(**values)


def decode_identity(message: pb.Identity) -> Identity:
    """Return the identity of a message; raise InputError for an unknown reward or rule."""
    values = values_of(Identity, message)
    values["reward"] = decode_reward(message.reward)
    values["answer_rule"] = _ANSWER_RULES.member_or(message.answer_rule, AnswerRule.AUTO)
    values["scoring_version"] = message.scoring_version or FIRST_SCORING_VERSION
    return Identity(**values)


# Fields of a NodeExplanation and of its message that have one name.
_SAME_IN_NODES = ("node_id", "label", "matched", "is_final", "expression")

# -- explanations ----------------------------------------------------------------------------------


def encode_explain_response(explanation: Explanation) -> pb.ExplainResponse:
    """Return the reply to a request for an explanation."""
    message = pb.ExplainResponse(
        scored=_score_response(ScoreColumns.of([explanation.score]), explanation.identity),
        normal_form=valid_text(explanation.normal_form),
    )
    for node in explanation.nodes:
        message.nodes.add(
            node_id=valid_text(node.node_id),
            label=valid_text(node.label),
            matched=node.matched,
            is_final=node.is_final,
            span=_encode_span(node.span),
            expression=valid_text(node.expression),
            expressions=map(valid_text, node.expressions),
            channel=_CHANNELS[node.channel],
            left_out=not node.counts,
        )
    if explanation.guard is not None:
        message.guard.CopyFrom(pb.GuardFigures(**values_of(GuardFigures, explanation.guard)))
    return message


def decode_explain_response(message: pb.ExplainResponse) -> Explanation:
    """Return the explanation of a message; raise InputError if it is not of one score."""
    scores = _columns(message.scored).scores()
    if len(scores) != 1:
        raise InputError(f"an explanation is of one score, got {len(scores)}")
    nodes = []
    for node in message.nodes:
        values = {name: getattr(node, name) for name in _SAME_IN_NODES}
        values["expressions"] = tuple(node.expressions)
        channel = _channel(node)
        nodes.append(
            NodeExplanation(
                **values, span=_decode_span(node), channel=channel, counts=not node.left_out
            )
        )
    has_guard = message.HasField("guard")
    return Explanation(
        score=scores[0],
        nodes=tuple(nodes),
        normal_form=message.normal_form,
        identity=decode_identity(message.scored.identity),
        guard=GuardFigures(**values_of(GuardFigures, message.guard)) if has_guard else None,
    )


def _channel(node: pb.NodeExplanation) -> str:
    """Return the channel of a node; an older server sends none."""
    if not node.matched:
        return ""
    return CHANNELS[node.channel] if 0 < node.channel < len(CHANNELS) else "pattern"
