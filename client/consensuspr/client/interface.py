"""The methods that every client has.

``RewardClient`` and ``LocalClient`` return results, ``AsyncRewardClient`` coroutines of the same
results.  Imports neither gRPC nor the matcher.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypeVar

from consensuspr.errors import DeadlineExceeded, InputError
from consensuspr.scoring.rewards import RewardName, RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    checked_tokens,
)
from consensuspr.short_repr import short_list
from consensuspr.wire.server_info import ServerInfo

if TYPE_CHECKING:
    from consensuspr.scoring.types import Explanation

T = TypeVar("T")
ScoredT = TypeVar("ScoredT")
ExplainedT = TypeVar("ExplainedT")
InfoT = TypeVar("InfoT")
Explained: TypeAlias = "Explanation"

# Called with the number of rollouts scored so far, and of all.
Progress: TypeAlias = Callable[[int, int], None]

DEFAULT_REWARD = RewardSpec.linear()


class ScoredBatch(list[Score]):
    """The scores of a batch in the order of its rollouts.

    Attributes:
        identity: dataset digest, versions and reward of all of them; a replay needs it.
    """

    identity: Identity

    def __init__(self, scores: Iterable[Score], identity: Identity) -> None:
        super().__init__(scores)
        self.identity = identity

    def __repr__(self) -> str:
        return short_list(self)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a call: when ``time.monotonic()`` is ``at``, after ``timeout_s``."""

    at: float
    timeout_s: float

    @classmethod
    def after(cls, timeout_s: float) -> Deadline:
        """Return the deadline that is ``timeout_s`` from now.

        Raises:
            InputError: the timeout is not a positive number.
        """
        if not 0 < timeout_s < math.inf:
            raise InputError(f"timeout_s must be a positive number of seconds, got {timeout_s}")
        return cls(time.monotonic() + timeout_s, timeout_s)

    def remaining_s(self) -> float:
        """Return the seconds left, 0 or less when it has passed."""
        return self.at - time.monotonic()

    def error(self, context: str) -> DeadlineExceeded:
        """Return the exception for a call that was not done in time."""
        return DeadlineExceeded(f"{context}: not done within timeout_s={self.timeout_s:g}")


class ScoringClient(ABC, Generic[ScoredT, ExplainedT, InfoT]):
    """Scores rollouts; the type arguments are what its calls return."""

    # Its ``run`` and ``expect_digest`` apply to calls that name none.
    _defaults: ScoreOptions

    def score(
        self,
        rollouts: Sequence[Rollout],
        reward: RewardSpec | RewardName = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        include_spans: bool = False,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredT:
        """Score a batch of any size; order is kept.

        Args:
            rollouts: each failure is a status on its own rollout.
            reward: how acc and ncr are combined; a name alone has its default settings.
            epoch: training epoch counted from 0, the phase of the curriculum.
            dataset: name of the dataset, if there are several.
            answer_rule: how answers are found and compared; None: the dataset's own rule.
            on_undecided: what an undecided answer does to the reward.
            include_spans: also return where each node was first hit.
            timeout_s: for the whole call; None: the client's.
            progress: called with the number of rollouts scored so far and of all.

        Returns:
            One score per rollout, and their identity.

        Raises:
            InputError: an argument is wrong; nothing was sent.
            DatasetMismatch: the dataset has another digest than the client expects.
            RewardServiceError: the call failed as a whole; no score was made up for it.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        return self.score_with(rollouts, options, timeout_s=timeout_s, progress=progress)

    def explain(
        self,
        rollout: Rollout,
        reward: RewardSpec | RewardName = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        timeout_s: float | None = None,
    ) -> ExplainedT:
        """Score one rollout and return which expression of which node was found where.

        Arguments and errors are those of :meth:`score`.
        """
        options = ScoreOptions.checked(reward, epoch, dataset, answer_rule, on_undecided, True)
        return self.explain_with(rollout, options, timeout_s=timeout_s)

    def _completed(self, options: ScoreOptions) -> ScoreOptions:
        """Return the options of a call with the client's own run and expected digest."""
        own = self._defaults
        if own.run is None and own.expect_digest is None:
            return options
        return replace(
            options,
            run=options.run or own.run,
            expect_digest=options.expect_digest or own.expect_digest,
        )

    @abstractmethod
    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredT:
        """Do :meth:`score` with checked options."""

    @abstractmethod
    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> ExplainedT:
        """Do :meth:`explain` with checked options."""

    @abstractmethod
    def server_info(self, timeout_s: float | None = None) -> InfoT:
        """Return versions, limits and datasets.

        Raises:
            RewardServiceError: the server does not answer, or has another protocol version.
        """

    def wait_until_ready(self, timeout_s: float | None = None) -> InfoT:
        """Wait until the server answers; return :meth:`server_info`.

        Raises:
            Unavailable: it did not answer in time.
        """
        return self.server_info(timeout_s)


class BlockingClient(ScoringClient[ScoredBatch, Explained, ServerInfo]):
    """A client whose calls return when they are done; a context manager that closes it."""

    @abstractmethod
    def close(self) -> None:
        """Release resources; calls in progress end with an error.  May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def convert_rollout(position: int, rollout: Rollout, convert: Callable[[Rollout], T]) -> T:
    """Return the converted rollout at a position of its batch.

    Raises:
        InputError: a field has a wrong type.
    """
    try:
        return convert(rollout)
    except (TypeError, ValueError, AttributeError) as error:
        if not isinstance(rollout, Rollout):
            found = type(rollout).__name__
            raise InputError(f"rollouts[{position}] must be a Rollout, got {found}") from None
        checked_tokens(rollout, position)  # names most fields
        raise InputError(f"rollouts[{position}] has a field of a wrong type: {error}") from None
