"""One connection of a client: its target and channel options, and what a failed RPC means.

``ERRORS`` is the table from gRPC status codes to the exceptions of ``consensuspr.errors``.  A
code that no server of ours sends can still come from a proxy between, or from another service
on that port; each therefore has its exception, and a test goes through all codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc

from consensuspr.errors import (
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
from consensuspr.v1 import RETRY_AFTER_KEY

# A trainer's client may be silent for the minutes of a policy update; a firewall that drops
# such a connection would otherwise be noticed only by the next call's timeout.
KEEPALIVE_S = 30
KEEPALIVE_TIMEOUT_S = 10
# gRPC's own ceiling is two minutes: a server that came back would go unnoticed that long.
MAX_RECONNECT_BACKOFF_S = 2
MAX_PORT = 65_535
# More than a client's requests take that are under way.  glibc learns from up to 32 MiB.
_KEPT_BYTES = 16 << 20

Code = grpc.StatusCode

ERRORS: dict[grpc.StatusCode, type[RewardServiceError]] = {
    Code.CANCELLED: Unavailable,  # by the server's end, or because this client was closed
    Code.UNKNOWN: ServerFault,
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.NOT_FOUND: UnknownDataset,
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

# What gRPC says of a connection that cannot be made, and what a person has to know of it.
_NO_CONNECTION = (
    ("Connection refused", "no server listens there"),
    ("errors resolving|DNS|[Dd]omain name|lookup failed", "there is no host of that name"),
    ("No route to host|unreachable|[Tt]ime(d |)out", "the host cannot be reached"),
    ("http2 header with status|parsing HTTP/2|http1", "what listens there is no gRPC server"),
)


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """A failed attempt: its code, the server's sentence, and when to come back."""

    code: grpc.StatusCode
    details: str
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: Any) -> RpcFailure:
        """Read the failure of a call, of either kind of channel."""
        code, details = error.code(), error.details() or ""
        if code in (Code.UNAVAILABLE, Code.UNIMPLEMENTED):
            plain = (words for said, words in _NO_CONNECTION if re.search(said, details))
            details = next(plain, details)
        return cls(code, details, _retry_after_s(error.trailing_metadata() or ()))

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


def _retry_after_s(metadata: Iterable[tuple[str, str | bytes]]) -> float | None:
    for key, value in metadata:
        if key == RETRY_AFTER_KEY:
            try:
                return max(0, int(value)) / 1000
            except ValueError:
                return None
    return None


def channel_options() -> list[tuple[str, int]]:
    """Return the options of a client's channel.

    Message sizes are not limited here: the server says what it takes, and replies are as
    large as what was asked for.  gRPC's own retries are off, so that there is one place
    that repeats a call.
    """
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_retries", 0),
        # Clients of one process would share a connection, and with it one worker process.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_BACKOFF_S * 1000),
        ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


@cache
def keep_freed_memory() -> None:
    """Have the memory of a call's messages kept for the next call, where glibc allows it.

    It hands large blocks back to the system as they are freed, and the system zeroes each page
    of the next ones, which costs a client a third of its time.  How large they have to be, it
    learns from what it sees freed: here from a block that is never touched.  Twice as much may
    stay with each of its arenas (about one a thread).  What the environment of the process says
    (``MALLOC_TRIM_THRESHOLD_``) has precedence.
    """
    bytes(_KEPT_BYTES)


def check_target(address: str) -> str:
    """Return the address if a channel can be made to it.

    Args:
        address: ``HOST:PORT``, or any other target that gRPC resolves.

    Raises:
        InputError: it is empty, names no port, or names one that does not exist; gRPC would
            take such a number modulo 65,536 and call a stranger.
    """
    if ":" not in address:
        raise InputError(f"address must be HOST:PORT, got {address!r}")
    port = address.rpartition(":")[2]
    if port.isascii() and port.isdigit() and int(port) > MAX_PORT:
        raise InputError(f"port must be at most {MAX_PORT}, got {port} in {address!r}")
    return address
