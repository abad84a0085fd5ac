"""What a failed attempt of a request means: whether and when it is made again, else what is raised.

``ERRORS`` is the table from gRPC status codes to the exceptions of ``consensuspr.errors``.  A
code that no server of ours sends can still come from a proxy between, or from another service
on that port; each therefore has its exception, and a test goes through all codes.

gRPC's own retries are off.  :class:`~consensuspr.client.calls.Pipeline` makes attempts as
:class:`RetryPolicy` says and as the caller's deadline allows; nothing else repeats a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from consensuspr.errors import (
    AccessDenied,
    DatasetMismatch,
    DeadlineExceeded,
    IncompatibleServer,
    InputError,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    ServerFault,
    Unavailable,
    UnknownDataset,
)
from consensuspr.v1 import DATASET_DIGEST_KEY, RETRY_AFTER_KEY

Code = grpc.StatusCode

ERRORS: dict[grpc.StatusCode, type[RewardServiceError]] = {
    Code.CANCELLED: Unavailable,  # by the server's end, or because this client was closed
    Code.UNKNOWN: ServerFault,
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.NOT_FOUND: UnknownDataset,
    Code.ALREADY_EXISTS: ServerFault,
    Code.PERMISSION_DENIED: AccessDenied,
    Code.UNAUTHENTICATED: AccessDenied,
    Code.RESOURCE_EXHAUSTED: Overloaded,
    Code.FAILED_PRECONDITION: IncompatibleServer,  # with a digest, DatasetMismatch
    Code.ABORTED: ServerFault,
    Code.OUT_OF_RANGE: InvalidRequest,
    Code.UNIMPLEMENTED: IncompatibleServer,
    Code.INTERNAL: ServerFault,
    Code.UNAVAILABLE: Unavailable,
    Code.DATA_LOSS: ServerFault,
}

_TLS_OPTIONS = "(--tls-ca, tls_ca or CONSENSUSPR_TLS_CA)"
# What gRPC says of a handshake that failed, and what a person has to know of it: no pause helps.
_NO_TRUST = (
    (
        "WRONG_VERSION_NUMBER",
        f"what listens there speaks no TLS; leave it out here {_TLS_OPTIONS}",
    ),
    (
        "has expired|not yet valid",
        "the server's certificate is not valid now; renew it, or set the clock right",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED.*(issuer|self.signed)",
        f"the server's certificate is signed by nobody who is trusted here {_TLS_OPTIONS}",
    ),
    (
        "[Hh]ostname [Vv]erification|[Pp]eer name .* is not in peer certificate",
        "the server's certificate is for another name than this address has",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate cannot be verified"),
    (
        "CERTIFICATE_REQUIRED|UNKNOWN_CA|BAD_CERTIFICATE|HANDSHAKE_FAILURE",
        "the server does not take this client's certificate (tls_cert or CONSENSUSPR_TLS_CERT)",
    ),
)

# What gRPC says of a connection that cannot be made, and what a person has to know of it.
_NO_CONNECTION = (
    (
        "Connection refused",
        "no server listens there; check the address, or start one with consensuspr serve",
    ),
    ("errors resolving|DNS|[Dd]omain name|lookup failed", "there is no host of that name"),
    ("No route to host|unreachable|[Tt]ime(d |)out", "the host cannot be reached"),
    ("http2 header with status|parsing HTTP/2|http1", "what listens there is no gRPC server"),
)
# Likewise; it may be ending, or what is in front of it may have nobody to ask.
_HANGS_UP = "(failed to connect|backends failing).*(Socket closed|Connection reset|recvmsg)"


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """A failed attempt: its code, the server's sentence, and what came with it.

    Attributes:
        retry_after_s: when to come back; None: it does not say.
        digest: of the dataset, where another one was expected.
        hangs_up: whether the server ended the connection before anything was said.
    """

    code: grpc.StatusCode
    details: str
    retry_after_s: float | None = None
    digest: str | None = None
    hangs_up: bool = False

    @classmethod
    def of(cls, error: Any) -> RpcFailure:
        """Read the failure of a call, of either kind of channel."""
        code, details = error.code(), error.details() or ""
        if code is Code.UNAVAILABLE:
            told = next((words for said, words in _NO_TRUST if re.search(said, details)), None)
            if told is not None:
                return cls(Code.UNAUTHENTICATED, told)
            if re.search(_HANGS_UP, details):
                return cls(code, "what listens there hangs up at once", hangs_up=True)
        if code in (Code.UNAVAILABLE, Code.UNIMPLEMENTED):
            plain = (words for said, words in _NO_CONNECTION if re.search(said, details))
            details = next(plain, details)
        metadata = dict(error.trailing_metadata() or ())
        return cls(code, details, _retry_after_s(metadata), metadata.get(DATASET_DIGEST_KEY))

    def explained(self, sentence: str | None) -> RpcFailure:
        """Return what it is, where that is known and no pause helps; None: this failure."""
        return self if sentence is None else RpcFailure(Code.UNAUTHENTICATED, sentence)

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

    @property
    def is_of_server(self) -> bool:
        """Whether another server of the same name may do what this one did not.

        While one after the other gets a new dataset, some have it and some do not.
        """
        return self.is_transient or self.digest is not None

    def exception(self, context: str) -> RewardServiceError:
        """Return the exception of this failure; ``context`` says which call it was."""
        message = f"{context}: {self.details or 'no details'} ({self.code.name})"
        error = ERRORS[self.code]
        if error is Overloaded:
            return Overloaded(message, retry_after_s=self.retry_after_s)
        if error is IncompatibleServer and self.digest is not None:
            return DatasetMismatch(message, self.digest)
        return error(message)


def _retry_after_s(metadata: Mapping[str, str | bytes]) -> float | None:
    try:
        return max(0, int(metadata[RETRY_AFTER_KEY])) / 1000
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait before an attempt is repeated.

    The wait is drawn evenly from nothing to ``initial_backoff_s`` doubled per failed
    attempt, at most ``max_backoff_s`` ("full jitter"): a thousand workers that lost one
    server do not come back in step.  A server's hint is waited out first.  Where another server
    is ready to take the request, the wait is that of a first attempt, and no hint counts.

    Attributes:
        initial_backoff_s: upper end of the first wait.
        max_backoff_s: upper end of any wait, without a hint.
        max_attempts: of one request; None: as many as the timeout allows.
    """

    initial_backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.initial_backoff_s <= self.max_backoff_s:
            raise InputError(
                f"initial_backoff_s must be in (0, max_backoff_s={self.max_backoff_s}],"
                f" got {self.initial_backoff_s}"
            )
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InputError(f"max_attempts must be at least 1, got {self.max_attempts}")

    def delay_s(
        self,
        attempts: int,
        failure: RpcFailure,
        uniform: Callable[[float, float], float],
        elsewhere: bool = False,
    ) -> float | None:
        """Return how long to wait after the ``attempts``-th attempt; None: do not repeat it.

        Args:
            attempts: so far.
            failure: of the last one.
            uniform: draws the random part.
            elsewhere: whether the next one goes to another server, which is ready.
        """
        again = failure.is_of_server if elsewhere else failure.is_transient
        if not again or attempts == self.max_attempts:
            return None
        if elsewhere:
            return uniform(0.0, self.initial_backoff_s)
        # 2 ** 30 times any sensible start is past any sensible end; more would overflow.
        ceiling = min(self.max_backoff_s, self.initial_backoff_s * 2 ** min(attempts - 1, 30))
        return (failure.retry_after_s or 0.0) + uniform(0.0, ceiling)
