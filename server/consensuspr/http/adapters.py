"""Remote-reward requests as two trainers speak them: one table of dialects, one way to answer.

OpenRLHF (read in its releases 0.6 to 0.11) posts ``{query[], prompts[], labels[]}``.  A query is
prompt and response decoded together; up to 0.9 one request holds a whole step, from 0.10 on one
rollout, always in lists.  Of the reply, ``rewards`` trains, ``scores`` decides what dynamic
filtering drops, and every key of ``extra_logs`` is a curve in the training log; all three are
turned into tensors, so that they hold numbers only, and the same keys always.

slime (read in its sources of 2025 and 2026) posts ``{prompt, response, label}``: one rollout,
and the reply, whatever it is, becomes the sample's reward.  With ``--reward-key reward`` an
object is right, and the rest of it stays with the sample; without the setting it must be a
number (``reply=number``).  The prompt is a text, or the messages of a chat.

A trainer posts to one fixed URL, so the settings of a run stand in it:
``/openrlhf?reward=linear&alpha=0.5&dataset=math``.  Whatever is misspelt, given twice or has
no effect beside the rest is refused: a run that trains on another reward than its command
line says is found out at the worst time.

A rollout is read from the request only when its piece is built and dropped with it, so that a
request of a hundred megabytes costs little more than itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import grpc

from consensuspr.errors import InputError
from consensuspr.http.json_body import Body, Bounds, members, text, value
from consensuspr.http.problems import Namer, ProblemLabel, ProblemTexts, read_label
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.scoring.responses import (
    after_prompt,
    without_other_turns,
    without_special_tokens,
)
from consensuspr.scoring.rewards import CodeCredit, NcrKind, RewardKind, RewardSpec, Unanswered
from consensuspr.scoring.scorer import Chosen
from consensuspr.scoring.types import (
    MAX_UINT32,
    AnswerRule,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)
from consensuspr.server.metrics import MeteredScorer
from consensuspr.server.service import Abort, RunningCall
from consensuspr.wire.codec import PIECE_BYTES, PIECE_ROLLOUTS, cut, encode_response

# The one way to fail that gRPC does not know: there, a response is its own field.
RESPONSE_NOT_FOUND = "RESPONSE_NOT_FOUND"

# When to come back where the answer check stayed too busy for longer than the scorer waits.
BUSY_RETRY_S = 2.0

# A refusal tells of this many; the rest of a failed step is most often the same again.
MAX_TOLD = 100

# Far above any prompt; what is larger is decoded for nothing.
MAX_PROMPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What the URL says.

    Attributes:
        on_unscorable: reward of what cannot be scored; None: the request fails.
        choices: the settings of one dialect, by name.
    """

    options: ScoreOptions
    on_unscorable: float | None = None
    choices: Mapping[str, str] = field(default_factory=dict)


def _one_of(known: Sequence[str], name: str, given: str) -> str:
    if given not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {given!r}")
    return known[known.index(given)]


def _number(name: str, given: str) -> float:
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {given!r}")
    return number


def _epoch(name: str, given: str) -> int:
    # Not int(): that takes "1_0", " 1" and other digits than these.
    if not (given.isascii() and given.isdigit() and len(given) <= 10 and int(given) <= MAX_UINT32):
        raise InputError(f"{name} must be a whole number in [0, {MAX_UINT32}], got {given!r}")
    return int(given)


def _truth(name: str, given: str) -> bool:
    return _one_of(("true", "false"), name, given) == "true"


_SETTINGS: Mapping[str, Callable[[str, str], Any]] = {
    "reward": partial(_one_of, tuple(RewardKind)),
    "alpha": _number,
    "switch_epoch": _epoch,
    "epoch": _epoch,
    "guard": _truth,
    "statements": _truth,
    "final_nodes": _truth,
    "ncr": partial(_one_of, tuple(NcrKind)),
    "after_think": _truth,
    "code": partial(_one_of, tuple(CodeCredit)),
    "unanswered": partial(_one_of, tuple(Unanswered)),
    "dataset": lambda name, given: given or None,
    "run": lambda name, given: given or None,
    "expect_digest": lambda name, given: given or None,
    "answer_rule": partial(_one_of, tuple(AnswerRule)),
    "on_undecided": partial(_one_of, tuple(OnUndecided)),
    "on_unscorable": _number,
}
_OF_THE_REWARD = (
    "alpha", "switch_epoch", "guard", "statements", "final_nodes", "ncr", "after_think",
    "code", "unanswered",
)  # fmt: skip
# Of which only one reward makes use.
_BELONGS_TO = {
    "alpha": RewardKind.LINEAR,
    "switch_epoch": RewardKind.CURRICULUM,
    "epoch": RewardKind.CURRICULUM,
}


def read_settings(
    query: Sequence[tuple[str, str]], choices: Mapping[str, Sequence[str]]
) -> RequestSettings:
    """Read the query of a URL; a dialect's own settings may have so many values, default first.

    Raises:
        InputError: a setting is unknown, given twice, has no effect, or a value is wrong.
    """
    readers = dict(_SETTINGS)
    readers.update({name: partial(_one_of, known) for name, known in choices.items()})
    given: dict[str, Any] = {}
    for name, setting in query:
        if name not in readers:
            raise InputError(f"unknown setting {name!r} in the URL; there are {', '.join(readers)}")
        if name in given:
            raise InputError(f"the setting {name!r} is in the URL twice")
        given[name] = readers[name](name, setting)
    kind = given.get("reward", RewardKind.LINEAR)
    for name, owner in _BELONGS_TO.items():
        if name in given and kind is not owner:
            raise InputError(f"{name} has no effect with reward={kind}, only with {owner}")
    if kind is RewardKind.CURRICULUM and "epoch" not in given:
        raise InputError(
            "reward=curriculum needs epoch=N in the URL: the request does not tell how far"
            " training is, and the epoch is never guessed"
        )
    formula: dict[str, Any] = {"unanswered": Unanswered.in_training(kind)}
    formula |= {name: given[name] for name in _OF_THE_REWARD if name in given}
    scoring = ("epoch", "dataset", "answer_rule", "on_undecided", "run", "expect_digest")
    return RequestSettings(
        ScoreOptions(
            RewardSpec(kind, **formula), **{name: given[name] for name in scoring if name in given}
        ),
        given.get("on_unscorable"),
        {name: given.get(name, known[0]) for name, known in choices.items()},
    )


class Unscorable(Exception):
    """Some rollouts have no reward, and the URL names none; the first ones are told."""

    def __init__(self, sentence: str, told: list[dict[str, object]]) -> None:
        self.told = told
        super().__init__(sentence)


@dataclass(slots=True)
class Item:
    """One rollout of a request, None where the response cannot be told from the prompt.

    The reason says why no problem is named, or no response found; else it is empty.
    """

    rollout: Rollout | None
    reason: str = ""


@dataclass(slots=True)
class RolloutOutcome:
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

    def figure(self, name: str, unknown: float | None) -> float | None:
        """Return a number of the score, ``unknown`` where there is none."""
        figure: float | None = None if self.score is None else getattr(self.score, name)
        return unknown if figure is None else figure


class Batches:
    """Scores what requests hold; one for all requests of a worker."""

    def __init__(self, scorer: MeteredScorer, max_items: int) -> None:
        self.max_items = max_items
        self._scorer = scorer
        # For as long as anybody scores with the dataset.
        self._texts: WeakKeyDictionary[DatasetIndex, ProblemTexts] = WeakKeyDictionary()

    def add(self, index: DatasetIndex, texts: ProblemTexts) -> None:
        """Take the texts of a dataset, before any request is scored with it."""
        self._texts[index] = texts

    def dataset(self, options: ScoreOptions) -> Chosen:
        """Return the dataset that a request means; errors are those of :meth:`Scorer.dataset`."""
        return self._scorer.dataset(options)

    def namer(self, chosen: Chosen) -> Namer:
        """Return what names the problems of a dataset."""
        return Namer(chosen[1], self._texts[chosen[1]])

    def item(self, prompt: str, response: str | None, label: ProblemLabel, namer: Namer) -> Item:
        """Put one rollout together."""
        if response is None:
            return Item(None, "the query does not hold its prompt, so the response is unknown")
        naming = namer.name(prompt, label)
        rollout = Rollout(
            problem_id=naming.problem_id,
            response=encode_response(without_special_tokens(without_other_turns(response))),
            ground_truth=label.ground_truth,
            nodes=label.nodes,
            budget=label.budget,
            data_source=label.data_source,
        )
        return Item(rollout, naming.reason)

    def score(
        self,
        items: Iterable[Item],
        number: int,
        settings: RequestSettings,
        call: RunningCall,
        chosen: Chosen,
    ) -> list[RolloutOutcome]:
        """Score the rollouts of a request, (number,) lazily read items.

        Raises:
            Abort: nobody waits any more, or the answer check stayed too busy to decide.
            InputError: an item cannot be read.
            Unscorable: some have no reward, and no number is given for them.
        """
        self._scorer.metrics.request_rollouts(number)
        outcomes: list[RolloutOutcome] = []
        for piece in cut(items, _size, PIECE_BYTES, PIECE_ROLLOUTS):
            call.check()
            rollouts = [item.rollout for item in piece if item.rollout is not None]
            scores = iter(self._decided(rollouts, settings.options, call, chosen))
            outcomes += [
                _outcome(item, None if item.rollout is None else next(scores), settings)
                for item in piece
            ]
        call.check()
        if settings.on_unscorable is None:
            _check_scorable(outcomes)
        return outcomes

    def _decided(
        self, rollouts: list[Rollout], options: ScoreOptions, call: RunningCall, chosen: Chosen
    ) -> list[Score]:
        """Score one piece.

        An answer that stayed undecided for the load of others would count as wrong through
        no fault of its own, and a trainer's remote-reward client cannot ask for it again.
        """
        scores = self._scorer.score(rollouts, options, call.deadline, chosen)[0].scores()
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


def _outcome(item: Item, score: Score | None, settings: RequestSettings) -> RolloutOutcome:
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
    return RolloutOutcome(status, message, score, reward, unscorable)


def _check_scorable(outcomes: list[RolloutOutcome]) -> None:
    missing = [at for at, outcome in enumerate(outcomes) if outcome.unscorable]
    if missing:
        first = outcomes[missing[0]]
        raise Unscorable(
            f"{len(missing)} of {len(outcomes)} rollouts have no reward and the URL names none"
            f" (on_unscorable); number {missing[0]}: {first.status}: {first.message}",
            [
                {"index": at, "status": outcomes[at].status, "message": outcomes[at].message}
                for at in missing[:MAX_TOLD]
            ],
        )


def chat_text(body: Body, bounds: Bounds, name: str) -> str:
    """Return the text of a prompt, of all messages where it is a chat.

    Raises:
        InputError: it is neither, or too large.
    """
    prompt = value(body, bounds, name, MAX_PROMPT_BYTES)
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise InputError(
            f"{name} must be a text or a list of messages, got {type(prompt).__name__}"
        )
    return "\n".join(part for message in prompt for part in _parts(message, name))


def _parts(message: object, name: str) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
    else:
        raise InputError(f"a message of {name} must have a content")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one trainer asks, and what it takes for an answer.

    Attributes:
        prompt: key of the prompt in the body.
        response: key of the response, or of what holds it.
        label: key of the label, which may be absent.
        batched: whether the three are lists, one element a rollout.
        hint: added to the refusal of a body without prompt or response.
        read_prompt: text of a prompt, given the body, its bounds and its name.
        find_response: the response, given what the body has for it and the prompt.
        choices: values of each setting of the URL that only this dialect has, default first.
        reply: what is sent as JSON.
    """

    prompt: str
    response: str
    label: str
    batched: bool
    hint: str
    read_prompt: Callable[[Body, Bounds, str], str]
    find_response: Callable[[str, str], str | None]
    choices: Mapping[str, Sequence[str]]
    reply: Callable[[Sequence[RolloutOutcome], RequestSettings], object]

    def answer(
        self, body: Body, call: RunningCall, settings: RequestSettings, batches: Batches
    ) -> object:
        """Answer one request with what is to be sent as JSON.

        Raises:
            Abort: nobody waits any more.
            InputError: the body has another shape.
            Unscorable: some rollouts have no reward, and no number is given for them.
        """
        call.check()
        rows = self._rows(body, batches.max_items)
        chosen = batches.dataset(settings.options)
        namer = batches.namer(chosen)

        def items() -> Iterator[Item]:
            for at, (prompt, response, label) in enumerate(rows):
                place = f"[{at}]" if self.batched else ""
                asked = self.read_prompt(body, prompt, self.prompt + place)
                said = text(body, response, self.response + place)
                about = read_label(body, label, self.label + place)
                yield batches.item(asked, self.find_response(said, asked), about, namer)

        return self.reply(batches.score(items(), len(rows), settings, call, chosen), settings)

    def _rows(self, body: Body, max_items: int) -> Sequence[tuple[Bounds, Bounds, Bounds | None]]:
        """Return where prompt, response and label of each rollout stand."""
        lists = (self.response, self.prompt, self.label) if self.batched else ()
        found = members(body, lists, max_items)
        given: Mapping[str, Any] = found.lists if self.batched else found.values
        for name in (self.response, self.prompt) if self.batched else (self.prompt, self.response):
            if name not in given:
                raise InputError(f"the body has no {name}{self.hint}")
        prompts, responses = given[self.prompt], given[self.response]
        if not self.batched:
            return [(prompts, responses, given.get(self.label))]
        labels = given.get(self.label, [None] * len(responses))
        for name, elements in ((self.prompt, prompts), (self.label, labels)):
            if len(elements) != len(responses):
                raise InputError(
                    f"{name} has {len(elements)} elements, {self.response} has {len(responses)}"
                )
        return list(zip(prompts, responses, labels, strict=True))


# With what a curve shows where one is unknown; of the guard, that it lowered nothing.
_FIGURES = {
    "acc": 0.0, "ncr": 0.0, "ncr_raw": 0.0, "guard": 1.0, "num_nodes": 0.0, "num_matched": 0.0,
}  # fmt: skip


def _openrlhf_reply(
    outcomes: Sequence[RolloutOutcome], settings: RequestSettings
) -> dict[str, object]:
    rewards = [outcome.reward for outcome in outcomes]
    scores: list[float | None] = [*rewards]
    if settings.choices["scores"] == "acc":
        unknown = settings.on_unscorable or 0.0
        scores = [outcome.figure("acc", unknown) for outcome in outcomes]
    # A curve takes numbers only: what is unknown is 0 there, and known by num_nodes, unscorable
    # and the status.
    logs = {
        name: [float(outcome.figure(name, unknown) or 0.0) for outcome in outcomes]
        for name, unknown in _FIGURES.items()
    }
    return {
        "rewards": rewards,
        "scores": scores,
        "extra_logs": {**logs, "unscorable": [float(outcome.unscorable) for outcome in outcomes]},
        "statuses": [outcome.status for outcome in outcomes],
        "messages": [outcome.message for outcome in outcomes],
    }


def _slime_reply(outcomes: Sequence[RolloutOutcome], settings: RequestSettings) -> object:
    [outcome] = outcomes
    if settings.choices["reply"] == "number":
        return outcome.reward
    return {
        "reward": outcome.reward,
        **{name: outcome.figure(name, 0 if "num" in name else None) for name in _FIGURES},
        "status": outcome.status,
        "message": outcome.message,
        "unscorable": outcome.unscorable,
    }


# By the path at which a request is posted.
DIALECTS: Mapping[str, Dialect] = {
    "openrlhf": Dialect(
        prompt="prompts",
        response="query",
        label="labels",
        batched=True,
        hint="; it must be OpenRLHF 0.6 or newer that asks",
        read_prompt=text,
        find_response=after_prompt,
        choices={"scores": ("reward", "acc")},
        reply=_openrlhf_reply,
    ),
    "slime": Dialect(
        prompt="prompt",
        response="response",
        label="label",
        batched=False,
        hint="",
        read_prompt=chat_text,
        find_response=lambda response, prompt: response,
        choices={"reply": ("object", "number")},
        reply=_slime_reply,
    ),
}
