"""The rollouts of one request, scored piece by piece, and what could not be scored.

What both shapes share.  A rollout is read from the request only when its piece is built and
dropped with it, so that a request of a hundred megabytes costs little more than itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import grpc

from consensuspr.errors import InputError
from consensuspr.http.naming import Label, Namer
from consensuspr.http.options import Settings
from consensuspr.http.texts import without_special_tokens
from consensuspr.scoring.types import Rollout, Score, Status
from consensuspr.server.call import Abort, Call
from consensuspr.server.handlers import check_dataset
from consensuspr.server.metered import MeteredScorer
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.pieces import PIECE_BYTES, PIECE_ROLLOUTS, cut
from consensuspr.wire.text import encode_response

# The one way to fail that gRPC does not know: there, a response is its own field.
RESPONSE_NOT_FOUND = "RESPONSE_NOT_FOUND"

# Pauses after which an answer is asked for again that others kept from being checked: with
# them, far less than the 120 s and more that the trainers' clients wait for a reply.
BUSY_PAUSES_S = (0.5, 1.0, 2.0)
# When to come back where that was not enough.
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

    def check_dataset(self, options: ScoreOptions) -> None:
        """Return where the dataset that is to be scored against is clear.

        Raises:
            Abort: it is not.
        """
        check_dataset(options.dataset, list(self._namers))

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
        """Score one piece; where the answer check was too busy to decide, ask again.

        An answer that stayed undecided for the load of others would count as wrong through
        no fault of its own, and a trainer's remote-reward client cannot ask for it again.

        Raises:
            Abort: nobody waits any more, or it stayed busy.
        """
        scores = self._scorer.score(rollouts, options, call.deadline)[0]
        for pause_s in (*BUSY_PAUSES_S, None):
            busy = [at for at, score in enumerate(scores) if score.undecided_by_load]
            if not busy:
                break
            if pause_s is None:
                raise Abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the answer check was too busy for {len(busy)} of {len(scores)} rollouts",
                    BUSY_RETRY_S,
                )
            time.sleep(pause_s)
            call.check()
            again = self._scorer.score([rollouts[at] for at in busy], options, call.deadline)[0]
            for at, score in zip(busy, again, strict=True):
                scores[at] = score
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
