"""Stage 2 by a language model: it names nodes, the rollouts decide (paper, section 3.2).

Two questions a problem.  The first shows the problem and some of its correct rollouts, and asks for
nodes with their wordings.  The second shows where the matcher found each wording, and asks what to
add and what to drop.  A malformed reply goes back with its fault, and a refusal is asked once more.
Every reply is in the journal before it is read.

**Rollouts are untrusted.**  Each is quoted between two lines that carry a digest of everything
quoted, which no quoted text can contain.  What is too long is cut in the middle.

**Replies are checked, never believed.**  :func:`check_nodes` keeps a wording if it is sound and a
correct rollout states it, or if it is provably equal to one that is kept; a node if
``min_support`` rollouts state it.  The final node is always there, made of the ground truth.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from string import Template
from typing import Annotated

from pydantic import BeforeValidator, Field

from consensusbench.extraction.refine import boxes_of, information_of
from consensusbench.extraction.replies import (
    END_OF_THINKING,
    MAX_LISTED,
    Changes,
    ClaimedNode,
    ClaimedNodes,
    FormT,
    MalformedReplyError,
    read_reply,
)
from consensusbench.extraction.statements import forms_beyond, normal_form, states_answer
from consensusbench.extraction.support import Mention, Reach, find_mentions, reach_of
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction, NodeType
from consensusbench.extraction.wordings import Fault, fault_of
from consensusbench.llm import ChatModel, Message, Reply, Temperature, ask_key
from consensusbench.store import Journal
from consensuspr.console import one_line
from consensuspr.core import Matcher, derive_forms
from consensuspr.core.expressions import Number, is_constant, parse_statement
from consensuspr.data import Problem, Row
from consensuspr.errors import ModelRefused, UnusableReply
from consensuspr.scoring.types import Limits
from consensuspr.settings import check_fields

# Counts up if a change of the checks can change a candidate; of the prompts there is a digest.
VERSION = "2"
PROMPTS = ("system", "extract", "check", "again")

# Of a malformed reply that is sent back: enough to see what was meant.
MAX_ECHOED_CHARS = 8_000
# The least temperature of a conversation after one without a usable reply: at 0 the model would
# repeat itself.
RERUN_TEMPERATURE = 0.7
# An answer part below this holds no solution ("The answer is 5.").
_MIN_ANSWER_PART_CHARS = 200
# Wordings of one node that are looked at, and the length of one.
MAX_WORDINGS = 16
MAX_WORDING_CHARS = 256
# Words of a wording without a number or a sign; fewer state nothing ("so", "the answer").
MIN_WORDS = 3
# Digits of a bare number; smaller ones stand everywhere.
MIN_DIGITS = 3
# Of a node, as written and derived: what may be sent with a rollout.
_MAX_FORMS = Limits().max_expressions_per_node
# Of a label, and of a refusal.
_MAX_SHOWN_CHARS = 200

_SIGNIFICANT = re.compile(r"[\d=<>≤≥≠≈≡+*/^√∈⊂⊥∥]")
_WORD = re.compile(r"[^\W\d_]+")


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
        max_nodes: nodes to ask for; more of a reply are dropped, "common" ones first.
        max_prompt_rollouts: rollouts in the prompt; support is counted over all rollouts.
        max_prompt_chars: most characters of the problem and the rollouts in the prompt.
        re_asks: times to send a malformed reply back with its fault.
        temperature: temperature of the replies; ``server`` (in Python None) uses the server's.
        seed: seed of the replies, for servers that take one.

    Raises:
        InputError: a value is out of its range.
    """

    min_support: Annotated[int, Field(ge=1, le=1_000)] = 2
    max_nodes: Annotated[int, Field(ge=2, le=MAX_LISTED)] = 9
    max_prompt_rollouts: Annotated[int, Field(ge=2, le=64)] = 6
    max_prompt_chars: Annotated[int, Field(ge=1_000, le=4_000_000)] = 60_000
    re_asks: Annotated[int, Field(ge=0, le=10)] = 2
    temperature: Annotated[Temperature | None, BeforeValidator(_number_or_server)] = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)


# The questions.


@functools.cache
def _text(name: str) -> str:
    path = files("consensusbench.extraction") / "prompts" / f"{name}.txt"
    return path.read_text(encoding="utf-8").strip()


@functools.cache
def prompt_digest() -> str:
    """Return a digest of all prompts, 16 hexadecimal digits."""
    return hashlib.sha256("\x00".join(map(_text, PROMPTS)).encode()).hexdigest()[:16]


def first_messages(quotation: str, max_nodes: int) -> list[Message]:
    """Return the first question about one problem, quoted by :func:`quote`."""
    question = Template(_text("extract")).substitute(quotation=quotation, max_nodes=max_nodes)
    return [Message("system", _text("system")), Message("user", question)]


def next_messages(reply: str, prompt: str, **values: str) -> list[Message]:
    """Return the turns that follow a reply: itself, clipped, and the next prompt."""
    echoed = _sendable(clip_middle(reply, MAX_ECHOED_CHARS)).strip()
    asked = Template(_text(prompt)).substitute(values)
    # Servers refuse an empty turn.
    return [Message("assistant", echoed or "{}"), Message("user", asked)]


def quote(problem: Problem, rollouts: Sequence[CorrectRollout], max_chars: int) -> str:
    """Return the problem and the rollouts between marked lines.

    Args:
        max_chars: bound on the quoted texts together, marks not counted.
    """
    texts = [problem.problem.strip(), *(_shown_part(rollout.response) for rollout in rollouts)]
    left = max_chars
    # What short texts leave goes to the long ones.
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for place, index in enumerate(by_length):
        texts[index] = _sendable(clip_middle(texts[index], left // (len(texts) - place)))
        left -= len(texts[index])
    # A word that no text contains, the same for the same texts.
    digest = hashlib.sha256("\x00".join(texts).encode())
    while any(digest.hexdigest()[:12] in text for text in texts):
        digest.update(b"again")
    mark = digest.hexdigest()[:12]
    names = ["PROBLEM", *(f"SOLUTION {number}" for number in range(1, len(texts)))]
    return "\n\n".join(
        f"BEGIN {name} {mark}\n{text}\nEND {name} {mark}"
        for name, text in zip(names, texts, strict=True)
    )


def clip_middle(text: str, limit: int) -> str:
    """Return ``text``, its middle left out if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(0, limit - len(note))
    return (text[: room // 2] + note + text[len(text) - (room - room // 2) :])[:limit]


def _sendable(text: str) -> str:
    """Return the text without what no request can carry: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\x00", " ")


def _shown_part(response: str) -> str:
    """Return the response without its thinking, if what remains is a solution."""
    _, end, answer = response.rpartition(END_OF_THINKING)
    shown = answer if end and len(answer.strip()) >= _MIN_ANSWER_PART_CHARS else response
    return shown.strip()


# The checks.

# Why a wording is thrown away: a word for counting, and a clause for the model and the audit.
_CLAUSES = {fault.name.lower(): f"it has {fault}" for fault in Fault} | {
    "over the limit": f"longer than {MAX_WORDING_CHARS} characters, or after {MAX_WORDINGS} others",
    "no statement": "a single sign, or words that state nothing",
    "bare number": f"a number of fewer than {MIN_DIGITS} digits, or the answer without a box",
    "answer": "gives the final answer, which has its own node",
    "no answer": "does not give the final answer",
    "in the problem": "the problem states it",
    "unseen": "in no solution, and not equal to a wording that is",
    "repeated": "equal to a wording of an earlier node",
}


@dataclass(slots=True)
class CheckedNode:
    """One claimed node, and what the rollouts say of its wordings.

    Attributes:
        mentions: of each wording that is kept; empty for one that no rollout states, which is
            provably equal to one that is, or the box of a final node.
        out: wordings that are thrown away, by reason.
        fault: why the node is left out: a word for counting and a clause; None if it is kept.
    """

    claimed: ClaimedNode
    is_final: bool = False
    mentions: dict[str, list[Mention]] = field(default_factory=dict)
    out: dict[str, list[str]] = field(default_factory=dict)
    fault: tuple[str, str] | None = None

    @property
    def rollouts(self) -> set[int]:
        """Indices of the rollouts that state it."""
        return {found.rollout for mentions in self.mentions.values() for found in mentions}

    @property
    def label(self) -> str:
        """The model's label in one line, or the first wording."""
        text = self.claimed.label.strip() or "".join(self.claimed.wordings[:1])
        return one_line(text, _MAX_SHOWN_CHARS)

    def finding(self, number: int, shown: int) -> str:
        """Return the report for the model, one line for each wording."""
        why = "" if self.fault is None else f"  [LEFT OUT: {self.fault[1]}]"
        lines = [f"Node {number}: {self.label}{why}"]
        for text, mentions in self.mentions.items():
            where = [str(found.rollout + 1) for found in mentions if found.rollout < shown]
            lines.append(f"- {text}  [{', '.join(where) or 'none'}]")
        for reason, texts in self.out.items():
            lines += [f"- {text}  [thrown away: {_CLAUSES[reason]}]" for text in texts]
        missed = [str(index + 1) for index in range(shown) if index not in self.rollouts]
        if missed and not self.is_final:
            lines.append(f"  found in no wording: solutions {', '.join(missed)}")
        return "\n".join(lines)

    def dropped(self, reason: str, detail: str, texts: Sequence[str] = ()) -> Dropped:
        """Return the audit's entry on the node, or on some of its wordings."""
        shown = (texts or self.claimed.wordings)[:MAX_WORDINGS]
        shortened = tuple(text[:MAX_WORDING_CHARS] for text in shown)
        support = None if texts else len(self.rollouts)
        return Dropped("extract", reason, detail, self.label, shortened, support)


def claimed_nodes(
    claimed: Sequence[ClaimedNode], problem: Problem, max_nodes: int
) -> tuple[list[CheckedNode], list[Dropped]]:
    """Return the nodes of a reply, not yet checked, the final one last; and those too many.

    If the last node does not state the answer, the model forgot the final one.
    """
    *inner, final = claimed
    if not any(states_answer(text, problem.ground_truth) for text in final.wordings):
        box = boxes_of(problem.ground_truth or "")[0]
        inner, final = [*claimed], ClaimedNode(label="The final answer.", wordings=[box])
    # What a right solution needs comes before the rest.
    ranked = sorted(range(len(inner)), key=lambda index: inner[index].strength != "key")
    nodes = [CheckedNode(inner[index]) for index in sorted(ranked[: max_nodes - 1])]
    beyond = [CheckedNode(inner[index]) for index in ranked[max_nodes - 1 :]]
    detail = f"beyond {max_nodes} nodes in one reply"
    surplus = [node.dropped("over the limit", detail) for node in beyond]
    return [*nodes, CheckedNode(final, is_final=True)], surplus


def changed(nodes: Sequence[CheckedNode], changes: Changes) -> list[CheckedNode]:
    """Return the nodes with wordings added and dropped, not yet checked."""
    wordings = [node.claimed.wordings for node in nodes]
    for change in changes.changes:
        if 1 <= change.node <= len(nodes):
            out = {text.strip() for text in change.drop}
            kept = [text for text in wordings[change.node - 1] if text.strip() not in out]
            wordings[change.node - 1] = [*kept, *change.add][:MAX_LISTED]
    return [
        CheckedNode(node.claimed.model_copy(update={"wordings": texts}), node.is_final)
        for node, texts in zip(nodes, wordings, strict=True)
    ]


def check_nodes(
    nodes: Sequence[CheckedNode],
    problem: Problem,
    rollouts: Sequence[CorrectRollout],
    min_support: int,
) -> None:
    """Fill in what the rollouts say of the wordings of nodes, and which nodes are left out.

    Takes milliseconds.

    Args:
        problem: its text supports nothing.
        rollouts: all correct rollouts, those included that the model was not shown.
    """
    for node in nodes:
        _look_for(node, problem, rollouts)
    owned = [(node, text) for node in nodes for text in node.mentions]
    for first, second in equal_pairs([text for _, text in owned]):
        (one, original), (other, text) = owned[first], owned[second]
        if one is not other and original in one.mentions and text in other.mentions:
            del other.mentions[text]
            other.out.setdefault("repeated", []).append(text)
    for node in nodes:
        support = len(node.rollouts)
        if not (node.claimed.wordings or node.is_final):
            node.fault = ("rejected by the model", "it dropped all of its expressions")
        elif support < min_support and not node.is_final:
            detail = f"{support} of {len(rollouts)} correct rollouts state it, the limit is"
            node.fault = ("unsupported", f"{detail} {min_support}")


def _look_for(node: CheckedNode, problem: Problem, rollouts: Sequence[CorrectRollout]) -> None:
    """Look for the sound wordings of a node in the problem and in the rollouts."""
    boxes = boxes_of(problem.ground_truth or "") if node.is_final else []
    sound = {normal_form(box): box for box in boxes}
    for text in map(str.strip, node.claimed.wordings):
        fault = None if text in boxes else _fault_of(text, problem, node.is_final)
        if fault is None and len(sound) == MAX_WORDINGS:
            fault = "over the limit"
        if fault is None:
            sound.setdefault(normal_form(text), text)
        else:
            node.out.setdefault(fault, []).append(text[:MAX_WORDING_CHARS])
    given = Matcher([[text] for text in sound.values()]).match(problem.problem)
    texts = []
    for text, is_given in zip(sound.values(), given, strict=True):
        if is_given and text not in boxes:
            node.out.setdefault("in the problem", []).append(text)
        else:
            texts.append(text)
    forms = [() if _is_chain(text) else derive_forms(text) for text in texts]
    found = find_mentions([([text], own) for text, own in zip(texts, forms, strict=True)], rollouts)
    # The most common first.
    stated = sorted(zip(texts, found, strict=True), key=lambda pair: -len(pair[1]))
    node.mentions = {text: mentions for text, mentions in stated if mentions or text in boxes}
    unseen = [text for text in texts if text not in node.mentions]
    seen = len(node.mentions)
    equal = {second for first, second in equal_pairs([*node.mentions, *unseen]) if first < seen}
    for number, text in enumerate(unseen, seen):
        if number in equal:
            node.mentions[text] = []
        else:
            node.out.setdefault("unseen", []).append(text)


def _is_chain(text: str) -> bool:
    """Tell whether a wording has more than two sides: its derived forms are parts of it."""
    statement = parse_statement(text)
    return statement is not None and len(statement.sides) > 2


def _fault_of(text: str, problem: Problem, is_final: bool) -> str | None:
    """Return why a wording is not looked for, None if it is."""
    normal = normal_form(text)
    if len(text) > MAX_WORDING_CHARS:
        return "over the limit"
    is_significant = _SIGNIFICANT.search(normal) is not None
    if len(normal) < 2 or not (is_significant or len(_WORD.findall(normal)) >= MIN_WORDS):
        return "bare number" if normal.isdecimal() else "no statement"
    if (fault := fault_of(text)) is not None:
        return fault.name.lower()
    statement = parse_statement(text)
    if statement is not None and not statement.relations and is_constant(statement.sides[0]):
        is_small = isinstance(statement.sides[0], Number) and information_of(text) < MIN_DIGITS
        if is_final or (is_small and not statement.dropped_units):
            return "bare number"
    if states_answer(text, problem.ground_truth) != is_final:
        return "no answer" if is_final else "answer"
    return None


def equal_pairs(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of indices, the lower first, of texts each of which reaches the other.

    A part reaches its whole (``180`` is found in ``15*12=180``), and not the other way round.
    """
    matcher = Matcher([[text] for text in texts])
    reached = [matcher.match(text) for text in texts]
    for first, second in itertools.combinations(range(len(texts)), 2):
        if reached[first][second] and reached[second][first]:
            yield first, second


def extraction_of(nodes: Sequence[CheckedNode], rollouts: Sequence[CorrectRollout]) -> Extraction:
    """Return the candidates among checked nodes, and all that is left out."""
    dropped = []
    for node in nodes:
        if node.fault is not None:
            dropped.append(node.dropped(*node.fault))
        for reason, texts in node.out.items():
            dropped.append(node.dropped(f"expression {reason}", _CLAUSES[reason], texts))
    made = [_candidate(node, rollouts) for node in nodes if node.fault is None]
    return Extraction(tuple(sorted(made, key=lambda one: one.position)), tuple(dropped))


def _candidate(node: CheckedNode, rollouts: Sequence[CorrectRollout]) -> Candidate:
    """Return a kept node, its support counted as the dataset will show it."""
    expressions = tuple(node.mentions)
    whole = [text for text in expressions if not _is_chain(text)]
    derived = forms_beyond(whole, limit=max(0, _MAX_FORMS - len(expressions)))
    reach = reach_of(find_mentions([(expressions, derived)], rollouts)[0], rollouts)
    if node.is_final:  # the answer of each rollout was verified, however it is written
        reach = Reach(len(rollouts), len({rollout.model for rollout in rollouts}), 1.0)
    return Candidate(
        node.label,
        _type_of(expressions[0]),
        expressions,
        derived,
        reach.support,
        reach.num_models,
        reach.position,
        node.is_final,
    )


def _type_of(wording: str) -> NodeType:
    """Return the kind of conclusion that the form of a wording shows."""
    statement = parse_statement(wording)
    if statement is None or statement.relations:
        return "equation" if set("=≈").intersection(normal_form(wording)) else "proposition"
    return "value" if isinstance(statement.sides[0], Number) else "expression"


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
        self._refused: dict[str, str] = {}

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
            "prompt_digest": prompt_digest(),
            "model": self._model.settings.provenance(),
            "settings": asdict(self._settings),
        }

    def usage(self) -> Row:
        """Return what all replies in the journal took, and this run's refusals by problem."""
        model = self._model.settings
        replies = [Reply.from_row(record) for _, record in self._journal.items()]
        return {
            "model": model.name,
            "requests": len(replies),
            "prompt_tokens": sum(reply.prompt_tokens or 0 for reply in replies),
            "completion_tokens": sum(reply.completion_tokens or 0 for reply in replies),
            "cost": sum(reply.cost or 0.0 for reply in replies) if model.is_priced else None,
            "refused": dict(self._refused),
        }

    async def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the candidates of one problem from its correct rollouts.

        The model is not asked if there are fewer rollouts than a node needs for its support.

        Raises:
            UnusableReply: every reply was malformed.
            ModelRefused: a question was refused twice.
            ModelError: the model gave no reply.
            ConsensusPRError: the journal cannot be written.
        """
        settings = self._settings
        if len(rollouts) < settings.min_support:
            return Extraction(())
        shown = rollouts[: settings.max_prompt_rollouts]
        quotation = quote(problem, shown, settings.max_prompt_chars)
        question = first_messages(quotation, settings.max_nodes)
        claimed, reply = await self._ask_for(ClaimedNodes, question, problem.problem_id)
        nodes, surplus = claimed_nodes(claimed.nodes, problem, settings.max_nodes)
        # Pure computation in a thread: other problems' replies come in meanwhile.
        given = problem, rollouts, settings.min_support
        await asyncio.to_thread(check_nodes, nodes, *given)
        findings = [node.finding(number, len(shown)) for number, node in enumerate(nodes, 1)]
        question += next_messages(reply.text, "check", findings="\n\n".join(findings))
        changes, _ = await self._ask_for(Changes, question, problem.problem_id)
        nodes = changed(nodes, changes)
        await asyncio.to_thread(check_nodes, nodes, *given)
        extraction = await asyncio.to_thread(extraction_of, nodes, rollouts)
        return replace(extraction, dropped=(*surplus, *extraction.dropped))

    async def _ask_for(
        self, form: type[FormT], question: Sequence[Message], problem_id: str
    ) -> tuple[FormT, Reply]:
        """Return the first reply that has the form asked for, as read and as it came.

        If an earlier process got no usable reply, the model is asked anew.
        """
        settings, name = self._settings, self._model.settings.name
        for run in itertools.count():
            messages, temperature = list(question), settings.temperature
            if run and temperature is not None:
                temperature = max(temperature, RERUN_TEMPERATURE)
            seed = None if settings.seed is None else settings.seed + run
            is_new, refusals, malformed, fault = False, 0, 0, ""
            while refusals < 2 and malformed <= settings.re_asks:
                # Two problems never share a reply.
                sample = [problem_id, run, refusals]
                reply, is_fresh = await self._ask(messages, temperature, seed, sample)
                is_new = is_new or is_fresh
                if reply.is_refusal:
                    refusals += 1
                    fault = self._refused[problem_id] = one_line(reply.text, _MAX_SHOWN_CHARS)
                    continue
                try:
                    return read_reply(reply, form), reply
                except MalformedReplyError as error:
                    malformed += 1
                    fault = str(error)
                    messages += next_messages(reply.text, "again", fault=fault)
            if is_new and refusals == 2:
                raise ModelRefused(f"{name} refused twice: {fault}")
            if is_new:
                raise UnusableReply(
                    f"{name} gave no usable reply in {malformed} tries; the last one: {fault}"
                )
        raise AssertionError("counting has no end")

    async def _ask(
        self,
        messages: Sequence[Message],
        temperature: float | None,
        seed: int | None,
        sample: Sequence[object],
    ) -> tuple[Reply, bool]:
        """Return the reply, and whether the model was asked for it now: it may be on record.

        A request that the server refuses is a refusal, and not recorded: nothing was paid for it.
        """
        settings = self._model.settings
        key = ask_key(settings, messages, temperature=temperature, seed=seed, sample=sample)
        if (record := self._journal.get(key)) is not None:
            return Reply.from_row(record), False
        try:
            reply = await self._model.ask(messages, temperature=temperature, seed=seed)
        except ModelRefused as error:
            return Reply(str(error), settings.model, "refusal"), True
        self._journal.append(key, asdict(reply))
        return reply, True
