"""Receiving the bodies of requests within bounds of size, memory and time.

What is being received is not admitted yet.  So that slow or many senders cannot fill the
memory before the admission sees them, all bodies under way in a worker are bounded together.
"""

from __future__ import annotations

import asyncio

import grpc
from starlette.requests import Request

from consensuspr.server.call import Abort

# A body that takes longer comes from a stuck sender; a hundred megabytes take a second.
RECEIVE_S = 120.0
RETRY_AFTER_S = 1.0


class TooLarge(Exception):
    """A body is larger than one may be; the text is the sentence for the sender."""


class Receiver:
    """Receives bodies on one event loop.

    Args:
        max_body_bytes: of one request.
        max_total_bytes: of all requests that are being received.
    """

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._receiving_bytes = 0

    async def receive(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            TooLarge: it is larger than allowed.
            Abort: too much is being received at the moment, or it takes too long.
            ClientDisconnect: the sender left.
        """
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            raise self._too_large(f"{announced} bytes")
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(RECEIVE_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._receiving_bytes += len(chunk)
                    chunks.append(chunk)
                    self._check(size)
        except TimeoutError:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the body was not received within {RECEIVE_S:g} s",
            ) from None
        finally:
            self._receiving_bytes -= size
        return b"".join(chunks)

    def _check(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise self._too_large("larger")
        # The only body under way is let through, as the admission does with requests.
        if size < self._receiving_bytes > self._max_total_bytes:
            raise Abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._receiving_bytes} bytes of requests are being received, more than the"
                f" limit of {self._max_total_bytes} bytes of this worker",
                RETRY_AFTER_S,
            )

    def _too_large(self, size: str) -> TooLarge:
        return TooLarge(f"a body has at most {self._max_body_bytes} bytes, this one is {size}")
