"""One RPC as the working thread sees it: its deadline, its caller, and how it is refused."""

from __future__ import annotations

import time

import grpc


class Abort(Exception):
    """End the RPC with a status code and one sentence.

    Attributes:
        code: any but OK.
        retry_after_s: when to come back, sent as metadata ``retry-after-ms``; None: no hint.
    """

    def __init__(
        self, code: grpc.StatusCode, message: str, retry_after_s: float | None = None
    ) -> None:
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Call:
    """The part of an RPC that work depends on; set on the event loop, read by a thread.

    Args:
        deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
    """

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._abandoned = False

    def abandon(self) -> None:
        """Say that nobody waits for the result any more."""
        self._abandoned = True

    def check(self) -> None:
        """Return while somebody still waits for the result.

        Raises:
            Abort: the deadline passed, or the caller left.
        """
        if self._abandoned:
            raise Abort(grpc.StatusCode.CANCELLED, "the caller left")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "the caller's deadline passed before the work was done; it was abandoned",
            )
