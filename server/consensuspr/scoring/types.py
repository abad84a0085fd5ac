"""What scoring takes and returns, by a server and in process.

Rollouts and scores are slotted dataclasses without validation, because a batch has thousands of
them; the scorer checks rollouts.  :class:`ScoreOptions` are checked when they are made.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, SupportsIndex, TypeVar

from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget, GuardFigures
from consensuspr.scoring.rewards import RewardName, RewardSpec
from consensuspr.short_repr import ShortRepr, short_fields

if TYPE_CHECKING:
    from consensuspr.data import Row

E = TypeVar("E", bound=StrEnum)

# The dataset of a request that names none, if there are several.
DEFAULT_DATASET: Final = "default"
# Part of every reply's identity.  Raise it with a change of the guard, or of how nodes are reached,
# that can change an NCR.
SCORING_VERSION: Final = "4"
FIRST_SCORING_VERSION: Final = "1"  # of replies and logs that name none
MAX_LABEL_BYTES: Final = 128  # of the name of a training run, or of a dataset put in service
SAMPLE_KEY_BYTES: Final = 16
MAX_UINT32: Final = (1 << 32) - 1  # of the protocol

_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")

# Methods of an answer check that an idle machine would have brought to a verdict.
LOAD_METHODS: Final = frozenset(("load",))

# How a node was reached, by the number that the core has for it; 0 is not at all.
CHANNELS: Final = ("", "pattern", "statement", "code", "equation")

# Arrow types of what a score adds to a row, so that a file of one status has the columns of
# any other.
SCORED_TYPES: Final = {
    "acc": "double",
    "ncr": "double",
    "num_nodes": "int64",
    "num_matched": "int64",
    "matched": "list<bool>",
    "tpn": "double",
    "reward": "double",
    "status": "string",
    "ncr_raw": "double",
    "guard": "double",
    "channels": "list<string>",
    "extracted_answer": "string",  # files of problems have a column "answer" of their own
}


class Status(StrEnum):
    """The status of a score; a failure is a status and never a reward of 0."""

    OK = "OK"
    ANSWER_UNDECIDED = "ANSWER_UNDECIDED"
    NO_NODES = "NO_NODES"
    NO_GROUND_TRUTH = "NO_GROUND_TRUTH"
    UNKNOWN_PROBLEM = "UNKNOWN_PROBLEM"
    INVALID_NODES = "INVALID_NODES"
    OVERSIZE = "OVERSIZE"
    INTERNAL = "INTERNAL"


class AnswerRule(StrEnum):
    """How the final answer is found and compared (``docs/concepts/answers.md``)."""

    AUTO = "auto"
    DAPO = "dapo"
    BOXED = "boxed"
    GSM8K = "gsm8k"


class OnUndecided(StrEnum):
    """What an answer that the verifier could not decide does to the reward."""

    COUNT_WRONG = "count_wrong"
    MASK = "mask"


@dataclass(slots=True, repr=False)
class InlineNode(ShortRepr):
    """A consensus node sent with a rollout; no further equal forms are derived from it."""

    expressions: Sequence[str]  # the ways to write it; the node is reached by any
    node_id: str = ""  # name in explanations
    derived: Sequence[str] = ()  # equal forms made by the sender
    is_final: bool = False  # whether it states the final answer
    weight: float | None = None  # in a weighted NCR, which needs one for each node


class Sample(NamedTuple):
    """Where in its run a rollout comes from; for score logs alone, no score depends on it."""

    key: bytes  # 16 bytes that no other sample has; the trainer's and the server's rows share it
    step: int | None = None  # training step from 1, 0 before training
    group: str | None = None  # of the samples that are compared with each other
    split: str | None = None  # of the row: train, test, ...


class SampleKeys:
    """Makes keys: eight random bytes for each maker, then a count."""

    def __init__(self) -> None:
        self._maker = os.urandom(8)
        self._numbers = itertools.count()

    def next(self) -> bytes:
        """Return a new key."""
        return self.key(next(self._numbers))

    def key(self, number: int) -> bytes:
        """Return the key with a number of the caller's own counting."""
        return self._maker + number.to_bytes(8, "big")


@dataclass(slots=True, repr=False)
class Rollout(ShortRepr):
    """One response of a policy to one problem.

    Attributes:
        problem_id: key of the problem in the dataset.
        response: text of the response; UTF-8 if bytes, invalid bytes are tolerated.
        ground_truth: overrides the dataset's; None or blank counts as not given.
        num_tokens: length of the response in tokens, for TPN; a number that is not from 1 to
            4,294,967,295 counts as not given.
        nodes: overrides the dataset's nodes where not None; an element is an
            :class:`InlineNode` or a plain sequence of expressions.
        data_source: label for metrics; does not affect scoring.
        rollout_id: name for logs; does not affect scoring.
        budget: of the guard, for ``nodes``; None for the default.
        sample: where in its run it comes from; does not affect scoring.
    """

    problem_id: str
    response: str | bytes
    ground_truth: str | None = None
    num_tokens: int | None = None
    nodes: Sequence[InlineNode | Sequence[str]] | None = None
    data_source: str | None = None
    rollout_id: str | None = None
    budget: GuardBudget | None = None
    sample: Sample | None = field(default=None, repr=False)


def checked_tokens(rollout: Rollout, at: int) -> int | None:
    """Return the token count of a rollout, None if it has none.

    Raises:
        InputError: a field has a wrong type; ``at`` is the rollout's place in its batch.
    """
    if not isinstance(rollout.response, (str, bytes)):
        _wrong(at, "response", "str or bytes", rollout.response)
    if not isinstance(rollout.problem_id, str):
        _wrong(at, "problem_id", "str", rollout.problem_id)
    if rollout.ground_truth is not None and not isinstance(rollout.ground_truth, str):
        _wrong(at, "ground_truth", "str or None", rollout.ground_truth)
    if rollout.nodes is not None and not hasattr(rollout.nodes, "__len__"):
        _wrong(at, "nodes", "a sequence or None", rollout.nodes)
    if rollout.num_tokens is None:
        return None
    try:
        tokens = index(rollout.num_tokens)
    except TypeError:
        _wrong(at, "num_tokens", "int or None", rollout.num_tokens)
    return tokens if 0 < tokens <= MAX_UINT32 else None


def _wrong(at: int, field: str, wanted: str, got: object) -> NoReturn:
    raise InputError(f"rollouts[{at}].{field} must be {wanted}, got {type(got).__name__}")


@dataclass(frozen=True, slots=True, repr=False)
class ScoreOptions(ShortRepr):
    """How a batch is scored; hashable, so that equal calls can share a request.

    Raises:
        InputError: a value has a wrong type or form, or does not fit the protocol's uint32.
    """

    reward: RewardSpec = field(default_factory=RewardSpec.linear)
    epoch: int = 0  # of training, counted from 0: the phase of the curriculum
    dataset: str | None = None  # its name; None if the server has exactly one
    answer_rule: AnswerRule | None = None  # None for the dataset's own
    on_undecided: OnUndecided = OnUndecided.COUNT_WRONG
    include_spans: bool = False  # where each node was first hit; scans the text again
    run: str | None = None  # name of the training run, for queues and metrics
    expect_digest: str | None = None  # of the dataset; another one is rejected
    probe: bool = False  # metrics leave it out: it is no part of a run

    def __post_init__(self) -> None:
        if not isinstance(self.reward, RewardSpec):
            object.__setattr__(self, "reward", RewardSpec.of(self.reward))
        for name, value in (("epoch", self.epoch), ("switch_epoch", self.reward.switch_epoch)):
            # The type first, because to ask for a protocol takes longer than all the rest.
            whole = type(value) is int or isinstance(value, SupportsIndex)
            if not whole or not 0 <= index(value) <= MAX_UINT32:
                raise InputError(f"{name} must be a number in [0, {MAX_UINT32}], got {value!r}")
        if type(self.epoch) is not int:
            object.__setattr__(self, "epoch", index(self.epoch))
        if self.run is not None:
            check_label("run", self.run)
        if self.expect_digest is not None:
            check_digest(self.expect_digest)

    @classmethod
    def checked(
        cls,
        reward: RewardSpec | RewardName,
        epoch: int = 0,
        dataset: str | None = None,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        include_spans: bool = False,
        run: str | None = None,
        expect_digest: str | None = None,
    ) -> Self:
        """Return the options that a caller gave, names turned into members.

        Raises:
            InputError: a value names no member, or has a wrong type or form.
        """
        return cls(
            RewardSpec.of(reward),
            epoch,
            dataset or None,
            None if answer_rule is None else _member("answer_rule", AnswerRule, answer_rule),
            _member("on_undecided", OnUndecided, on_undecided),
            include_spans,
            run or None,
            expect_digest or None,
        )


def check_label(field: str, label: str) -> str:
    """Return the name of a run or a dataset; raise InputError unless it is short and printable."""
    if not isinstance(label, str):
        raise InputError(f"{field} must be str, got {type(label).__name__}")
    size = len(label.encode("utf-8", "surrogatepass"))
    if size > MAX_LABEL_BYTES:
        raise InputError(f"{field} must have at most {MAX_LABEL_BYTES} bytes, got {size}")
    if not label.isprintable():
        raise InputError(f"{field} must be printable text, got {label!r}")
    return label


def check_digest(digest: str) -> str:
    """Return the digest of a dataset if it has the form of one, else raise InputError."""
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        shown = f"{digest!r:.80}"
        raise InputError(f"expect_digest must be sha256: and 64 hex digits, got {shown}")
    return digest


def _member(name: str, members: type[E], value: str) -> E:
    try:
        return members(value)
    except ValueError:
        known = ", ".join(members)
        raise InputError(f"{name} must be one of {known}, got {value!r}") from None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one rollout; past one of them the rollout gets a status, never a score."""

    max_response_bytes: int = 16 << 20  # UTF-8; else OVERSIZE
    # Of nodes sent with the rollout; else INVALID_NODES.
    max_inline_nodes: int = 64
    max_expressions_per_node: int = 128  # derived ones included
    max_expression_bytes: int = 4096
    # Of all expressions.  A benchmark's problem has 1 KB; random text compiles in 50 ms to 20 MB.
    max_inline_bytes: int = 16 << 10


DEFAULT_LIMITS = Limits()


def exceeds(response: str | bytes, limit: int) -> int | None:
    """Return the size of a response in UTF-8 bytes if it is above ``limit``, else None.

    A lone surrogate counts as the three bytes that it would take.
    """
    size = len(response)
    if isinstance(response, str) and size * 4 > limit and not response.isascii():
        # Too long for sure without encoding; otherwise at most four times the limit is.
        size = size if size > limit else len(response.encode("utf-8", "surrogatepass"))
    return size if size > limit else None


@dataclass(slots=True, repr=False)
class Score:
    """The score of one rollout; None if the status makes a value unknown.

    Attributes:
        status: read it before any number.
        reward: the combined reward, in [0, 1].
        acc: final-answer accuracy, 0.0 or 1.0.
        ncr: Node Coverage Rate in [0, 1], which the reward uses: ``ncr_raw * guard``, or 0
            by ``unanswered="zero"``.
        num_nodes: nodes that count, 0 where unknown; without ``final_nodes`` fewer than the
            problem has.
        num_matched: those of them that were reached.
        matched: one bool per node of the problem, in node order.
        tpn: tokens per matched node (equation 2); None without tokens or matches.
        spans: for each node the half-open code point span of its first hit in the
            response, None where not matched; None as a whole unless spans were asked for.
        shares: for each node its share of ncr_raw if it is matched, 0 if it does not count;
            None unless spans were asked for.
        message: one sentence where the status is not OK, else empty.
        answer: the answer taken from the response, None if none was found.
        answer_method: how acc was decided, empty if it was not; ``docs/concepts/answers.md``
            lists the methods.
        ncr_raw: NCR before the guard, ``num_matched / num_nodes`` (equation 1 of the paper), or
            the weights of matched nodes as a share of all; None where ncr is.
        guard: what ncr_raw was multiplied by, in (0, 1], 1 where the guard is off; None where
            ncr is.
        channel_numbers: one byte per node, its place in :data:`CHANNELS`.
    """

    status: Status
    reward: float | None = None
    acc: float | None = None
    ncr: float | None = None
    num_nodes: int = 0
    num_matched: int = 0
    matched: tuple[bool, ...] = ()
    tpn: float | None = None
    spans: tuple[tuple[int, int] | None, ...] | None = None
    message: str = ""
    answer: str | None = None
    answer_method: str = ""
    ncr_raw: float | None = None
    guard: float | None = None
    channel_numbers: bytes = b""
    shares: tuple[float, ...] | None = None

    def __repr__(self) -> str:
        values: dict[str, object] = {}
        values |= {"status": self.status, "reward": self.reward, "acc": self.acc, "ncr": self.ncr}
        if self.ncr is not None:
            values |= {"num_nodes": self.num_nodes, "num_matched": self.num_matched}
        values |= {"guard": self.guard} if self.guard != 1 else {}
        values |= {"tpn": self.tpn, "answer": self.answer, "message": self.message or None}
        return f"Score({short_fields(values)})"

    @property
    def channels(self) -> tuple[str, ...]:
        """How each node was reached: "pattern", "statement", "code", "equation", or "" if not."""
        return tuple([CHANNELS[number] for number in self.channel_numbers])

    @property
    def undecided_by_load(self) -> bool:
        """Whether a busy machine, not the answer, kept the answer from being checked."""
        return self.answer_method in LOAD_METHODS


# A problem's rollouts reach its nodes in few combinations.
@lru_cache(maxsize=4096)
def _flags(channel_numbers: bytes) -> tuple[bool, ...]:
    return tuple(map(bool, channel_numbers))


@dataclass(slots=True)
class ScoreColumns:
    """The scores of a batch by value, named as those of a :class:`Score`.

    In columns of numbers NaN stands for None.  Messages, spans and shares are by position.
    """

    status: list[Status]
    reward: list[float]
    acc: list[float]
    ncr: list[float]
    num_nodes: list[int]
    num_matched: list[int]
    tpn: list[float]
    answer: list[str | None]
    answer_method: list[str]
    ncr_raw: list[float]
    guard: list[float]
    channel_numbers: list[bytes]
    messages: dict[int, str]
    spans: dict[int, tuple[tuple[int, int] | None, ...]]
    shares: dict[int, tuple[float, ...]]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Self:
        """Return the columns of scores."""

        columns: dict[str, Any] = {
            name: [getattr(score, name) for score in scores]
            for name in cls.__slots__
            if name not in ("messages", "spans", "shares")
        }
        for name in ("reward", "acc", "ncr", "tpn", "ncr_raw", "guard"):
            columns[name] = [math.nan if value is None else value for value in columns[name]]
        return cls(
            **columns,
            messages={at: score.message for at, score in enumerate(scores) if score.message},
            spans={at: score.spans for at, score in enumerate(scores) if score.spans is not None},
            shares={
                at: score.shares for at, score in enumerate(scores) if score.shares is not None
            },
        )

    def __len__(self) -> int:
        """Return the number of scores."""
        return len(self.status)

    def scores(self) -> list[Score]:
        """Return the scores one by one."""
        at = range(len(self.status))
        messages, spans, shares = self.messages, self.spans, self.shares
        # By position and not by name: thousands a batch.
        made = map(
            Score,
            self.status,
            _known(self.reward),
            _known(self.acc),
            _known(self.ncr),
            self.num_nodes,
            self.num_matched,
            map(_flags, self.channel_numbers),
            _known(self.tpn),
            [*map(spans.get, at)] if spans else [None] * len(at),
            [messages.get(number, "") for number in at] if messages else [""] * len(at),
            self.answer,
            self.answer_method,
            _known(self.ncr_raw),
            _known(self.guard),
            self.channel_numbers,
            [*map(shares.get, at)] if shares else [None] * len(at),
        )
        return list(made)

    def forget(self, at: int) -> None:
        """Leave nothing of a score but its status and message."""
        for column in (self.reward, self.acc, self.ncr, self.tpn, self.ncr_raw, self.guard):
            column[at] = math.nan
        self.num_nodes[at] = self.num_matched[at] = 0
        self.answer[at], self.answer_method[at], self.channel_numbers[at] = None, "", b""
        self.spans.pop(at, None)
        self.shares.pop(at, None)

    def extend(self, following: ScoreColumns, count: int | None = None) -> None:
        """Add the scores of the rollouts that follow, only the first so many of them if given."""
        behind = len(self)
        count = len(following) if count is None else count
        for name in self.__slots__:
            column, added = getattr(self, name), getattr(following, name)
            if isinstance(column, dict):
                # Not by its items: another thread may add to it meanwhile.
                found = ((at, added.get(at)) for at in range(count if added else 0))
                column.update((behind + at, value) for at, value in found if value is not None)
            else:
                column += added[:count]


def _known(column: list[float]) -> Sequence[float | None]:
    """Return a column with None where a value is not known."""
    if math.isnan(sum(column)):
        return [None if value != value else value for value in column]
    return column


@dataclass(slots=True, frozen=True, repr=False)
class Identity(ShortRepr):
    """All that a replay needs to reproduce a batch's rewards bit for bit."""

    dataset: str
    dataset_digest: str
    normal_form_version: str
    answer_version: str
    reward: RewardSpec
    epoch: int
    answer_rule: AnswerRule
    server_version: str
    scoring_version: str = FIRST_SCORING_VERSION


@dataclass(slots=True, repr=False)
class NodeExplanation(ShortRepr):
    """One node as the rollout met it."""

    node_id: str
    label: str
    matched: bool
    is_final: bool
    span: tuple[int, int] | None  # half-open code points of the first hit in the response
    expression: str  # the expression, written or derived, that was found; empty if none
    expressions: tuple[str, ...]  # all of them, as written
    channel: str = ""  # one of CHANNELS, empty if not matched
    counts: bool = True  # whether the node is part of NCR


@dataclass(slots=True, repr=False)
class Explanation(ShortRepr):
    """A score with its reasons."""

    score: Score  # what :meth:`Scorer.score` gives for the rollout, with spans
    nodes: tuple[NodeExplanation, ...]  # in order; none if the status leaves NCR unknown
    # Of the scored part of the response; empty for OVERSIZE.
    normal_form: str = field(repr=False)
    identity: Identity = field(repr=False)
    guard: GuardFigures | None = None  # None if there is no NCR or the guard is off
    response: str | bytes = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        """Return the text of ``consensuspr explain``: marked response, nodes and score."""
        from consensuspr.scoring.explained import as_text

        return as_text(self)


def rollout_from_row(row: Row) -> Rollout:
    """Return the rollout that a checked row describes."""
    names = ("ground_truth", "num_tokens", "data_source", "rollout_id")
    return Rollout(row["problem_id"], row["response"], **{name: row.get(name) for name in names})


def scored_row(row: Row, score: Score) -> Row:
    """Return the row with the columns of its score; columns of these names are replaced.

    ``spans`` is among them if the score has them.
    """
    scored = row | {name: getattr(score, name.removeprefix("extracted_")) for name in SCORED_TYPES}
    scored["matched"], scored["channels"] = list(score.matched), list(score.channels)
    scored["status"] = score.status.value
    if score.spans is not None:
        scored["spans"] = [None if span is None else list(span) for span in score.spans]
    return scored
