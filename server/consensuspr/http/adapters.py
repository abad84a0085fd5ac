"""How a request wants to be scored, from the query of its URL.

A trainer posts to one fixed URL, so the settings of a run stand in it:
``/openrlhf?reward=linear&alpha=0.5&dataset=math``.  Whatever is misspelt, given twice or has
no effect beside the rest is refused: a run that trains on another reward than its command
line says is found out at the worst time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from consensuspr.core import normalize
from consensuspr.errors import InputError
from consensuspr.http.json_body import Bounds, members, text, value
from consensuspr.http.problem_texts import ProblemTexts
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.rewards import RewardKind, RewardSpec
from consensuspr.scoring.types import (
    MAX_UINT32,
    AnswerRule,
    InlineNode,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)
from consensuspr.server.metrics import MeteredScorer
from consensuspr.server.service import Abort, Call
from consensuspr.wire.codec import PIECE_BYTES, PIECE_ROLLOUTS, cut, encode_response

_COMMON = (
    "reward", "alpha", "switch_epoch", "epoch", "dataset", "answer_rule", "on_undecided",
    "on_unscorable",
)  # fmt: skip
# Of which only one reward makes use.
_BELONGS_TO = {
    "alpha": RewardKind.LINEAR,
    "switch_epoch": RewardKind.CURRICULUM,
    "epoch": RewardKind.CURRICULUM,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the URL says.

    Attributes:
        options: how the batch is scored.
        on_unscorable: reward of what cannot be scored; None: the request fails.
        choices: the settings of one shape, by name.
    """

    options: ScoreOptions
    on_unscorable: float | None = None
    choices: Mapping[str, str] = field(default_factory=dict)


def read_settings(
    query: Sequence[tuple[str, str]], choices: Mapping[str, Sequence[str]]
) -> Settings:
    """Read the query of a URL.

    Args:
        query: names and values as given.
        choices: values that each further setting may have, the default first.

    Raises:
        InputError: a setting is unknown, given twice, has no effect, or a value is wrong.
    """
    known = (*_COMMON, *choices)
    given: dict[str, str] = {}
    for name, setting in query:
        if name not in known:
            raise InputError(f"unknown setting {name!r} in the URL; there are {', '.join(known)}")
        if name in given:
            raise InputError(f"the setting {name!r} is in the URL twice")
        given[name] = setting
    kind = _one_of("reward", given.get("reward", RewardKind.LINEAR), tuple(RewardKind))
    for name, owner in _BELONGS_TO.items():
        if name in given and kind != owner:
            raise InputError(f"{name} has no effect with reward={kind}, only with {owner}")
    if kind == RewardKind.CURRICULUM and "epoch" not in given:
        raise InputError(
            "reward=curriculum needs epoch=N in the URL: the request does not tell how far"
            " training is, and the epoch is never guessed"
        )
    on_unscorable = given.get("on_unscorable")
    rule = given.get("answer_rule")
    if rule is not None:
        _one_of("answer_rule", rule, tuple(AnswerRule))
    undecided = _one_of(
        "on_undecided", given.get("on_undecided", OnUndecided.COUNT_WRONG), tuple(OnUndecided)
    )
    reward = RewardSpec(
        RewardKind(kind),
        alpha=_number("alpha", given.get("alpha", "0.5")),
        switch_epoch=_epoch("switch_epoch", given.get("switch_epoch", "1")),
    )
    options = ScoreOptions(
        reward=reward,
        epoch=_epoch("epoch", given.get("epoch", "0")),
        dataset=given.get("dataset") or None,
        answer_rule=None if rule is None else AnswerRule(rule),
        on_undecided=OnUndecided(undecided),
    )
    return Settings(
        options,
        None if on_unscorable is None else _number("on_unscorable", on_unscorable),
        {name: _one_of(name, given.get(name, of[0]), of) for name, of in choices.items()},
    )


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {text!r}")
    return number


def _epoch(name: str, text: str) -> int:
    # Not int(): that takes "1_0", " 1" and other digits than these.
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_UINT32):
        raise InputError(f"{name} must be a whole number in [0, {MAX_UINT32}], got {text!r}")
    return int(text)


# MERGED Texts as trainers send them: the response within a query, special tokens at its end.
#
# OpenRLHF decodes prompt and response together, special tokens and padding included, and
# sends the prompt beside it as it was before the tokenizer.  What comes after the prompt is
# the response.  Everything here is linear in the text, which a policy under training wrote.

_WORD = re.compile(r"\S+")
_MAX_TOKEN_CHARS = 64
# Openings of special tokens by their last characters, for tokens written in brackets.
_BRACKETS = {"|>": "<|", "｜>": "<｜"}
_NAMED = ("</s>", "<s>", "<eos>", "<bos>", "<pad>", "[PAD]", "<end_of_turn>", "<turn|>", "[EOS]")


def after_prompt(query: str, prompt: str) -> str | None:
    """Return what follows the prompt in the query, None where the prompt is not in it.

    The first place counts: what a policy wrote comes after it.  Padding and special tokens
    may stand before it.  White space may differ, since tokenizers do not keep it.
    """
    if query.startswith(prompt):
        return query[len(prompt) :]
    found = query.find(prompt)
    if found >= 0:
        return query[found + len(prompt) :]
    wanted = "".join(prompt.split())
    found = "".join(query.split()).find(wanted)
    return None if found < 0 else query[_position(query, found + len(wanted)) :]


def without_special_tokens(response: str) -> str:
    """Return a response without the special tokens at its end, and the space between them.

    The answer rules look at the end of a response, and the tokens are not what the policy
    wanted to say: ``Answer: 42<|im_end|>`` is the answer 42.
    """
    end = len(response)
    while True:
        at = end
        while at and response[at - 1].isspace():
            at -= 1
        start = _token_start(response, at)
        if start is None:
            return response[:end]
        end = start


def _position(text: str, characters: int) -> int:
    """Return where ``text`` has had that many characters that are no white space."""
    if not characters:
        return 0
    for word in _WORD.finditer(text):
        length = word.end() - word.start()
        if length >= characters:
            return word.start() + characters
        characters -= length
    raise AssertionError("fewer characters than were found")


def _token_start(text: str, end: int) -> int | None:
    """Return where the special token that ends at ``end`` starts, None where none does."""
    for name in _NAMED:
        if text.endswith(name, 0, end):
            return end - len(name)
    opening = _BRACKETS.get(text[max(0, end - 2) : end])
    if opening is None:
        return None
    start = text.rfind("<", max(0, end - _MAX_TOKEN_CHARS), end)
    inside = start >= 0 and text.startswith(opening, start, end - 2)
    return start if inside and not any(map(str.isspace, text[start:end])) else None


# MERGED Which problem a rollout answers: what the label says, else what the prompt holds.
#
# A remote-reward request carries a prompt and a label.  The label is the one column of a
# dataset that trainers hand through, so it may be a JSON object that names the problem::
#
#     {"problem_id": "p1", "ground_truth": "42", "data_source": "gsm8k", "nodes": [["6*7=42"]]}
#
# (any of the keys may be missing), or the ground truth alone, as trainers use it.  Then the
# problem is the one whose text the prompt holds and whose ground truth is the label.  Where
# that is none, or are several, the rollout has no problem and says so; what can be scored
# from the label alone still is.

_KEYS = ("problem_id", "ground_truth", "data_source", "nodes")
_NODE_KEYS = {"node_id", "expressions", "derived"}
# As many ids as a message names.
_NAMED_AT_MOST = 3

Nodes = list[InlineNode | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Label:
    """What a label says; None where it does not."""

    problem_id: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    nodes: Nodes | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """Which problem is meant.

    Attributes:
        problem_id: empty where none is.
        reason: one sentence where none is, else empty.
    """

    problem_id: str
    reason: str = ""


class Namer:
    """Names the problems of one dataset.

    Args:
        index: the dataset.
        texts: of its problems.
    """

    def __init__(self, index: DatasetIndex, texts: ProblemTexts) -> None:
        self._index = index
        self._texts = texts

    def name(self, prompt: str, label: Label) -> Naming:
        """Return which problem a prompt with a label is about."""
        if label.problem_id is not None:
            return Naming(label.problem_id)
        found = self._texts.find(prompt)
        if found is None:
            return Naming("", "the prompt is too long, or holds too many problems, to be searched")
        ids = [self._index.image.problem_id(at) for at in sorted({one.position for one in found})]
        if not ids:
            return Naming("", f"the prompt holds no problem of dataset {self._index.name!r}")
        if label.ground_truth is not None:
            wanted = _form(label.ground_truth)
            fitting = [name for name in ids if self._truth(name) == wanted]
            if not fitting:
                return Naming(
                    "",
                    f"the prompt holds {_listed(ids)}, but the label"
                    f" {label.ground_truth[:40]!r} is not its ground truth",
                )
            ids = fitting
        if len(ids) > 1:
            return Naming(
                "",
                f"the prompt holds {_listed(ids)}, and which is meant is unknown;"
                " name it in the label",
            )
        return Naming(ids[0])

    def _truth(self, problem_id: str) -> str | None:
        entry = self._index.entry(problem_id)
        return None if entry is None or entry.ground_truth is None else _form(entry.ground_truth)


def read_label(body: bytes, bounds: Bounds | None, name: str) -> Label:
    """Read a label.

    Args:
        body: the request.
        bounds: where in it the label stands; None: there is none.
        name: what a message calls it.

    Raises:
        InputError: it is neither a text, a number nor such an object.
    """
    if bounds is None:
        return Label()
    label = value(body, bounds, name)
    if label is None:
        return Label()
    if isinstance(label, str):
        return _from_text(label, name)
    if isinstance(label, dict):
        return _from_object(label, name)
    if isinstance(label, (int, float)) and not isinstance(label, bool):
        # As written: 0.10 and 1e400 are ground truths, not numbers to be rounded.
        return Label(ground_truth=body[bounds.start : bounds.end].decode())
    raise InputError(f"{name} must be a string, a number or an object, got {type(label).__name__}")


def _from_text(label: str, name: str) -> Label:
    if label.lstrip().startswith("{"):
        try:
            parsed = json.loads(label)
        except (ValueError, RecursionError):
            parsed = None  # a set in braces, or LaTeX
        if isinstance(parsed, dict) and not parsed.keys().isdisjoint(_KEYS):
            return _from_object(parsed, name)
    return Label(ground_truth=label if label.strip() else None)


def _from_object(label: Mapping[str, Any], name: str) -> Label:
    unknown = [key for key in label if key not in _KEYS]
    if unknown:
        raise InputError(f"{name} has the unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}")
    for key in _KEYS[:3]:
        given = label.get(key)
        if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
            raise InputError(f"{key} in {name} must be a string, got {type(given).__name__}")
    texts = {key: str(label[key]) for key in _KEYS[:3] if label.get(key) is not None}
    nodes = label.get("nodes")
    return Label(
        problem_id=texts.get("problem_id") or None,
        ground_truth=texts.get("ground_truth"),
        data_source=texts.get("data_source"),
        nodes=None if nodes is None else _nodes(nodes, name),
    )


def _nodes(nodes: object, name: str) -> Nodes:
    if not isinstance(nodes, list):
        raise InputError(f"nodes in {name} must be a list, got {type(nodes).__name__}")
    return [_node(node, name) for node in nodes]


def _node(node: object, name: str) -> InlineNode | Sequence[str]:
    """Read a node; what its expressions are is checked, and told, by the scorer."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict) or not node.keys() <= _NODE_KEYS:
        raise InputError(
            f"a node in {name} must be a list of expressions or an object of"
            f" {', '.join(sorted(_NODE_KEYS))}"
        )
    derived = node.get("derived") or ()
    if not isinstance(derived, list | tuple):
        raise InputError(f"derived of a node in {name} must be a list")
    return InlineNode(
        expressions=node.get("expressions", ()),
        node_id=str(node.get("node_id") or ""),
        derived=derived,
    )


def _form(truth: str) -> str:
    return normalize(truth).strip()


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in ids[:_NAMED_AT_MOST])
    more = len(ids) - _NAMED_AT_MOST
    return (
        f"problem {shown}"
        if len(ids) == 1
        else (f"the problems {shown}" + (f" and {more} more" if more > 0 else ""))
    )


# MERGED The rollouts of one request, scored piece by piece, and what could not be scored.
#
# What both shapes share.  A rollout is read from the request only when its piece is built and
# dropped with it, so that a request of a hundred megabytes costs little more than itself.

# The one way to fail that gRPC does not know: there, a response is its own field.
RESPONSE_NOT_FOUND = "RESPONSE_NOT_FOUND"

# When to come back where the answer check stayed too busy for longer than the scorer waits.
BUSY_RETRY_S = 2.0

# A refusal tells of this many; the rest of a failed step is most often the same again.
MAX_TOLD = 100


class Unscorable(Exception):
    """Some rollouts have no reward, and the URL names none for them.

    Attributes:
        told: index, status and message of the first ones.
    """

    def __init__(self, sentence: str, told: list[dict[str, object]]) -> None:
        self.told = told
        super().__init__(sentence)


@dataclass(slots=True)
class Item:
    """One rollout of a request.

    Attributes:
        rollout: None where the response cannot be told from the prompt.
        reason: why no problem is named, or no response found; else empty.
    """

    rollout: Rollout | None
    reason: str = ""


@dataclass(slots=True)
class Outcome:
    """What became of one rollout.

    Attributes:
        status: of the score, or ``RESPONSE_NOT_FOUND``.
        message: one sentence where the status is not OK.
        score: None where there was nothing to score.
        reward: what the trainer gets; NaN, and never sent, where the request is refused.
        unscorable: whether a number that was needed is unknown.
    """

    status: str
    message: str
    score: Score | None
    reward: float
    unscorable: bool


class Batches:
    """Scores what the shapes read; one for all requests of a worker.

    Args:
        scorer: counts what it scores.
        namers: of each dataset, by name.
        max_items: of one request.
    """

    def __init__(self, scorer: MeteredScorer, namers: Mapping[str, Namer], max_items: int) -> None:
        self.max_items = max_items
        self._scorer = scorer
        self._namers = dict(namers)

    def check_dataset(self, name: str | None) -> None:
        """Return where a request's dataset is clear; errors are those of :meth:`Scorer.dataset`."""
        self._scorer.check_dataset(name)

    def item(self, prompt: str, response: str | None, label: Label, options: ScoreOptions) -> Item:
        """Put one rollout together."""
        if response is None:
            return Item(None, "the query does not hold its prompt, so the response is unknown")
        [only, *_] = self._namers.values()
        namer = only if options.dataset is None else self._namers[options.dataset]
        naming = namer.name(prompt, label)
        rollout = Rollout(
            problem_id=naming.problem_id,
            response=encode_response(without_special_tokens(response)),
            ground_truth=label.ground_truth,
            nodes=label.nodes,
            data_source=label.data_source,
        )
        return Item(rollout, naming.reason)

    def score(
        self, items: Iterable[Item], number: int, settings: Settings, call: Call
    ) -> list[Outcome]:
        """Score the rollouts of a request.

        Args:
            items: (number,) lazily read.
            number: of items.
            settings: of the request.
            call: whether anybody still waits.

        Raises:
            Abort: nobody waits any more.
            InputError: an item cannot be read.
            Unscorable: some have no reward, and no number is given for them.
        """
        self._scorer.metrics.request_rollouts(number)
        outcomes: list[Outcome] = []
        missing: list[int] = []
        for piece in cut(items, _size, PIECE_BYTES, PIECE_ROLLOUTS):
            call.check()
            rollouts = [item.rollout for item in piece if item.rollout is not None]
            scores = iter(self._decided(rollouts, settings.options, call))
            for item in piece:
                outcome = _outcome(item, None if item.rollout is None else next(scores), settings)
                if outcome.unscorable:
                    missing.append(len(outcomes))
                outcomes.append(outcome)
        call.check()
        if missing and settings.on_unscorable is None:
            raise _refusal(outcomes, missing)
        return outcomes

    def _decided(self, rollouts: list[Rollout], options: ScoreOptions, call: Call) -> list[Score]:
        """Score one piece.

        An answer that stayed undecided for the load of others would count as wrong through
        no fault of its own, and a trainer's remote-reward client cannot ask for it again.

        Raises:
            Abort: the answer check stayed too busy to decide.
        """
        scores = self._scorer.score(rollouts, options, call.deadline)[0]
        busy = sum(score.undecided_by_load for score in scores)
        if busy:
            raise Abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answer check was too busy for {busy} of {len(scores)} rollouts",
                BUSY_RETRY_S,
            )
        return scores


def _size(item: Item) -> int:
    return 0 if item.rollout is None else len(item.rollout.response)


def _outcome(item: Item, score: Score | None, settings: Settings) -> Outcome:
    if score is None:
        status, message, reward = RESPONSE_NOT_FOUND, item.reason, None
    else:
        status, reward = score.status.value, score.reward
        # Why no problem is named tells more than that none is.
        message = "" if score.status is Status.OK else item.reason or score.message
    needs_acc = settings.choices.get("scores") == "acc"
    unscorable = reward is None or (needs_acc and (score is None or score.acc is None))
    if reward is None:
        reward = math.nan if settings.on_unscorable is None else settings.on_unscorable
    return Outcome(status, message, score, reward, unscorable)


def _refusal(outcomes: list[Outcome], missing: list[int]) -> Unscorable:
    first = outcomes[missing[0]]
    told: list[dict[str, object]] = [
        {"index": at, "status": outcomes[at].status, "message": outcomes[at].message}
        for at in missing[:MAX_TOLD]
    ]
    return Unscorable(
        f"{len(missing)} of {len(outcomes)} rollouts have no reward and the URL names none"
        f" (on_unscorable); number {missing[0]}: {first.status}: {first.message}",
        told,
    )


def same_length(name: str, number: int, other: str, expected: int) -> None:
    """Return where two lists of a request are of one length.

    Raises:
        InputError: they are not.
    """
    if number != expected:
        raise InputError(f"{name} has {number} elements, {other} has {expected}")


# MERGED OpenRLHF's remote reward: ``{query[], prompts[], labels[]}`` to ``{rewards, …}``.
#
# Read in its releases 0.6 to 0.11: a query is prompt and response decoded together; up to 0.9
# one request holds a whole step, from 0.10 on one rollout, always in lists.  Of the reply,
# ``rewards`` trains, ``scores`` decides what dynamic filtering drops, and every key of
# ``extra_logs`` is a curve in the training log; all three are turned into tensors, so that
# they hold numbers only, and the same keys always.  Other keys are not looked at.

LISTS = ("query", "prompts", "labels")
CHOICES: Mapping[str, Sequence[str]] = {"scores": ("reward", "acc")}


def answer(body: bytes, call: Call, settings: Settings, batches: Batches) -> object:
    """Answer one request with what is to be sent as JSON.

    Raises:
        Abort: nobody waits any more.
        InputError: the body has another shape.
        Unscorable: some rollouts have no reward, and no number is given for them.
    """
    call.check()
    given = members(body, LISTS, batches.max_items).lists
    for name in LISTS[:2]:
        if name not in given:
            raise InputError(f"the body has no {name}; it must be OpenRLHF 0.6 or newer that asks")
    queries, prompts = given["query"], given["prompts"]
    same_length("prompts", len(prompts), "query", len(queries))
    labels: Sequence[Bounds | None] = given.get("labels", [None] * len(queries))
    same_length("labels", len(labels), "query", len(queries))

    def items() -> Iterator[Item]:
        for at, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
            asked = text(body, prompt, f"prompts[{at}]")
            response = after_prompt(text(body, query, f"query[{at}]"), asked)
            said = read_label(body, label, f"labels[{at}]")
            yield batches.item(asked, response, said, settings.options)

    return _reply(batches.score(items(), len(queries), settings, call), settings)


def _reply(outcomes: Sequence[Outcome], settings: Settings) -> dict[str, object]:
    rewards = [outcome.reward for outcome in outcomes]
    scores = rewards
    if settings.choices["scores"] == "acc":
        unknown = settings.on_unscorable
        scores = [_acc(outcome, 0.0 if unknown is None else unknown) for outcome in outcomes]
    return {
        "rewards": rewards,
        "scores": scores,
        "extra_logs": {
            "acc": [_acc(outcome) for outcome in outcomes],
            "ncr": [_ncr(outcome) for outcome in outcomes],
            "num_nodes": [_count(outcome, "num_nodes") for outcome in outcomes],
            "num_matched": [_count(outcome, "num_matched") for outcome in outcomes],
            "unscorable": [float(outcome.unscorable) for outcome in outcomes],
        },
        "statuses": [outcome.status for outcome in outcomes],
        "messages": [outcome.message for outcome in outcomes],
    }


# A curve takes numbers only: what is unknown is 0 there, and known by num_nodes, unscorable
# and the status.


def _acc(outcome: Outcome, unknown: float = 0.0) -> float:
    acc = None if outcome.score is None else outcome.score.acc
    return unknown if acc is None else acc


def _ncr(outcome: Outcome) -> float:
    ncr = None if outcome.score is None else outcome.score.ncr
    return 0.0 if ncr is None else ncr


def _count(outcome: Outcome, name: str) -> float:
    return 0.0 if outcome.score is None else float(getattr(outcome.score, name))


# MERGED slime's remote reward: ``{prompt, response, label}`` to an object, or to a number.
#
# Read in its sources of 2025 and 2026: one request holds one rollout, and the reply, whatever
# it is, becomes the sample's reward.  With ``--reward-key reward`` an object is right, and the
# rest of it stays with the sample; without the setting it must be a number (``reply=number``).
# The prompt is a text, or the messages of a chat.

# Far above any prompt; what is larger is decoded for nothing.
MAX_PROMPT_BYTES = 1 << 20

SLIME_CHOICES: Mapping[str, Sequence[str]] = {"reply": ("object", "number")}


def slime_answer(body: bytes, call: Call, settings: Settings, batches: Batches) -> object:
    """Answer one request with what is to be sent as JSON.

    Raises:
        Abort: nobody waits any more.
        InputError: the body has another shape.
        Unscorable: the rollout has no reward, and no number is given for it.
    """
    call.check()
    given = members(body).values
    for name in ("prompt", "response"):
        if name not in given:
            raise InputError(f"the body has no {name}")

    def items() -> Iterator[Item]:
        prompt = _prompt(body, given["prompt"])
        response = text(body, given["response"], "response")
        label = read_label(body, given.get("label"), "label")
        yield batches.item(prompt, response, label, settings.options)

    [outcome] = batches.score(items(), 1, settings, call)
    return outcome.reward if settings.choices["reply"] == "number" else _object(outcome)


def _object(outcome: Outcome) -> dict[str, object]:
    score = outcome.score
    return {
        "reward": outcome.reward,
        "acc": None if score is None else score.acc,
        "ncr": None if score is None else score.ncr,
        "num_nodes": 0 if score is None else score.num_nodes,
        "num_matched": 0 if score is None else score.num_matched,
        "status": outcome.status,
        "message": outcome.message,
        "unscorable": outcome.unscorable,
    }


def _prompt(body: bytes, bounds: Bounds) -> str:
    """Return the text of a prompt, of all messages where it is a chat."""
    if bounds.end - bounds.start > MAX_PROMPT_BYTES:
        raise InputError(
            f"prompt has {bounds.end - bounds.start} bytes, the limit is {MAX_PROMPT_BYTES}"
        )
    prompt = value(body, bounds, "prompt")
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise InputError(
            f"prompt must be a text or a list of messages, got {type(prompt).__name__}"
        )
    return "\n".join(part for message in prompt for part in _parts(message))


def _parts(message: object) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
    else:
        raise InputError("a message of prompt must have a content")
