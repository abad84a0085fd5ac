"""Values of the scoring room as messages of the protocol, and back.

The server decodes requests and encodes replies, the client does the reverse; both directions
of each message stand side by side here, so that a field cannot be written by one and forgotten
by the other.  Knows ``consensuspr.v1`` and the plain types of ``consensuspr.scoring``; knows
neither gRPC nor how scores are made.

**Batches.** Rollouts and scores, of which there are thousands, are read and written by
``native`` where it is built, and here by messages where it is not or leaves something to protobuf:
the readable twin, with the same results.

**Text.** A ``str`` may hold lone surrogates (a tokenizer's byte fallback, ``surrogateescape``);
a protobuf string may not, and refuses the whole message.  One odd character must not cost a
batch its scores, so it is replaced, and only where it stands.

**Enumerations** are paired by name.  A protobuf enum is open: a newer peer may send a number that
this release does not know.  It becomes an :class:`InputError` and never a default, because a
default would score by a rule that nobody asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from os import urandom
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError, Message

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

native: Any = None
if os.environ.get("CONSENSUSPR_PURE_PYTHON") != "1":
    with contextlib.suppress(ImportError):
        native = importlib.import_module("consensuspr.wire.native")

# About a mebibyte amortises what an RPC costs and still lets several requests of one batch
# be in work at once; the number bounds the reply where responses are short.
PIECE_BYTES = 1 << 20
PIECE_ROLLOUTS = 256

DEFAULT_REWARD = RewardSpec.linear()

Span = tuple[int, int]

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)
N = TypeVar("N", bound=int, covariant=True)


def cut(
    items: Iterable[T], size: Callable[[T], int], max_bytes: int, max_items: int
) -> Iterator[list[T]]:
    """Yield the items in order, as many at a time as the bounds allow.

    The client's requests, the server's steps of work and the in-process client's are cut by
    this one rule.

    Lazy: an item is not looked at before its piece is built.  A single item larger than
    ``max_bytes`` is a piece of its own; no items are one empty piece, because an empty
    batch has an outcome too.

    Args:
        items: what to cut.
        size: bytes of one item.
        max_bytes: of a piece that holds more than one item.
        max_items: of a piece, at least 1.
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

    Bytes pass through as they are.  A lone surrogate becomes its three-byte form, which
    the normal form reads as one invalid sequence.
    """
    if isinstance(response, bytes):
        return response
    return response.encode("utf-8", "surrogatepass")


def is_valid(text: str) -> bool:
    """Tell whether ``text`` holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str) -> str:
    """Return ``text`` with each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    # UTF-16 joins what is really a pair and lets only lone halves fail.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Numbers(Protocol[N]):
    """What is used of a generated enum: the number of a name."""

    def Value(self, name: str) -> N: ...


class _Enumeration(Generic[E, N]):
    """Members of the scoring room and the numbers of the protocol that have their names."""

    def __init__(self, field: str, members: type[E], numbers: _Numbers[N], prefix: str) -> None:
        self._field = field
        self.number_of: dict[E, N] = {
            member: numbers.Value(f"{prefix}_{member.name}") for member in members
        }
        self._member_of: dict[int, E] = {n: member for member, n in self.number_of.items()}

    def member(self, number: int) -> E:
        """Return the member of a number.

        Raises:
            InputError: the number is not one of this protocol version.
        """
        try:
            return self._member_of[number]
        except KeyError:
            known = sorted(self._member_of.items())
            names = ", ".join(f"{n} ({member.name})" for n, member in known)
            raise InputError(f"{self._field} must be one of {names}, got {number}") from None

    def member_or(self, number: int, unspecified: D) -> E | D:
        """Return the member of a number, ``unspecified`` where it was left out."""
        return unspecified if number == 0 else self.member(number)


_STATUSES = _Enumeration("status", Status, pb.Status, "STATUS")
_ANSWER_RULES = _Enumeration("answer_rule", AnswerRule, pb.AnswerRule, "ANSWER_RULE")
_ON_UNDECIDED = _Enumeration("on_undecided", OnUndecided, pb.OnUndecided, "ON_UNDECIDED")
_REWARD_KINDS = _Enumeration("reward.kind", RewardKind, pb.RewardKind, "REWARD_KIND")

_NCR_KINDS = _Enumeration("reward.ncr", NcrKind, pb.NcrKind, "NCR_KIND")
_CODE_CREDITS = _Enumeration("reward.code", CodeCredit, pb.CodeCredit, "CODE_CREDIT")
_UNANSWERED = _Enumeration("reward.unanswered", Unanswered, pb.Unanswered, "UNANSWERED")

decode_status = _STATUSES.member


def encode_reward(reward: RewardSpec) -> pb.RewardSpec:
    """Return the message of a reward, every number filled in."""
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

    An absent number is the default, never 0.  Absent guard and statements are off, the paper's own
    NCR: the peer does not know them, and means what it meant before there were any.  For the same
    reason absent ``code`` is ``computed``.

    Raises:
        InputError: a kind is unknown or alpha is outside [0, 1].
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


def encode_rollout(rollout: Rollout) -> pb.Rollout:
    """Return the message of one rollout; never fails for what the rollout's text holds."""
    _, head, response = encode_rollout_field(rollout)
    return pb.ScoreRequest.FromString(head + response).rollouts[0]


class EncodedRollout(NamedTuple):
    """One rollout as it stands in the bytes of a scoring request: head, then response.

    It is a whole request that holds nothing else: serialised messages that stand one behind the
    other are, by protobuf's rules, one message with all that they repeat.  So a request is
    joined from parts whose sizes are known.
    """

    num_bytes: int
    head: bytes
    response: bytes


def encode_rollout_field(rollout: Rollout) -> EncodedRollout:
    """Return one rollout as it is sent; never fails for what the rollout's text holds.

    Written by hand: a message for each rollout takes three times as long, and two more copies of
    its text.  Fields may stand in any order, so that the response is the last one.
    """
    response = encode_response(rollout.response)
    fields = _of_problem(rollout.problem_id, rollout.ground_truth, rollout.data_source)
    tokens = rollout.num_tokens
    # A count that is none makes no TPN; on the wire it would be an error of the batch.
    if tokens is not None and 0 < tokens <= MAX_UINT32:
        fields += _NUM_TOKENS + _varint(tokens)
    if rollout.nodes is not None:
        nodes = _nodes_message(rollout, rollout.nodes).SerializeToString()
        fields += _NODES + _varint(len(nodes)) + nodes
    if rollout.rollout_id:
        fields += _text(_ROLLOUT_ID, rollout.rollout_id)
    if rollout.sample is not None:
        sample = encode_sample(rollout.sample)
        fields += _SAMPLE + _varint(len(sample)) + sample
    fields += _RESPONSE + _varint(len(response))
    head = _ROLLOUT + _varint(len(fields) + len(response)) + fields
    return EncodedRollout(len(head) + len(response), head, response)


class RequestBounds(NamedTuple):
    """What a request may hold.

    Attributes:
        max_bytes: of its rollouts, where it has more than one.
        max_rollouts: of them.
        max_response_bytes: a rollout whose response has more is left out.
        max_rollout_bytes: one that has more itself likewise.
    """

    max_bytes: int
    max_rollouts: int
    max_response_bytes: int
    max_rollout_bytes: int


class RequestPiece(NamedTuple):
    """A request that holds a part of a batch.

    Attributes:
        request: its bytes.
        end: position of the first rollout behind it.
        left_out: positions of those before that which no request can carry.
    """

    request: bytes
    end: int
    left_out: list[int]


# To be sent: a rollout, or what has been encoded of one before.
Item: TypeAlias = Rollout | EncodedRollout


def encoded_item(item: Item) -> EncodedRollout:
    """Return an item as it stands in a request."""
    return item if isinstance(item, EncodedRollout) else encode_rollout_field(item)


_UNBOUNDED = RequestBounds(*[1 << 62] * 4)


def encode_score_request(rollouts: Iterable[Item], options: ScoreOptions) -> bytes:
    """Return the bytes of the request for all of the rollouts."""
    items = [*rollouts]
    return encode_piece(items, options, 0, _UNBOUNDED, lambda _, item: encoded_item(item)).request


def encode_piece(
    items: list[Item],
    options: ScoreOptions,
    start: int,
    bounds: RequestBounds,
    encode: Callable[[int, Item], EncodedRollout],
) -> RequestPiece:
    """Return the request for as many items, in their order, as it may hold.

    Args:
        items: what is to be sent.
        options: of the request.
        start: position of the first one.
        bounds: on the request.
        encode: called with the position of an item and the item, at least where it is no plain
            rollout; raises where it is none.
    """
    before = _encode_options(options) + _REQUEST_ID + urandom(8)
    if native is not None:
        return RequestPiece(
            *native.encode_rollouts(items, start, before, bounds, encode, encode_sample)
        )
    parts, left_out = [before], []
    num_bytes = num_rollouts = 0
    at = start
    for at in range(start, len(items)):
        size, head, response = encode(at, items[at])
        if len(response) > bounds.max_response_bytes or size > bounds.max_rollout_bytes:
            left_out.append(at)
            continue
        if num_rollouts and (
            num_rollouts == bounds.max_rollouts or num_bytes + size > bounds.max_bytes
        ):
            return RequestPiece(b"".join(parts), at, left_out)
        parts += (head, response)
        num_bytes += size
        num_rollouts += 1
    return RequestPiece(b"".join(parts), len(items), left_out)


@dataclass(frozen=True)
class RequestHead:
    """What a request says beside its rollouts and its name, one for all that say the same."""

    _message: pb.ScoreRequest

    @property
    def protocol_version(self) -> int:
        """That of who wrote it; 0 where it says none."""
        return self._message.protocol_version

    @cached_property
    def options(self) -> ScoreOptions:
        """How it wants to be scored; errors are those of :func:`decode_options`."""
        return decode_options(self._message)


def _head(rest: bytes) -> RequestHead:
    """Return what the fields of a request say that are no rollouts.

    Requests of a step differ in nothing but their names, which clients write last.  Two messages,
    one behind the other, are one message: what stands before a name may be read by itself.
    """
    if len(rest) > _MAX_KNOWN_HEAD:  # of a hostile client
        return _read_head.__wrapped__(rest)
    if rest[-_NAME_BYTES:].startswith(_REQUEST_ID):
        with contextlib.suppress(DecodeError):  # it is part of another field
            return _read_head(rest[:-_NAME_BYTES])
    return _read_head(rest)


@lru_cache(maxsize=64)
def _read_head(rest: bytes) -> RequestHead:
    message = pb.ScoreRequest.FromString(rest)
    message.ClearField("request_id")
    return RequestHead(message)


def decode_score_request(request: bytes) -> tuple[RequestHead, list[Rollout]]:
    """Return a request without its rollouts, and those without what names them in score logs.

    The compiled codec passes over that unread, whatever it is.

    Raises:
        DecodeError: the bytes are no request.
    """
    rest, rollouts = _decode_score_request(request, None)
    return _head(rest), rollouts


def decode_named_request(request: bytes) -> tuple[RequestHead, list[Rollout]]:
    """Do :func:`decode_score_request`, and name each rollout that its client gives a name.

    What brings no key of its own is named by the request and its position there; where the client
    is older than such names, it stays without.
    """
    rest, rollouts = _decode_score_request(request, decode_sample)
    request_id = pb.ScoreRequest.FromString(rest).request_id
    name = request_id.to_bytes(8, "big")
    for at, rollout in enumerate(rollouts):
        sample = rollout.sample
        if sample is None or not sample.key:
            place = () if sample is None else sample[1:]
            key = name + at.to_bytes(8, "big")
            rollout.sample = Sample(key, *place) if request_id else None
    return _head(rest), rollouts


def _decode_score_request(
    request: bytes, decode_sample: Callable[[bytes], Sample] | None
) -> tuple[bytes, list[Rollout]]:
    """Return the fields of a request that are no rollouts, unread, and the rollouts."""

    def decode(message: pb.Rollout) -> Rollout:
        rollout = decode_rollout(message)
        if decode_sample is not None and message.HasField("sample"):
            rollout.sample = decode_sample(message.sample.SerializeToString())
        return rollout

    def decode_bytes(message: bytes) -> Rollout:
        return decode(pb.Rollout.FromString(message))

    found = None
    if native is not None:
        found = native.decode_rollouts(request, decode_bytes, decode_sample)
    if found is not None:
        rollouts, rest = found
        return rest, rollouts
    message = pb.ScoreRequest.FromString(request)
    rollouts = [*map(decode, message.rollouts)]
    message.ClearField("rollouts")
    return message.SerializeToString(), rollouts


# Those of all requests of a step are the same.
@lru_cache(maxsize=64)
def _encode_options(options: ScoreOptions) -> bytes:
    request = pb.ScoreRequest(include_spans=options.include_spans, probe=options.probe)
    _fill_options(request, options)
    return request.SerializeToString()


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
    with_nodes = has("nodes")
    # In the order of the fields: by name takes half as long again, thousands of times a batch.
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


def decode_sample(message: bytes) -> Sample:
    """Return where a rollout comes from; its key is empty where it has not the form of one."""
    sample = pb.Sample.FromString(message)
    return Sample(
        sample.key if len(sample.key) == SAMPLE_KEY_BYTES else b"",
        sample.step if sample.HasField("step") else None,
        sample.group or None,
        sample.split or None,
    )


def encode_sample(sample: Sample) -> bytes:
    """Return the bytes of where a rollout comes from."""
    return _SAMPLE_KEY + _varint(len(sample.key)) + sample.key + _place(*sample[1:])


# All rollouts of a group bring the same.
@lru_cache(maxsize=4096)
def _place(step: int | None, group: str | None, split: str | None) -> bytes:
    known = step is not None and 0 <= step <= MAX_UINT32
    place = pb.Sample(
        step=step if known else None, group=valid_text(group or ""), split=valid_text(split or "")
    )
    return place.SerializeToString()


def encode_explain_request(rollout: Rollout, options: ScoreOptions) -> pb.ExplainRequest:
    """Return the request to explain one rollout; spans are always part of the reply."""
    request = pb.ExplainRequest(rollout=encode_rollout(rollout))
    _fill_options(request, options)
    return request


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
    """Return how the request wants to be scored, defaults filled in.

    Raises:
        InputError: an enumeration's number is unknown, alpha is outside [0, 1], or the name of the
            run or the digest has not its form.
    """
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


# All rollouts of a group bring the same.
@lru_cache(maxsize=4096)
def _of_problem(problem_id: str, ground_truth: str | None, data_source: str | None) -> bytes:
    fields = _text(_PROBLEM_ID, problem_id)
    if ground_truth is not None:
        fields += _text(_GROUND_TRUTH, ground_truth)
    return fields + _text(_DATA_SOURCE, data_source) if data_source else fields


def _text(tag: bytes, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = valid_text(text).encode()
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it, seven bits a byte, the lowest first."""
    if number < 128:
        return _SHORT[number]
    if number < 1 << 14:  # nearly every response
        return bytes((number & 127 | 128, number >> 7))
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


_SHORT = [bytes([number]) for number in range(128)]


def _tag(message: type[Message], field: str) -> bytes:
    """Return what stands before a field; text, bytes and messages are told from numbers."""
    described = message.DESCRIPTOR.fields_by_name[field]
    return _varint(described.number << 3 | (0 if described.type == described.TYPE_UINT32 else 2))


_ROLLOUT = _tag(pb.ScoreRequest, "rollouts")
_PROBLEM_ID = _tag(pb.Rollout, "problem_id")
_RESPONSE = _tag(pb.Rollout, "response")
_GROUND_TRUTH = _tag(pb.Rollout, "ground_truth")
_NUM_TOKENS = _tag(pb.Rollout, "num_tokens")
_NODES = _tag(pb.Rollout, "nodes")
_DATA_SOURCE = _tag(pb.Rollout, "data_source")
_ROLLOUT_ID = _tag(pb.Rollout, "rollout_id")
_SAMPLE = _tag(pb.Rollout, "sample")
_SAMPLE_KEY = _tag(pb.Sample, "key")
_REQUEST_ID = _varint(pb.ScoreRequest.DESCRIPTOR.fields_by_name["request_id"].number << 3 | 1)
_NAME_BYTES = len(_REQUEST_ID) + 8
# A run's name, a dataset's and its digest, and some more.
_MAX_KNOWN_HEAD = 1024


def _nodes_message(rollout: Rollout, nodes: Sequence[InlineNode | Sequence[str]]) -> pb.InlineNodes:
    whole = (
        node if isinstance(node, InlineNode) else InlineNode(expressions=node) for node in nodes
    )
    return pb.InlineNodes(
        nodes=(
            pb.InlineNode(
                node_id=valid_text(node.node_id),
                expressions=map(valid_text, _expressions(node)),
                derived=map(valid_text, node.derived),
                is_final=node.is_final,
                weight=_weight(node.weight),
            )
            for node in whole
        ),
        budget=_budget_message(rollout.budget),
    )


def _weight(weight: object) -> float | None:
    """Return a weight as it is sent: what is no number is refused wherever it is scored."""
    if weight is None:
        return None
    try:
        return float(weight) if type(weight) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _budget_message(budget: GuardBudget | None) -> pb.GuardBudget | None:
    """Return the message of a budget.

    A count that the protocol cannot carry is sent as 0 and such a length as the largest number:
    the scorer refuses both.
    """
    if budget is None:
        return None
    return pb.GuardBudget(
        statements=_countable(budget.statements, 0),
        numbers=_countable(budget.numbers, 0),
        length=_countable(budget.length, MAX_UINT32),
    )


def _countable(number: object, refused: int) -> int:
    return number if type(number) is int and 0 <= number <= MAX_UINT32 else refused


def _decode_budget(message: pb.InlineNodes) -> GuardBudget | None:
    if not message.HasField("budget"):
        return None
    budget = message.budget
    return GuardBudget(budget.statements, budget.numbers, budget.length)


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
            expressions=tuple(node.expressions),
            node_id=node.node_id,
            derived=tuple(node.derived),
            is_final=node.is_final,
            weight=node.weight if node.HasField("weight") else None,
        )
        for node in message.nodes
    ]


def encode_score_response(columns: ScoreColumns, identity: Identity) -> bytes:
    """Return the reply to a batch, scores in request order."""
    if native is None:
        return _score_response(columns, identity).SerializeToString()
    reply = _encode_identity_field(identity) + cast(
        bytes, native.encode_columns(columns, valid_text)
    )
    if columns.messages or columns.spans:
        rare = pb.ScoreResponse()
        _fill_rare(rare, columns)
        reply += rare.SerializeToString()
    return reply


# The same for as long as a dataset is scored with the same reward in the same epoch.
@lru_cache(maxsize=64)
def _encode_identity_field(identity: Identity) -> bytes:
    return pb.ScoreResponse(identity=encode_identity(identity)).SerializeToString()


def _score_response(columns: ScoreColumns, identity: Identity) -> pb.ScoreResponse:
    answers = columns.answer
    count = len(columns)
    message = pb.ScoreResponse(
        identity=encode_identity(identity),
        # An enumeration's hash is a function of Python's: the usual one is not looked up.
        statuses=[
            pb.STATUS_OK if status is Status.OK else _STATUSES.number_of[status]
            for status in columns.status
        ],
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
    )
    _fill_rare(message, columns)
    return message


def _fill_rare(message: pb.ScoreResponse, columns: ScoreColumns) -> None:
    """Write what few scores have."""
    for at, text in columns.messages.items():
        message.messages[at] = valid_text(text)
    if columns.spans:
        spans, shares = columns.spans, columns.shares
        message.spans.extend(
            _encode_spans(spans.get(at, ()), shares.get(at, ())) for at in range(len(columns))
        )


def decode_score_response(reply: bytes) -> tuple[list[Score], Identity]:
    """Return the scores of a reply, and under what they were computed.

    Raises:
        DecodeError: the bytes are no reply.
        InputError: a status or the identity is not of this protocol version, or a column has
            another length.
    """
    try:
        found = _decode_natively(reply)
    except InputError:
        found = None  # of several faults protobuf's parser names the first, here and without C
    if found is None:
        message = pb.ScoreResponse.FromString(reply)
        return _columns(message).scores(), decode_identity(message.identity)
    return found


def _decode_natively(reply: bytes) -> tuple[list[Score], Identity] | None:
    found = None if native is None else native.decode_scores(reply)
    if found is None:
        return None
    scores, identity, rest = found
    if rest:
        rare = pb.ScoreResponse.FromString(rest)
        for at, text in _by_position("messages", rare.messages, len(scores)).items():
            scores[at].message = text
        for at, nodes in _node_spans(rare, len(scores)).items():
            scores[at].spans, scores[at].shares = _decode_spans(nodes)
    return scores, _decode_identity_bytes(identity)


# Of a server the same for as long as it serves the same, and of an epoch.
@lru_cache(maxsize=64)
def _decode_identity_bytes(message: bytes) -> Identity:
    return decode_identity(pb.Identity.FromString(message))


def _by_position(name: str, values: Mapping[int, T], count: int) -> dict[int, T]:
    if values and max(values) >= count:
        raise InputError(f"{name} must be of {count} scores, got position {max(values)}")
    return dict(values)


def _node_spans(message: pb.ScoreResponse, count: int) -> dict[int, Sequence[pb.NodeSpan]]:
    """Return the spans of the scores that have some, by position."""
    if message.spans and len(message.spans) != count:
        raise InputError(
            f"spans must have {count} entries, one per status, got {len(message.spans)}"
        )
    # No spans and no nodes look alike on the wire, and mean the same.
    return {at: one.nodes for at, one in enumerate(message.spans) if one.nodes}


def _decode_spans(
    nodes: Sequence[pb.NodeSpan],
) -> tuple[tuple[Span | None, ...], tuple[float, ...]]:
    return tuple(map(_decode_span, nodes)), tuple([node.share for node in nodes])


def _columns(message: pb.ScoreResponse) -> ScoreColumns:
    statuses = [*map(decode_status, message.statuses)]
    count = len(statuses)

    def column(name: str, none: list[Any] | None = None) -> list[Any]:
        found = [*getattr(message, name)]
        if len(found) == count:
            return found
        if not found and none is not None:
            return none
        raise InputError(f"{name} must have {count} entries, one per status, got {len(found)}")

    ncrs = column("ncrs")
    answers = column("answers")
    for at in _by_position("unanswered", dict.fromkeys(message.unanswered), count):
        answers[at] = None
    spans = {at: _decode_spans(nodes) for at, nodes in _node_spans(message, count).items()}
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
        messages=_by_position("messages", message.messages, count),
        spans={at: found for at, (found, _) in spans.items()},
        shares={at: shares for at, (_, shares) in spans.items()},
    )


_CHANNELS = {name: pb.Channel.Value(f"CHANNEL_{name.upper()}") for name in CHANNELS if name}
_CHANNELS[""] = pb.CHANNEL_UNSPECIFIED
# A newer peer may know more channels, which count as patterns here.
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


def _encode_spans(spans: Sequence[Span | None], shares: Sequence[float]) -> pb.NodeSpans:
    nodes = zip(spans, shares, strict=True)
    return pb.NodeSpans(
        nodes=[pb.NodeSpan(span=_encode_span(span), share=share) for span, share in nodes]
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
        answer_rule=_ANSWER_RULES.number_of[identity.answer_rule],
        server_version=identity.server_version,
        scoring_version=identity.scoring_version,
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
        answer_rule=_ANSWER_RULES.member_or(message.answer_rule, AnswerRule.AUTO),
        server_version=message.server_version,
        scoring_version=message.scoring_version or FIRST_SCORING_VERSION,
    )


def encode_explain_response(explanation: Explanation) -> pb.ExplainResponse:
    """Return the reply to a request for an explanation."""
    return pb.ExplainResponse(
        scored=_score_response(ScoreColumns.of([explanation.score]), explanation.identity),
        nodes=map(_encode_node_explanation, explanation.nodes),
        normal_form=valid_text(explanation.normal_form),
        guard=None if explanation.guard is None else _encode_guard(explanation.guard),
    )


def _encode_guard(figures: GuardFigures) -> pb.GuardFigures:
    return pb.GuardFigures(
        statements=figures.statements,
        max_statements=figures.max_statements,
        numbers=figures.numbers,
        max_numbers=figures.max_numbers,
    )


def _decode_guard(message: pb.GuardFigures) -> GuardFigures:
    return GuardFigures(
        message.statements, message.max_statements, message.numbers, message.max_numbers
    )


def decode_explain_response(message: pb.ExplainResponse) -> Explanation:
    """Return the explanation of a message.

    Raises:
        InputError: an enumeration's number is not one of this protocol version, or there is not
            one score.
    """
    scores = _columns(message.scored).scores()
    if len(scores) != 1:
        raise InputError(f"an explanation is of one score, got {len(scores)}")
    return Explanation(
        score=scores[0],
        nodes=tuple(
            NodeExplanation(
                node_id=node.node_id,
                label=node.label,
                matched=node.matched,
                is_final=node.is_final,
                span=_decode_span(node),
                expression=node.expression,
                expressions=tuple(node.expressions),
                channel=_channel(node),
                counts=not node.left_out,
            )
            for node in message.nodes
        ),
        normal_form=message.normal_form,
        identity=decode_identity(message.scored.identity),
        guard=_decode_guard(message.guard) if message.HasField("guard") else None,
    )


def _channel(node: pb.NodeExplanation) -> str:
    """Return how a node was found, as an older server says it too."""
    if not node.matched:
        return ""
    return CHANNELS[node.channel] if 0 < node.channel < len(CHANNELS) else "pattern"


def _encode_node_explanation(node: NodeExplanation) -> pb.NodeExplanation:
    return pb.NodeExplanation(
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


def _encode_span(span: Span | None) -> pb.Span | None:
    return None if span is None else pb.Span(start=span[0], end=span[1])


def _decode_span(message: pb.NodeSpan | pb.NodeExplanation) -> Span | None:
    return (message.span.start, message.span.end) if message.HasField("span") else None
