"""What the synchronous and the asynchronous client have in common: everything but waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message

from consensuspr.client.channel import check_target
from consensuspr.client.pipeline import Job, Pipeline
from consensuspr.client.planning import ScorePlan
from consensuspr.client.retry import Deadline, RetryPolicy
from consensuspr.errors import IncompatibleServer, InputError
from consensuspr.scoring.types import Rollout
from consensuspr.v1 import PROTOCOL_VERSION, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.info import ServerInfo, decode_server_info
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.requests import encode_explain_request

R = TypeVar("R", bound=Message)

_REPLIES: dict[str, type[Message]] = {
    "Score": pb.ScoreResponse,
    "Explain": pb.ExplainResponse,
    "ServerInfo": pb.ServerInfoResponse,
}


def open_method(channel: Any, method: str) -> Any:
    """Return a method of the service on a channel of either kind; it takes bytes as a request.

    The generated stub would take messages; requests are joined from encoded rollouts.
    """
    return channel.unary_unary(
        f"/{SERVICE_NAME}/{method}", response_deserializer=_REPLIES[method].FromString
    )


@dataclass(frozen=True, slots=True)
class Calls:
    """The settings of a client, and the pipelines of its calls.

    Attributes:
        address: ``HOST:PORT`` of the server.
        timeout_s: of a call that is given none of its own.
        retry: when failed attempts are repeated.
        max_in_flight: requests of one call at a time.

    Raises:
        InputError: a setting is out of range.
    """

    address: str
    timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_in_flight: int = 8

    def __post_init__(self) -> None:
        check_target(self.address)
        Deadline.after(self.timeout_s)
        if self.max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {self.max_in_flight}")

    def deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that begins now."""
        return Deadline.after(self.timeout_s if timeout_s is None else timeout_s)

    def score(self, plan: ScorePlan, deadline: Deadline) -> Pipeline[pb.ScoreResponse]:
        """Return the course of a ``Score`` call."""
        return self._pipeline("Score", plan.jobs(), deadline)

    def explain(
        self,
        rollout: Rollout,
        options: ScoreOptions,
        deadline: Deadline,
        replies: list[pb.ExplainResponse],
    ) -> Pipeline[pb.ExplainResponse]:
        """Return the course of an ``Explain`` call; its reply goes into ``replies``."""
        request = encode_explain_request(rollout, options).SerializeToString()
        return self._pipeline("Explain", iter([Job(request, replies.append)]), deadline)

    def server_info(
        self, deadline: Deadline, replies: list[pb.ServerInfoResponse]
    ) -> Pipeline[pb.ServerInfoResponse]:
        """Return the course of a ``ServerInfo`` call; its reply goes into ``replies``."""
        request = pb.ServerInfoRequest(protocol_version=PROTOCOL_VERSION).SerializeToString()
        return self._pipeline("ServerInfo", iter([Job(request, replies.append)]), deadline)

    def read_server_info(self, reply: pb.ServerInfoResponse) -> ServerInfo:
        """Return what a server said about itself.

        Raises:
            IncompatibleServer: it speaks another protocol version.
        """
        if reply.protocol_version != PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server at {self.address} speaks protocol version"
                f" {reply.protocol_version}, this client speaks version {PROTOCOL_VERSION}"
            )
        return decode_server_info(reply)

    def _pipeline(self, method: str, jobs: Iterator[Job[R]], deadline: Deadline) -> Pipeline[R]:
        return Pipeline(
            jobs,
            context=f"{method} at {self.address}",
            deadline=deadline,
            policy=self.retry,
            max_in_flight=self.max_in_flight,
        )
