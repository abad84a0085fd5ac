"""How gRPC failures become exceptions, and when a failed request is repeated."""

from __future__ import annotations

import re
from collections.abc import Callable
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

# Any other code is a ServerFault.
ERRORS: dict[grpc.StatusCode, type[RewardServiceError]] = {
    Code.CANCELLED: Unavailable,  # by the server's end, or because this client was closed
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.NOT_FOUND: UnknownDataset,
    Code.PERMISSION_DENIED: AccessDenied,
    Code.UNAUTHENTICATED: AccessDenied,
    Code.RESOURCE_EXHAUSTED: Overloaded,
    Code.FAILED_PRECONDITION: IncompatibleServer,  # with a digest, DatasetMismatch
    Code.OUT_OF_RANGE: InvalidRequest,
    Code.UNIMPLEMENTED: IncompatibleServer,
    Code.UNAVAILABLE: Unavailable,
}

_TLS_OPTIONS = "(--tls-ca, tls_ca or CONSENSUSPR_TLS_CA)"
# gRPC's text for a failed TLS handshake, and the sentence for a user.  Retries do not help.
_NO_TRUST = (
    ("WRONG_VERSION_NUMBER", f"the server does not speak TLS; leave it out {_TLS_OPTIONS}"),
    ("has expired|not yet valid", "the server's certificate is not valid now"),
    (
        "CERTIFICATE_VERIFY_FAILED.*(issuer|self.signed)",
        f"the server's certificate is not signed by a trusted authority {_TLS_OPTIONS}",
    ),
    (
        "[Hh]ostname [Vv]erification|[Pp]eer name .* is not in peer certificate",
        "the server's certificate is for another name than this address has",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate cannot be verified"),
    (
        "CERTIFICATE_REQUIRED|UNKNOWN_CA|BAD_CERTIFICATE|HANDSHAKE_FAILURE",
        "the server does not accept this client's certificate"
        " (tls_cert or CONSENSUSPR_TLS_CERT, with its key)",
    ),
)
_NO_CONNECTION = (
    (
        "Connection refused",
        "no server listens there; check the address, or start one with consensuspr serve",
    ),
    ("errors resolving|DNS|[Dd]omain name|lookup failed", "there is no host of that name"),
    ("No route to host|unreachable|[Tt]ime(d |)out", "the host cannot be reached"),
    ("http2 header with status|parsing HTTP/2|http1", "the server there does not speak gRPC"),
    (
        "(failed to connect|backends failing).*(Socket closed|Connection reset|recvmsg)",
        "the server hangs up at once; it may require TLS (--tls-ca, tls_ca, CONSENSUSPR_TLS_CA or"
        " CONSENSUSPR_TLS=1) or a client's certificate (tls_cert or CONSENSUSPR_TLS_CERT)",
    ),
)


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """A failed attempt.

    Attributes:
        details: the server's or gRPC's sentence.
        retry_after_s: the server's hint; None: it gave none.
        digest: of the dataset, if another one was expected.
    """

    code: grpc.StatusCode
    details: str
    retry_after_s: float | None = None
    digest: str | None = None

    @classmethod
    def of(cls, error: Any) -> RpcFailure:
        """Read the failure of a call."""
        code, details = error.code(), error.details() or ""
        if code in (Code.UNAVAILABLE, Code.UNIMPLEMENTED):
            for pattern, sentence in _NO_TRUST if code is Code.UNAVAILABLE else ():
                if re.search(pattern, details):
                    return cls(Code.UNAUTHENTICATED, sentence)
            plain = (text for pattern, text in _NO_CONNECTION if re.search(pattern, details))
            details = next(plain, details)
        metadata = dict(error.trailing_metadata() or ())
        try:
            retry_after_s = max(0, int(metadata[RETRY_AFTER_KEY])) / 1000
        except (KeyError, ValueError):
            retry_after_s = None
        return cls(code, details, retry_after_s, metadata.get(DATASET_DIGEST_KEY))

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later.

        A refusal without a hint is not because of load (a message above the limit).
        """
        if self.code is Code.RESOURCE_EXHAUSTED:
            return self.retry_after_s is not None
        return self.code in (Code.UNAVAILABLE, Code.CANCELLED)

    @property
    def is_of_server(self) -> bool:
        """Whether another server may succeed; one may not have a new dataset yet."""
        return self.is_transient or self.digest is not None

    def exception(self, context: str, note: str = "") -> RewardServiceError:
        """Return the exception of this failure.

        Args:
            context: the call.
            note: on its attempts, after a comma.
        """
        message = f"{context}: {self.details or 'no details'} ({self.code.name}{note})"
        error = ERRORS.get(self.code, ServerFault)
        if error is Overloaded:
            return Overloaded(message, retry_after_s=self.retry_after_s)
        if error is IncompatibleServer and self.digest is not None:
            return DatasetMismatch(message, self.digest)
        return error(message)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait before an attempt is repeated.

    The wait is random between 0 and ``initial_backoff_s``, doubled per failed attempt up to
    ``max_backoff_s``, after the server's hint.

    Attributes:
        initial_backoff_s: upper end of the first wait.
        max_backoff_s: upper end of any wait, without the hint.
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
        """Return the wait after the ``attempts``-th attempt; None: do not repeat it.

        Args:
            attempts: so far.
            failure: of the last one.
            uniform: draws the random part.
            elsewhere: whether another server is ready, for which a hint does not count.
        """
        again = failure.is_of_server if elsewhere else failure.is_transient
        if not again or attempts == self.max_attempts:
            return None
        if elsewhere:
            return uniform(0.0, self.initial_backoff_s)
        # A larger exponent would overflow.
        ceiling = min(self.max_backoff_s, self.initial_backoff_s * 2 ** min(attempts - 1, 30))
        return (failure.retry_after_s or 0.0) + uniform(0.0, ceiling)
