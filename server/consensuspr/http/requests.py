"""Remote-reward requests of OpenRLHF and slime: from the bytes of a body to the reply.

OpenRLHF (0.6 to 0.11) posts ``{query[], prompts[], labels[]}``.  A query is prompt and response
decoded together.  Up to 0.9 one request holds a whole step, from 0.10 on one rollout, always in
lists.  ``rewards`` of the reply trains, ``scores`` is for dynamic filtering, and every
key of ``extra_logs`` is a curve in the training log.  All three become tensors: they hold numbers
only, and always the same keys.

slime posts ``{prompt, response, label}`` of one rollout, and the reply becomes its reward: an
object with ``--reward-key reward``, else a number (``reply=number``).

A label names the problem: the id, or a JSON object, or the text of one::

    {"problem_id": "p1", "ground_truth": "42", "data_source": "gsm8k", "nodes": [["6*7=42"]]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from pydantic import BaseModel, ConfigDict, InstanceOf

from consensuspr.errors import InputError
from consensuspr.http.settings import UrlSettings, validated
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.responses import (
    after_prompt,
    without_other_turns,
    without_special_tokens,
)
from consensuspr.scoring.types import (
    Identity,
    InlineNode,
    Rollout,
    Score,
    ScoreColumns,
    Status,
)
from consensuspr.server.service import Abort, RunningCall, ScoringService
from consensuspr.wire.codec import PIECE_BYTES, PIECE_ROLLOUTS, cut, encode_response

# A query that does not hold its prompt; over gRPC a response is a field of its own.
RESPONSE_NOT_FOUND = "RESPONSE_NOT_FOUND"
# When to ask again if the answer check was too busy.
BUSY_RETRY_S = 2.0
# A reply names so many rollouts without a reward.
MAX_NAMED = 100
# Values in one body: each takes some 60 bytes of memory, and as few as two in the body.
MAX_VALUES = 262_144
# A string, also one that does not end: never tried again from its middle.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)

_FIGURES = ("reward", "acc", "ncr", "ncr_raw", "guard", "num_nodes", "num_matched")


class Unscorable(Exception):
    """Some rollouts have no reward, and the URL names none; ``named`` has the first ones."""

    def __init__(self, sentence: str, named: list[dict[str, object]]) -> None:
        self.named = named
        super().__init__(sentence)


class _Outcome(NamedTuple):
    """How one rollout was scored: a status, one sentence if it is not OK, and the figures."""

    status: str
    message: str
    figures: Mapping[str, float | None]


class _Openrlhf(BaseModel):
    query: list[InstanceOf[str]]
    prompts: list[InstanceOf[str]]
    labels: list[Any] | None = None


class _Slime(BaseModel):
    response: InstanceOf[str]
    label: Any = None


class Label(BaseModel):
    """The values of a label."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    problem_id: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    nodes: list[InlineNode | list[str]] | None = None
    budget: GuardBudget | None = None


def answer(
    shape: str,
    raw: bytes | bytearray,
    call: RunningCall,
    settings: UrlSettings,
    service: ScoringService,
) -> object:
    """Return the JSON reply to one request; raise Abort, InputError or Unscorable."""
    call.check()
    body = parse_json(raw, "the body")
    if shape == "slime":
        sample = validated(_Slime, body, "")
        rollouts: list[Rollout | None] = [labelled(sample.label, sample.response, "label")]
        return _slime_reply(_score(rollouts, settings, call, service)[0], settings)
    batch = validated(_Openrlhf, body, "")
    labels = batch.labels or [None] * len(batch.query)
    if not len(batch.query) == len(batch.prompts) == len(labels):
        raise InputError(
            f"query, prompts and labels must have the same length, got {len(batch.query)},"
            f" {len(batch.prompts)} and {len(labels)}"
        )
    rollouts = []
    for at, (query, prompt) in enumerate(zip(batch.query, batch.prompts, strict=True)):
        response = after_prompt(query, prompt)
        name = f"labels[{at}]"
        rollouts.append(None if response is None else labelled(labels[at], response, name))
    return _openrlhf_reply(_score(rollouts, settings, call, service), settings)


def parse_json(raw: bytes | bytearray, name: str) -> object:
    """Return the value of a JSON text; raise InputError if it is none, or holds too many."""
    structure = _STRING.sub(b"", raw)
    if sum(map(structure.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InputError(f"{name} has more than {MAX_VALUES} values")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None


def labelled(label: object, response: str, name: str) -> Rollout:
    """Return the rollout of a response and its label; messages call the label ``name``."""
    if isinstance(label, str) and label.lstrip().startswith("{"):
        label = parse_json(label.encode("utf-8", "surrogatepass"), name)
    about = validated(
        Label, label if isinstance(label, dict) else {"problem_id": label}, f"{name}."
    )
    return Rollout(
        problem_id=about.problem_id or "",
        response=encode_response(without_special_tokens(without_other_turns(response))),
        ground_truth=about.ground_truth,
        nodes=about.nodes,
        budget=about.budget,
        data_source=about.data_source,
    )


def _score(
    rollouts: Sequence[Rollout | None],
    settings: UrlSettings,
    call: RunningCall,
    service: ScoringService,
) -> list[_Outcome]:
    options = settings.options()
    chosen = service.scorer.dataset(options)
    service.metrics.request_rollouts(len(rollouts))
    outcomes: list[_Outcome] = []
    scored: list[tuple[Sequence[Rollout], ScoreColumns, Identity]] = []
    for piece in cut(rollouts, _size, PIECE_BYTES, PIECE_ROLLOUTS):
        call.check()
        present = [rollout for rollout in piece if rollout is not None]
        columns, identity = service.score_piece(present, options, call.deadline, chosen)
        scored.append((present, columns, identity))
        scores = columns.scores()
        busy = sum(score.undecided_by_load for score in scores)
        if busy:
            # It would count as wrong because of other requests, and no trainer asks again.
            raise Abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answer check was too busy for {busy} of {len(scores)} rollouts",
                BUSY_RETRY_S,
            )
        in_order = iter(scores)
        outcomes += [_outcome(None if rollout is None else next(in_order)) for rollout in piece]
    call.check()
    missing = [at for at, outcome in enumerate(outcomes) if _unscorable(outcome, settings)]
    if missing and settings.on_unscorable is None:
        first = outcomes[missing[0]]
        raise Unscorable(
            f"{len(missing)} of {len(outcomes)} rollouts have no reward, and the URL does not set"
            f" on_unscorable; rollout {missing[0]}: {first.status}: {first.message}",
            [
                {"index": at, "status": outcomes[at].status, "message": outcomes[at].message}
                for at in missing[:MAX_NAMED]
            ],
        )
    # A request that fails is sent again, and its rollouts have no keys: they would count twice.
    for piece_scored in scored:
        service.log(*piece_scored, options, chosen)
    return outcomes


def _size(rollout: Rollout | None) -> int:
    return 0 if rollout is None else len(rollout.response)


def _outcome(score: Score | None) -> _Outcome:
    if score is None:
        message = "the query does not contain the prompt, so the response is unknown"
        return _Outcome(RESPONSE_NOT_FOUND, message, dict.fromkeys(_FIGURES))
    message = "" if score.status is Status.OK else score.message
    return _Outcome(score.status.value, message, {name: getattr(score, name) for name in _FIGURES})


def _unscorable(outcome: _Outcome, settings: UrlSettings) -> bool:
    lacks_acc = settings.scores == "acc" and outcome.figures["acc"] is None
    return outcome.figures["reward"] is None or lacks_acc


def _reward(outcome: _Outcome, settings: UrlSettings, name: str = "reward") -> float | None:
    figure = outcome.figures[name]
    return settings.on_unscorable if figure is None else figure


def _openrlhf_reply(outcomes: Sequence[_Outcome], settings: UrlSettings) -> dict[str, object]:
    # A curve takes numbers only; a guard that is unknown lowered nothing.
    unknown = dict.fromkeys(_FIGURES, 0.0) | {"guard": 1.0}
    logs = {
        name: [
            float(unknown[name] if outcome.figures[name] is None else outcome.figures[name] or 0.0)
            for outcome in outcomes
        ]
        for name in _FIGURES[1:]
    }
    return {
        "rewards": [_reward(outcome, settings) for outcome in outcomes],
        "scores": [_reward(outcome, settings, settings.scores) for outcome in outcomes],
        "extra_logs": {
            **logs,
            "unscorable": [float(_unscorable(outcome, settings)) for outcome in outcomes],
        },
        "statuses": [outcome.status for outcome in outcomes],
        "messages": [outcome.message for outcome in outcomes],
    }


def _slime_reply(outcome: _Outcome, settings: UrlSettings) -> object:
    if settings.reply == "number":
        return _reward(outcome, settings)
    return {
        **outcome.figures,
        "reward": _reward(outcome, settings),
        "status": outcome.status,
        "message": outcome.message,
        "unscorable": _unscorable(outcome, settings),
    }
