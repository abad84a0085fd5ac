"""What every client can be asked, and what it returns: here once for all of them.

``RewardClient`` and ``LocalClient`` give results, ``AsyncRewardClient`` coroutines of the same
results.  Each fills in three methods that take the options as one value; callers that hold such
a value use these, everybody else ``score`` and ``explain``.

Imports neither gRPC nor the matcher: a client of either kind does without the other's half.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypeVar

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    checked_tokens,
)
from consensuspr.wire.server_info import ServerInfo

if TYPE_CHECKING:
    from consensuspr.scoring.types import Explanation

T = TypeVar("T")
R = TypeVar("R")
ScoredT = TypeVar("ScoredT")
ExplainedT = TypeVar("ExplainedT")
InfoT = TypeVar("InfoT")
Explained: TypeAlias = "Explanation"

# Called with the number of rollouts scored so far, and of all.
Progress: TypeAlias = Callable[[int, int], None]

DEFAULT_REWARD = RewardSpec.linear()


class ScoredBatch(list[Score]):
    """The scores of a batch in the order of its rollouts; a list, and one thing more.

    Attributes:
        identity: the dataset's digest, versions and reward that all of them were computed
            under; what a replay needs to get the same scores bit for bit.
    """

    identity: Identity

    def __init__(self, scores: Iterable[Score], identity: Identity) -> None:
        super().__init__(scores)
        self.identity = identity


@dataclass(slots=True)
class OwnOptions:
    """What a client says with each call whose options leave it open.

    Attributes:
        run: name of the training run that asks.
        expect_digest: of the dataset; another one is refused.

    Raises:
        InputError: one of them has not its form.
    """

    run: str | None = None
    expect_digest: str | None = None
    _latest: tuple[ScoreOptions, ScoreOptions] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.of(ScoreOptions())

    def of(self, options: ScoreOptions) -> ScoreOptions:
        """Return the options with what is the client's own; the same ones for the same."""
        if self.run is None and self.expect_digest is None:
            return options
        latest = self._latest
        if latest is None or latest[0] is not options:
            own = replace(
                options,
                run=options.run or self.run,
                expect_digest=options.expect_digest or self.expect_digest,
            )
            latest = self._latest = options, own
        return latest[1]


class ScoringClient(ABC, Generic[ScoredT, ExplainedT, InfoT]):
    """Scores rollouts somewhere; the type arguments are what its calls return."""

    def score(
        self,
        rollouts: Sequence[Rollout],
        reward: RewardSpec = DEFAULT_REWARD,
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
            rollouts: what to score; each failure is a status on its own rollout.
            reward: how acc and ncr are combined.
            epoch: training epoch counted from 0, the phase of the curriculum.
            dataset: name of the dataset, where there are several.
            answer_rule: how answers are found and compared; None: the dataset's own rule.
            on_undecided: what an undecided answer does to the reward.
            include_spans: also say where each node was first hit.
            timeout_s: for the whole call; None: the client's.
            progress: called with the number of rollouts scored so far and of all.

        Returns:
            One score per rollout, and the identity that they were computed under.

        Raises:
            InputError: an argument is wrong; nothing was sent.
            DatasetMismatch: the dataset has another digest than the one that the client expects.
            RewardServiceError: the call failed as a whole; no score was made up for it.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        return self.score_with(rollouts, options, timeout_s=timeout_s, progress=progress)

    def explain(
        self,
        rollout: Rollout,
        reward: RewardSpec = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        timeout_s: float | None = None,
    ) -> ExplainedT:
        """Score one rollout and say which expression of which node was found where.

        Arguments and errors are those of :meth:`score`.
        """
        options = ScoreOptions.checked(reward, epoch, dataset, answer_rule, on_undecided, True)
        return self.explain_with(rollout, options, timeout_s=timeout_s)

    @abstractmethod
    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredT:
        """Do :meth:`score` with options that were checked when they were made."""

    @abstractmethod
    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> ExplainedT:
        """Do :meth:`explain` with options that were checked when they were made."""

    @abstractmethod
    def server_info(self, timeout_s: float | None = None) -> InfoT:
        """Return versions, limits and datasets of what scores.

        Raises:
            RewardServiceError: it cannot be asked, or speaks another protocol version.
        """

    def wait_until_ready(self, timeout_s: float | None = None) -> InfoT:
        """Wait until it answers; return what it says about itself.

        Raises:
            Unavailable: it did not answer in time.
        """
        return self.server_info(timeout_s)


class BlockingClient(ScoringClient[ScoredBatch, Explained, ServerInfo]):
    """A client whose calls return when they are done; a context manager that closes it."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds; calls in progress end with an error.  May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def convert_rollout(position: int, rollout: R, convert: Callable[[R], T]) -> T:
    """Return the rollout at a position of its batch as a client sends it or scores it.

    Raises:
        InputError: a field has a wrong type.
    """
    try:
        return convert(rollout)
    except (TypeError, ValueError, AttributeError) as error:
        if not isinstance(rollout, Rollout):
            found = type(rollout).__name__
            raise InputError(f"rollouts[{position}] must be a Rollout, got {found}") from None
        checked_tokens(rollout, position)  # names the field, if it is one of the plain ones
        raise InputError(f"rollouts[{position}] has a field of a wrong type: {error}") from None
