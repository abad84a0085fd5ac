"""Stage 2 by a language model: it suggests nodes, the rollouts decide (paper, section 3.2).

One question a problem: the model sees the problem and some of its correct rollouts and lists nodes
with their wordings and rewritten forms.  A malformed reply goes back with its fault.  Every reply
is in the journal before it is read.

**Rollouts are untrusted.**  Each is quoted between two lines that carry a digest of everything
quoted, which no quoted text can contain.  What is too long is cut in the middle.

**Support is counted, never believed.**  A candidate comes out of a claimed node only if

1. one statement of it, its anchor, is stated by ``min_support`` of the correct rollouts, in
   wordings that are provably the same statement;
2. every further wording that the model puts beside the anchor is stated by a correct rollout, is
   no mere part of the anchor, and either gives the anchor's value or is itself stated by
   ``min_support`` rollouts without giving another one;
3. a wording that no rollout has (a rewritten form) is provably equal to one that is kept.

The expressions of a candidate are the rollouts' own words.  ``docs/build-datasets.md`` describes
the rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from string import Template
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from consensusbench.extraction.statements import (
    Truth,
    Wording,
    forms_beyond,
    group_same,
    normal_form,
    read_wording,
    say_the_same,
    stated_values,
    states_answer,
    truth_of,
)
from consensusbench.extraction.support import Mention, common_wordings, find_mentions, reach_of
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction, NodeType
from consensusbench.llm import ChatModel, Message, Reply, Temperature, ask_key
from consensusbench.store import Journal
from consensuspr.core import NORMAL_FORM_VERSION, Matcher
from consensuspr.core.expressions import Number, parse_statement
from consensuspr.data import Problem, Row
from consensuspr.errors import ModelRefused, UnusableReply
from consensuspr.scoring.answers import ANSWER_VERSION
from consensuspr.scoring.types import Limits
from consensuspr.settings import check_fields

# Increase VERSION if a change of the checks can change a candidate, and PROMPT_VERSION with a
# prompt, whose texts are files of this package.
VERSION = "1"
PROMPT_VERSION = "1"
PROMPT_NAMES = ("system", "extract", "again")

# Of a malformed reply that is sent back: enough to see what was meant.
MAX_ECHOED_CHARS = 8_000

# The least temperature of a conversation after one with malformed replies only: at 0 the model
# would repeat itself.
RERUN_TEMPERATURE = 0.7

# An answer part below this holds no solution ("The answer is 5.").
_MIN_ANSWER_PART_CHARS = 200
# A problem is rarely beyond 2,000 characters; it may take up to this share of the quotation.
_PROBLEM_SHARE = 4

# Wordings of one node that are looked at and kept, and the length of one.
MAX_WORDINGS = 16
MAX_WORDING_CHARS = 256
# A longer reply is not read.
MAX_REPLY_CHARS = 200_000
# Words of a proposition without a number or a sign; fewer state nothing ("so", "the answer").
MIN_WORDS = 3
# Of a node, as written and derived: what may be sent with a rollout (docs/datasets.md).
_MAX_FORMS = Limits().max_expressions_per_node
# Of what a reply may hold, in one entry of the audit.
_MAX_SHOWN = 64
_MAX_SHOWN_CHARS = 512

_SIGNIFICANT = re.compile(r"[\d=<>≤≥≠≈≡+*/^√∈⊂⊥∥]")
_WORD = re.compile(r"[^\W\d_]+")

_STRINGS = {"type": "array", "items": {"type": "string"}}
_NODE = {
    "label": {"type": "string"},
    "type": {"type": "string", "enum": list(get_args(NodeType))},
    "expressions": _STRINGS,
    "rewritten": _STRINGS,
    "solutions": {"type": "array", "items": {"type": "integer"}},
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    # Strict modes want every key required, no others, and none of the limits that pydantic adds.
    keys = list(properties)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": keys,
        "properties": properties,
    }


REPLY_SCHEMA = _object({"nodes": {"type": "array", "items": _object(_NODE)}})

# Each object that cannot be read costs a scan of the rest.
_MAX_BROKEN = 16
_MAX_FAULTS = 5
_END_OF_THINKING = "</think>"

_DECODER = json.JSONDecoder(strict=False)
_START = re.compile(r'\{\s*+"')
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*+[\]}])', re.DOTALL)
# A backslash, with what makes it an escape; \t before a letter is the start of \times.
_BACKSLASH = re.compile(r'\\(u[0-9A-Fa-f]{4}|["\\/]|[bfnrt](?![A-Za-z]))?')
# The same after decoding: control characters that can only come from such a backslash.
_SWALLOWED = re.compile(
    r"\x08(?=[a-z])|\x0c(?=[a-z])"
    r"|\t(?=(?:imes|ext[a-z]*|heta|an|o|frac|au|riangle|herefore)(?![A-Za-z]))"
    r"|\n(?=(?:eq|e|u|abla|i|eg|ot|mid|otin)(?![A-Za-z]))"
    r"|\r(?=(?:ight|ho|angle|ceil|floor|ightarrow)(?![A-Za-z]))"
)
_ESCAPED = {"\x08": "\\b", "\x0c": "\\f", "\t": "\\t", "\n": "\\n", "\r": "\\r"}

logger = logging.getLogger(__name__)


Structured: TypeAlias = Literal["auto", "json_schema", "off"]
_SCHEMAS: dict[Structured, tuple[dict[str, Any] | None, ...]] = {
    "auto": (REPLY_SCHEMA, None),
    "json_schema": (REPLY_SCHEMA,),
    "off": (None,),
}


def _number_or_server(value: object) -> object:
    if value == "server":
        return None
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"must be a number or server, got {value!r}") from None


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Thresholds and limits of the extractor by a model.

    Attributes:
        min_support: correct rollouts that must state a node.
        max_nodes: nodes asked for; what a reply lists beyond is dropped.
        max_prompt_rollouts: the first rollouts, shown to the model; support is counted over all.
        max_prompt_chars: bound on the quoted problem and rollouts together.
        re_asks: times that a malformed reply is sent back with its fault.
        temperature: of the replies; ``server`` (in Python None) leaves it to the model's settings.
        seed: asks servers that can for repeatable replies.
        structured: whether the JSON schema of the reply is sent: ``json_schema`` always, ``off``
            never, ``auto`` until the server rejects it.

    Raises:
        InputError: a value is out of its range.
    """

    min_support: Annotated[int, Field(ge=1, le=1_000)] = 2
    max_nodes: Annotated[int, Field(ge=1, le=64)] = 16
    max_prompt_rollouts: Annotated[int, Field(ge=2, le=64)] = 5
    max_prompt_chars: Annotated[int, Field(ge=1_000, le=4_000_000)] = 60_000
    re_asks: Annotated[int, Field(ge=0, le=10)] = 2
    temperature: Annotated[Temperature | None, BeforeValidator(_number_or_server)] = 0.0
    seed: int | None = None
    structured: Structured = "auto"

    def __post_init__(self) -> None:
        check_fields(self)


# The question.


def first_messages(quotation: str, max_nodes: int) -> list[Message]:
    """Return the question about one problem, quoted by :func:`quote`."""
    question = Template(_text("extract")).substitute(quotation=quotation, max_nodes=max_nodes)
    return [Message("system", _text("system")), Message("user", question)]


def again_messages(reply: str, fault: str) -> list[Message]:
    """Return the turns that send a malformed reply back, with one clause on its fault."""
    echoed = clip_middle(reply, MAX_ECHOED_CHARS).encode("utf-8", "replace").decode()
    return [
        # Servers refuse an empty turn.
        Message("assistant", echoed.strip() or "{}"),
        Message("user", Template(_text("again")).substitute(fault=fault)),
    ]


@cache
def prompt_digest() -> str:
    """Return a digest of all prompts, 16 hexadecimal digits."""
    whole = "\x00".join(_text(name) for name in PROMPT_NAMES)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@cache
def _text(name: str) -> str:
    path = files("consensusbench.extraction") / "prompts" / f"{name}.txt"
    return path.read_text(encoding="utf-8").strip()


def quote(problem: Problem, rollouts: Sequence[CorrectRollout], max_chars: int) -> str:
    """Return the problem and the rollouts between marked lines.

    Args:
        max_chars: bound on the quoted texts together, marks not counted.
    """
    statement = clip_middle(_sendable(problem.problem).strip(), max_chars // _PROBLEM_SHARE)
    answers = [_shown_part(_sendable(rollout.response)) for rollout in rollouts]
    limits = _shares([len(text) for text in answers], max_chars - len(statement))
    texts = [clip_middle(text, limit) for text, limit in zip(answers, limits, strict=True)]
    mark = _mark([statement, *texts])
    parts = [f"BEGIN PROBLEM {mark}\n{statement}\nEND PROBLEM {mark}"]
    parts.extend(
        f"BEGIN SOLUTION {number} {mark}\n{text}\nEND SOLUTION {number} {mark}"
        for number, text in enumerate(texts, start=1)
    )
    return "\n\n".join(parts)


def clip_middle(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out where it is longer than ``limit`` characters.

    The note on it is part of the limit; both ends stop at a line where one is near.
    """
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(0, limit - len(note))
    head, tail = text[: room // 2], text[len(text) - (room - room // 2) :]
    near = room // 10
    cut = head.rfind("\n", len(head) - near)
    head = head if cut < 0 else head[:cut]
    cut = tail.find("\n", 0, near)
    tail = tail if cut < 0 else tail[cut + 1 :]
    return (head + note + tail)[:limit]


def _sendable(text: str) -> str:
    """Return the text without what no request can carry: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\x00", " ")


def _shown_part(response: str) -> str:
    """Return the response without its thinking, if what remains is a solution."""
    end = response.rfind(_END_OF_THINKING)
    answer = response[end + len(_END_OF_THINKING) :].strip() if end >= 0 else ""
    return answer if len(answer) >= _MIN_ANSWER_PART_CHARS else response.strip()


def _shares(lengths: Sequence[int], room: int) -> list[int]:
    """Return a limit for each text; what short ones leave goes to the long ones."""
    limits = [0] * len(lengths)
    left = room
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for place, index in enumerate(order):
        limits[index] = min(lengths[index], left // (len(order) - place))
        left -= limits[index]
    return limits


def _mark(texts: Sequence[str]) -> str:
    """Return a word that none of the texts contains, the same for the same texts."""
    digest = hashlib.sha256("\x00".join(texts).encode())
    while any(digest.hexdigest()[:12] in text for text in texts):
        digest.update(b"again")
    return digest.hexdigest()[:12]


# The reply.


def _restored(text: str) -> str:
    """Give a string back the backslashes that JSON took for escapes: ``\\times``, ``\\frac``."""
    return _SWALLOWED.sub(lambda found: _ESCAPED[found[0]], text)


_Latex = Annotated[str, AfterValidator(_restored)]


class MalformedReplyError(Exception):
    """A reply without the form asked for; its text is one clause for the model to read."""


class ClaimedNode(BaseModel):
    """One node as the model lists it; keys that were not asked for are passed over."""

    model_config = ConfigDict(strict=True, frozen=True)

    label: _Latex = ""
    type: NodeType
    expressions: list[_Latex] = Field(min_length=1)
    rewritten: list[_Latex] = []
    # Only ever quoted in an audit, so that no form of it makes a reply unusable.
    solutions: Any = None

    @property
    def claimed_support(self) -> int | None:
        """The number of solutions that reach it according to the model."""
        return len(self.solutions) if isinstance(self.solutions, list) else None


class _ClaimedNodes(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    nodes: list[ClaimedNode]


def read_reply(reply: Reply) -> list[ClaimedNode]:
    """Return the nodes that a reply lists.

    Raises:
        MalformedReplyError: it holds no object of the form asked for, or is longer.
    """
    # Servers that split off the thinking sometimes take all of a reply for it.
    text = reply.text if reply.text.strip() else reply.reasoning or ""
    if len(text) > MAX_REPLY_CHARS:
        raise MalformedReplyError(f"it has {len(text)} characters, the limit is {MAX_REPLY_CHARS}")
    objects, broken = _objects(text.rpartition(_END_OF_THINKING)[2])
    fault = ""
    # The last object counts: models think aloud, or repeat the form, before they answer.
    for found in reversed(objects):
        if "nodes" in found:
            try:
                return _ClaimedNodes.model_validate(found).nodes
            except ValidationError as error:
                fault = fault or _faults_of(error)
    if fault:
        raise MalformedReplyError(fault)
    if reply.finish_reason == "length":
        raise MalformedReplyError("it was cut at the limit of tokens; list fewer nodes")
    if broken or objects:
        raise MalformedReplyError(broken or 'its JSON object has no key "nodes"')
    raise MalformedReplyError("it holds no JSON object" if text.strip() else "it is empty")


def _objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the outermost JSON objects of a text, and the fault of the first that is broken."""
    found: list[dict[str, Any]] = []
    faults: list[str] = []
    position = 0
    while len(faults) < _MAX_BROKEN and (start := _START.search(text, position)) is not None:
        with suppress(ValueError, RecursionError):
            value, position = _DECODER.raw_decode(text, start.start())
            found.append(value)
            continue
        repaired = _STRING_OR_COMMA.sub(_repaired, text[start.start() :])
        try:
            value, position = _DECODER.raw_decode(repaired)
            found.append(value)
            text = repaired
            continue
        except RecursionError:
            faults.append("its JSON is nested too deeply")
        except json.JSONDecodeError as error:
            if error.pos >= len(repaired.rstrip()) or error.msg.startswith("Unterminated"):
                faults.append("its JSON object is never closed")
            else:
                place = f"line {error.lineno} column {error.colno}"
                faults.append(f"its JSON is broken at {place}: {error.msg}")
        except ValueError:
            faults.append("its JSON holds a number of too many digits")
        position = start.start() + 1
    return found, faults[0] if faults else ""


def _repaired(found: re.Match[str]) -> str:
    """Drop a trailing comma, and double the backslashes of a string that escape nothing."""
    if found[0] == ",":
        return ""
    return _BACKSLASH.sub(lambda escape: escape[0] if escape[1] else "\\\\", found[0])


def _faults_of(error: ValidationError) -> str:
    """Return the first faults in one clause: ``nodes.2.type: Input should be …``."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = [".".join(map(str, fault["loc"])) or "the object" for fault in faults]
    clauses = (f"{place}: {fault['msg']}" for place, fault in zip(places, faults, strict=True))
    return "; ".join(itertools.islice(clauses, _MAX_FAULTS))


# The checks: of the wordings in a reply, those that correct rollouts state.

# Why a wording is left out, and a node all of whose wordings are: a word and a clause for the
# audit, which names the first of several.
_FAULTS = {
    "false": "arithmetic that does not hold",
    "in the problem": "the problem states it",
    "over the limit": "longer, or more of one node, than the limits allow",
    "no statement": "a single sign, or words that state nothing",
    "partial": "a part of the conclusion, found also where the conclusion is not",
    "foreign": "in a correct rollout, but not provably the same",
    "unverified": "in no correct rollout, and not provably equal to a wording that is",
}


@dataclass(frozen=True, slots=True)
class _Stated:
    """A wording that correct rollouts state.

    Attributes:
        literal: mentions of just this wording.
        reached: mentions of it and of its derived forms.
    """

    wording: Wording
    literal: list[Mention]
    reached: list[Mention]


@dataclass(slots=True)
class _Claim:
    """One claimed node and its wordings.

    Attributes:
        stated: wordings that some correct rollout states.
        unseen: wordings that no rollout states; kept only if equal to a stated one.
        out: wordings that are left out, by fault.
        anchor: the best supported class of stated wordings, provably one statement.
        expressions: the rollouts' wordings of a kept node, most common first.
        derived: equal forms that the expressions do not have.
    """

    node: ClaimedNode
    stated: list[_Stated] = field(default_factory=list)
    unseen: list[Wording] = field(default_factory=list)
    out: dict[str, list[str]] = field(default_factory=dict)
    anchor: Sequence[_Stated] = ()
    expressions: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The anchor's most common original wording."""
        return common_wordings(_mentions(self.anchor))[0]

    def leave_out(self, fault: str, *texts: str) -> None:
        """Note why wordings are out."""
        if texts:
            self.out.setdefault(fault, []).extend(texts)

    def dropped(
        self, reason: str, detail: str, texts: Sequence[str] = (), support: int | None = None
    ) -> Dropped:
        """Return the audit's entry; what the model wrote is cut to a readable length."""
        shown = texts or self.node.expressions
        return Dropped(
            stage="extract",
            reason=reason,
            detail=detail,
            label=(self.node.label.strip() or self.node.expressions[0])[:_MAX_SHOWN_CHARS],
            expressions=tuple(text[:_MAX_SHOWN_CHARS] for text in shown[:_MAX_SHOWN]),
            support=support,
        )


def check_nodes(
    claimed: Sequence[ClaimedNode],
    problem: Problem,
    rollouts: Sequence[CorrectRollout],
    settings: LlmSettings,
) -> Extraction:
    """Return the candidates that claimed nodes come to, and all that is dropped.

    Pure: the same arguments give the same extraction.  Takes milliseconds.

    Args:
        claimed: as a reply lists them.
        problem: its text supports nothing; its ground truth decides ``is_final``.
        rollouts: all correct rollouts, those included that the model was not shown.
        settings: thresholds.
    """
    beyond = f"beyond {settings.max_nodes} nodes in one reply"
    dropped = [
        _Claim(node).dropped("over the limit", beyond) for node in claimed[settings.max_nodes :]
    ]
    claims = [_Claim(node) for node in claimed[: settings.max_nodes]]
    _sort_wordings(claims, problem, rollouts)
    for claim in claims:
        dropped.extend(_settle(claim, rollouts, settings.min_support))
    made = [claim for claim in claims if claim.expressions]
    candidates = []
    for members in group_same([claim.anchor[0].wording for claim in made]):
        first, *repeated = (made[index] for index in members)
        candidates.append(_candidate(first, problem, rollouts))
        for claim in repeated:
            detail = f"is the same as {first.label!r}"
            dropped.append(claim.dropped("duplicate", detail, claim.expressions))
    candidates.sort(key=lambda candidate: candidate.position)
    return Extraction(tuple(candidates), tuple(dropped))


def _sort_wordings(
    claims: Sequence[_Claim], problem: Problem, rollouts: Sequence[CorrectRollout]
) -> None:
    """Look for the wordings of all claims in the problem and in the rollouts."""
    wanted = [list(_sound(claim)) for claim in claims]
    wordings = {text: read_wording(text) for texts in wanted for text in texts}
    # A chain's forms are its parts.  A rollout that states a part does not state the chain, which a
    # model may have put together.
    with_forms = [
        ((text,), () if wording.is_chain else wording.derived) for text, wording in wordings.items()
    ]
    alone = [((text,), ()) for text in wordings]
    literal = dict(zip(wordings, find_mentions(alone, rollouts, statements=False), strict=True))
    # A form that no rollout writes may be a result that several compute, for example in code.
    stated = dict(zip(wordings, find_mentions(with_forms, rollouts), strict=True))
    own_text = CorrectRollout("", "", problem.problem)
    in_problem = dict(zip(wordings, find_mentions(with_forms, [own_text]), strict=True))
    for claim, texts in zip(claims, wanted, strict=True):
        for text in texts:
            reached = literal[text] if wordings[text].is_chain else stated[text]
            if in_problem[text]:
                claim.leave_out("in the problem", text)
            elif not reached:
                claim.unseen.append(wordings[text])
            elif not (truly := _true_mentions(reached)):
                claim.leave_out("false", text)
            else:
                claim.stated.append(_Stated(wordings[text], _true_mentions(literal[text]), truly))


def _true_mentions(mentions: Iterable[Mention]) -> list[Mention]:
    """Drop mentions that are false as written: ``12*50=6`` has the normal form of ``12*50%=6``."""
    return [mention for mention in mentions if truth_of(mention.wording) is not Truth.FALSE]


def _sound(claim: _Claim) -> Iterator[str]:
    """Yield the wordings that are worth looking for, each normal form once."""
    seen: set[str] = set()
    found = 0
    for raw in (*claim.node.expressions, *claim.node.rewritten):
        text = raw.strip()
        if len(text) > MAX_WORDING_CHARS:
            claim.leave_out("over the limit", text[:MAX_WORDING_CHARS])
            continue
        normal = normal_form(text)
        if normal in seen:
            continue
        seen.add(normal)
        if found == MAX_WORDINGS:
            claim.leave_out("over the limit", text)
        elif not _says_something(normal):
            claim.leave_out("no statement", text)
        elif truth_of(text) is Truth.FALSE:
            claim.leave_out("false", text)
        else:
            found += 1
            yield text


def _says_something(normal: str) -> bool:
    if _SIGNIFICANT.search(normal):
        return len(normal) > 1  # a digit stands everywhere
    return len(_WORD.findall(normal)) >= MIN_WORDS


def _settle(
    claim: _Claim, rollouts: Sequence[CorrectRollout], min_support: int
) -> Iterator[Dropped]:
    """Give a claim its expressions, if it is a node, and yield what is left out."""
    classes = [
        [claim.stated[index] for index in members]
        for members in group_same([stated.wording for stated in claim.stated])
    ]
    # The best supported class; a relation is worth more than any support: ``180`` is found
    # wherever ``15*12=180`` is, and in other places.
    anchor = max(
        (members for members in classes if _support(members) >= min_support),
        key=lambda members: (_has_relation(members[0].wording), _support(members)),
        default=None,
    )
    if anchor is None:
        most = max(map(_support, classes), default=0)
        yield _not_stated(claim, most, len(rollouts), min_support)
        return
    kept = list(anchor)
    for members in classes:
        if members is not anchor:
            fault = _fault(members, anchor, min_support)
            if fault is None:
                kept.extend(members)
            else:
                claim.leave_out(fault, *(stated.wording.text for stated in members))
    implied = {form for stated in kept for form in stated.wording.parts}
    # Wordings that are stated by way of a derived form are unseen too.
    proved = [stated.wording.text for stated in kept if not stated.literal]
    for wording in claim.unseen:
        if any(say_the_same(wording, stated.wording) for stated in kept):
            proved.append(wording.text)
        elif wording.forms.isdisjoint(implied):
            claim.leave_out("unverified", wording.text)
    for fault, detail in _FAULTS.items():
        if fault in claim.out:
            yield claim.dropped(f"wording {fault}", detail, claim.out[fault])
    # The rollouts' wordings, most common first; the anchor's are never cut off.
    ranked = common_wordings(_mentions(kept))
    first = common_wordings(_mentions(anchor))
    within = list(dict.fromkeys(map(normal_form, [*first, *ranked])))[:MAX_WORDINGS]
    claim.anchor = anchor
    claim.expressions = tuple(text for text in ranked if normal_form(text) in within)
    room = max(0, _MAX_FORMS - len(claim.expressions))
    claim.derived = forms_beyond(claim.expressions, proved, room)


def _not_stated(claim: _Claim, support: int, num_rollouts: int, min_support: int) -> Dropped:
    """Return why a claimed node has no supported statement."""
    if not claim.stated and not claim.unseen:
        fault = next(fault for fault in _FAULTS if fault in claim.out)
        return claim.dropped(fault, _FAULTS[fault], claim.out[fault])
    detail = f"{support} of {num_rollouts} correct rollouts state it, the limit is {min_support}"
    if claim.node.claimed_support is not None:
        detail += f"; the model counted {claim.node.claimed_support}"
    texts = [*claim.node.expressions, *claim.node.rewritten]
    return claim.dropped("unsupported", detail, texts, support)


def _fault(members: Sequence[_Stated], anchor: Sequence[_Stated], min_support: int) -> str | None:
    """Return why a class does not belong beside the anchor, None where it does."""
    wording = members[0].wording
    statement = parse_statement(wording.text)
    is_bare = statement is not None and not statement.relations
    if _has_relation(anchor[0].wording) and is_bare:
        return "partial"
    pieces = Matcher([[stated.wording.text] for stated in members], statements=False)
    if any(any(pieces.match(stated.wording.text)) for stated in anchor):
        return "partial"
    values, wanted = stated_values(wording.text), stated_values(anchor[0].wording.text)
    if values & wanted:
        return None
    contradicts = bool(values and wanted)
    return "foreign" if contradicts or _support(members) < min_support else None


def _candidate(claim: _Claim, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Candidate:
    """Return the candidate, its support counted as the dataset will show it."""
    reach = reach_of(find_mentions([(claim.expressions, claim.derived)], rollouts)[0], rollouts)
    return Candidate(
        label=claim.label,
        type=_type(claim.anchor[0].wording, claim.node.type),
        expressions=claim.expressions,
        derived=claim.derived,
        support=reach.support,
        num_models=reach.num_models,
        position=reach.position,
        is_final=any(states_answer(text, problem.ground_truth) for text in claim.expressions),
    )


def _type(wording: Wording, claimed: NodeType) -> NodeType:
    """Return the kind that the form shows; the model's word counts for prose alone."""
    if _has_relation(wording):
        is_equation = any(sign in wording.normal for sign in "=≈")
        return "equation" if is_equation else "proposition"
    statement = parse_statement(wording.text)
    if statement is None:
        return "expression" if claimed == "expression" else "proposition"
    return "value" if isinstance(statement.sides[0], Number) else "expression"


def _has_relation(wording: Wording) -> bool:
    return any(sign in wording.normal for sign in "=<>≤≥≠≈≡")


def _support(members: Sequence[_Stated]) -> int:
    return len({mention.rollout for stated in members for mention in stated.reached})


def _mentions(members: Sequence[_Stated]) -> list[Mention]:
    """Return all mentions, each once, in the order of the rollouts."""
    found = {mention for stated in members for mention in (*stated.literal, *stated.reached)}
    return sorted(found, key=lambda mention: (mention.rollout, mention.position, mention.wording))


# The extractor.


class LlmExtractor:
    """Extracts nodes by asking a model.  Belongs to the event loop of its model.

    Any number of problems may be in flight; the model's own limit on concurrency paces them.

    Args:
        model: opened and closed by the caller.
        settings: thresholds and limits.
        journal: keeps the replies; opened and closed by the caller.
    """

    name = "llm"

    def __init__(
        self, model: ChatModel, settings: LlmSettings | None = None, journal: Journal | None = None
    ) -> None:
        self._model = model
        self._settings = LlmSettings() if settings is None else settings
        self._journal = Journal(":memory:", "extraction-replies") if journal is None else journal
        self._schemas = _SCHEMAS[self._settings.structured]

    @property
    def in_flight(self) -> int:
        """Problems that are extracted at once: as many as the model takes requests."""
        return self._model.settings.concurrency

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def provenance(self) -> Row:
        """Return name, model, prompts, versions and thresholds."""
        return {
            "name": self.name,
            "version": VERSION,
            "prompt_version": PROMPT_VERSION,
            "prompt_digest": prompt_digest(),
            "normal_form_version": NORMAL_FORM_VERSION,
            "answer_version": ANSWER_VERSION,
            "model": self._model.settings.provenance(),
            "settings": asdict(self._settings),
        }

    async def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the candidates of one problem from its correct rollouts.

        The model is not asked if there are fewer rollouts than a node needs for its support.

        Raises:
            UnusableReply: every reply was malformed.
            ModelError: the model gave no reply.
            ConsensusPRError: the journal cannot be written.
        """
        settings = self._settings
        if len(rollouts) < settings.min_support:
            return Extraction(())
        shown = rollouts[: settings.max_prompt_rollouts]
        quotation = quote(problem, shown, settings.max_prompt_chars)
        question = first_messages(quotation, settings.max_nodes)
        claimed = await self._claimed(problem.problem_id, question)
        # Milliseconds of pure computation; other problems' replies come in meanwhile.
        return await asyncio.to_thread(check_nodes, claimed, problem, rollouts, settings)

    async def _claimed(self, problem_id: str, question: Sequence[Message]) -> list[ClaimedNode]:
        """Return the nodes of the first reply that has the form asked for.

        If an earlier process got nothing but malformed replies, the model is asked anew.
        """
        settings = self._settings
        for run in itertools.count():
            messages, temperature = list(question), settings.temperature
            if run and temperature is not None:
                temperature = max(temperature, RERUN_TEMPERATURE)
            options = {
                "temperature": temperature,
                "seed": None if settings.seed is None else settings.seed + run,
            }
            is_new, fault = False, ""
            for _ in range(1 + settings.re_asks):
                # Two problems never share a reply.
                reply, is_fresh = await self._ask(messages, options, [problem_id, run])
                is_new = is_new or is_fresh
                try:
                    return read_reply(reply)
                except MalformedReplyError as error:
                    fault = str(error)
                    messages = [*messages, *again_messages(reply.text, fault)]
            if is_new:
                raise UnusableReply(
                    f"{self._model.settings.name} gave no usable nodes for problem "
                    f"{problem_id!r} in {1 + settings.re_asks} replies; the last one: {fault}"
                )
        raise AssertionError("counting has no end")

    async def _ask(
        self, messages: Sequence[Message], options: dict[str, Any], sample: list[object]
    ) -> tuple[Reply, bool]:
        """Return the reply, and whether the model was asked for it now.

        A recorded reply counts, with or without the schema.
        """
        model = self._model

        def key_of(schema: dict[str, Any] | None) -> str:
            return ask_key(model.settings, messages, **options, json_schema=schema, sample=sample)

        for schema in _SCHEMAS[self._settings.structured]:
            if (record := self._journal.get(key_of(schema))) is not None:
                return Reply.from_row(record), False
        schema, *fallbacks = self._schemas
        try:
            reply = await model.ask(messages, **options, json_schema=schema)
        except ModelRefused:
            if not fallbacks:
                raise
            [schema] = fallbacks
            reply = await model.ask(messages, **options, json_schema=schema)
            if len(self._schemas) > 1:
                self._schemas = (schema,)
                logger.warning(
                    "%s rejects the JSON schema; from now on it is asked for plain JSON",
                    model.settings.name,
                )
        self._journal.append(key_of(schema), asdict(reply))
        return reply, True
