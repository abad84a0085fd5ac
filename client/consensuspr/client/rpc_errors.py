"""From gRPC status codes to the exceptions of ``consensuspr.errors``: one table.

A code that no server of ours sends can still come from a proxy between, or from another
service on that port; each therefore has its exception, and a test goes through all codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from consensuspr.errors import (
    DeadlineExceeded,
    IncompatibleServer,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    ServerFault,
    Unavailable,
)

RETRY_AFTER_KEY = "retry-after-ms"

Code = grpc.StatusCode

ERRORS: dict[grpc.StatusCode, type[RewardServiceError]] = {
    Code.CANCELLED: Unavailable,  # by the server's end, or because this client was closed
    Code.UNKNOWN: ServerFault,
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.NOT_FOUND: InvalidRequest,
    Code.ALREADY_EXISTS: ServerFault,
    Code.PERMISSION_DENIED: InvalidRequest,
    Code.UNAUTHENTICATED: InvalidRequest,
    Code.RESOURCE_EXHAUSTED: Overloaded,
    Code.FAILED_PRECONDITION: IncompatibleServer,
    Code.ABORTED: ServerFault,
    Code.OUT_OF_RANGE: InvalidRequest,
    Code.UNIMPLEMENTED: IncompatibleServer,
    Code.INTERNAL: ServerFault,
    Code.UNAVAILABLE: Unavailable,
    Code.DATA_LOSS: ServerFault,
}


class RpcErrorLike(Protocol):
    """What is used of a failed call; gRPC's two kinds of failed calls share it."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """A failed attempt: its code, the server's sentence, and when to come back."""

    code: grpc.StatusCode
    details: str
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: RpcErrorLike) -> RpcFailure:
        """Read the failure of a call."""
        return cls(error.code(), error.details() or "", _retry_after_s(error))

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later.

        Scoring is a pure function, so that repeating a call is always safe.  A refusal
        without a hint is not for load (a message above the limit) and will not go away.  A
        request that reaches a server in the moment in which it ends is CANCELLED; so is one
        whose client was closed, which the client itself knows.
        """
        if self.code is Code.RESOURCE_EXHAUSTED:
            return self.retry_after_s is not None
        return self.code in (Code.UNAVAILABLE, Code.CANCELLED)

    def exception(self, context: str) -> RewardServiceError:
        """Return the exception of this failure; ``context`` says which call it was."""
        message = f"{context}: {self.details or 'no details'} ({self.code.name})"
        error = ERRORS[self.code]
        if error is Overloaded:
            return Overloaded(message, retry_after_s=self.retry_after_s)
        return error(message)


def _retry_after_s(error: RpcErrorLike) -> float | None:
    for key, value in error.trailing_metadata() or ():
        if key == RETRY_AFTER_KEY:
            try:
                return max(0, int(value)) / 1000
            except ValueError:
                return None
    return None
