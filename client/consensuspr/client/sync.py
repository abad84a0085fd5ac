"""The synchronous client.

What happens during a call is decided by the pipeline; here is only the carrying out:
attempts are started as futures on one channel and their ends arrive through a queue.

Thread safety: one client serves any number of threads; they share its channel.  A client
does not survive ``fork``, because gRPC's threads are not in the child: make it there.  (It
connects on first use, so one that was made before and not used yet is fine.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from consensuspr.client.batching import (
    Calls,
    Limits,
    Progress,
    ScoredBatch,
    ScorePlan,
    open_method,
    read_explanation,
)
from consensuspr.client.pipeline import Attempt, Deadline, Pipeline, RetryPolicy
from consensuspr.client.transport import RpcFailure, channel_options, keep_freed_memory
from consensuspr.errors import RewardServiceError, ServerFault
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided, Rollout, ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.server_info import ServerInfo

if TYPE_CHECKING:
    from consensuspr.scoring.explain import Explanation

R = TypeVar("R", bound=Message)

DEFAULT_REWARD = RewardSpec.linear()


class RewardClient:
    """Scores rollouts by a reward server.

    Args:
        address: ``HOST:PORT`` of the server.
        timeout_s: for a whole call, retries included, where the call is given none.
        max_in_flight: requests of one call at a time.
        retry: when failed attempts are repeated.

    Raises:
        InputError: a setting is out of range.  Nothing is connected before the first call.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = 30.0,
        *,
        max_in_flight: int = 8,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._calls = Calls(address, timeout_s, retry or RetryPolicy(), max_in_flight)
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._pid = 0
        self._closed = False
        self._limits: Limits | None = None

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
    ) -> ScoredBatch:
        """Score a batch of any size; order is kept.

        Args:
            rollouts: what to score; each failure is a status on its own rollout.
            reward: how acc and ncr are combined.
            epoch: training epoch counted from 0, the phase of the curriculum.
            dataset: name of the dataset, where the server has several.
            answer_rule: how answers are found and compared; None: the dataset's own rule.
            on_undecided: what an undecided answer does to the reward.
            include_spans: also say where each node was first hit.
            timeout_s: for the whole call; None: the client's.
            progress: called with the number of rollouts scored so far and of all.

        Returns:
            One score per rollout, and the identity that they were computed under.

        Raises:
            InputError: an argument is wrong; nothing was sent.
            RewardServiceError: the call failed as a whole; no score was made up for it.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        return self.score_with(rollouts, options, timeout_s=timeout_s, progress=progress)

    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        """Score a batch as :meth:`score` does, with options that were made before."""
        deadline = self._calls.deadline(timeout_s)
        plan = ScorePlan(rollouts, options, self._server_limits(deadline), progress)
        while True:
            try:
                self._run("Score", self._calls.score(plan, deadline))
                return plan.assembly.result()
            except ServerFault:
                if not plan.start_over():
                    raise

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
    ) -> Explanation:
        """Score one rollout and say which expression of which node was found where.

        Arguments and errors are those of :meth:`score`.
        """
        options = ScoreOptions.checked(reward, epoch, dataset, answer_rule, on_undecided, True)
        replies: list[pb.ExplainResponse] = []
        deadline = self._calls.deadline(timeout_s)
        self._run("Explain", self._calls.explain(rollout, options, deadline, replies))
        return read_explanation(replies[0])

    def server_info(self, timeout_s: float | None = None) -> ServerInfo:
        """Return the server's versions, limits and datasets.

        Raises:
            RewardServiceError: it cannot be asked, or speaks another protocol version.
        """
        return self._server_info(self._calls.deadline(timeout_s))

    def wait_until_ready(self, timeout_s: float | None = None) -> ServerInfo:
        """Wait until the server answers; return what it says about itself.

        Raises:
            Unavailable: it did not answer in time.
        """
        return self.server_info(timeout_s)

    def close(self) -> None:
        """Close the channel; calls in progress end with an error.  May be called twice."""
        with self._lock:
            self._closed = True
            if self._channel is not None and self._pid == os.getpid():
                self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _server_limits(self, deadline: Deadline) -> Limits:
        """Return the server's limits, asked for once and again after a failed call."""
        if self._limits is None:
            self._limits = Limits.of(self._server_info(deadline))
        return self._limits

    def _server_info(self, deadline: Deadline) -> ServerInfo:
        replies: list[pb.ServerInfoResponse] = []
        self._run("ServerInfo", self._calls.server_info(deadline, replies))
        return self._calls.read_server_info(replies[0])

    def _open_channel(self) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._channel is None:
                keep_freed_memory()
                self._channel = grpc.insecure_channel(self._calls.address, channel_options())
                self._pid = os.getpid()
            elif self._pid != os.getpid():
                raise RuntimeError(
                    f"the client was used in process {self._pid} and cannot be used in its"
                    f" child {os.getpid()}; make a client in each process"
                )
            return self._channel

    def _run(self, method: str, pipeline: Pipeline[R]) -> None:
        """Carry out a call: start what is due, pass on what ended, until all is done.

        Raises:
            RewardServiceError: the pipeline gave up, or the client was closed.
        """
        call = open_method(self._open_channel(), method)
        ended: SimpleQueue[tuple[Attempt[R], Any]] = SimpleQueue()
        in_flight: set[Any] = set()
        try:
            while True:
                due = pipeline.due()
                if due and pipeline.on_last:
                    self._wait_for(due[0], call, method, pipeline)
                    continue
                for attempt in due:
                    future = call.future(attempt.job.request, timeout=attempt.timeout_s)
                    in_flight.add(future)
                    future.add_done_callback(
                        lambda future, attempt=attempt: ended.put((attempt, future))
                    )
                if pipeline.done:
                    return
                try:
                    attempt, future = ended.get(timeout=pipeline.wait_s())
                except Empty:
                    continue
                in_flight.discard(future)
                if future.code() is grpc.StatusCode.OK:
                    pipeline.succeeded(attempt, future.result())
                else:
                    self._failed(attempt, RpcFailure.of(future), method, pipeline)
        except RewardServiceError:
            # It may have been replaced by a server with other limits.
            self._limits = None
            raise
        finally:
            for future in in_flight:
                future.cancel()

    def _wait_for(self, attempt: Attempt[R], call: Any, method: str, pipeline: Pipeline[R]) -> None:
        """Carry out one attempt in this thread; no other thread has to be woken for its reply."""
        try:
            reply = call(attempt.job.request, timeout=attempt.timeout_s)
        except grpc.RpcError as error:
            failure = RpcFailure.of(error)
        else:
            pipeline.succeeded(attempt, reply)
            return
        self._failed(attempt, failure, method, pipeline)

    def _failed(
        self, attempt: Attempt[R], failure: RpcFailure, method: str, pipeline: Pipeline[R]
    ) -> None:
        """Take the failure of an attempt; only what this client did not cause is repeated."""
        if self._closed:
            raise failure.exception(f"{method}, the client was closed")
        pipeline.failed(attempt, failure)
