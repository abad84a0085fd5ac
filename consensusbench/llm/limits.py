"""What asking may spend, and how fast: a budget for all models, a pace for each.

A request reserves the most that it can take before it is sent and is charged what it took
afterwards, so that many requests in flight cannot run past a limit together.  Where a reply has
a limit of tokens, no limit of the budget is ever exceeded (unless a server writes more than it
was allowed to); where it has none, the largest reply so far stands for it.

Both belong to one event loop; no lock is needed, because nothing here awaits between look and
change.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consensusbench.llm.types import Message, Reply
from consensuspr.errors import BudgetSpent, InputError

# What chat templates put around a message; none of the common ones comes near it.
TEMPLATE_TOKENS = 64
# English and mathematics have 3 to 4.5 bytes a token in the tokenizers of current models.
BYTES_PER_TOKEN = 3


def most_tokens(messages: Sequence[Message]) -> int:
    """Return a bound: no byte-level tokenizer makes more than one token of a byte."""
    return sum(_bytes(message.content) + TEMPLATE_TOKENS for message in messages)


def likely_tokens(text: str) -> int:
    """Return an estimate on the high side, for where a server does not count."""
    return -(-_bytes(text) // BYTES_PER_TOKEN)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class Spent:
    """What was spent, or is reserved."""

    cost: float = 0.0  # US dollars, of models with a price
    requests: int = 0  # sent, failed ones included
    tokens: int = 0  # of prompts and replies, estimated where a server did not count

    def add(self, other: Spent, sign: int = 1) -> None:
        """Add another account, or take it off."""
        self.cost += sign * other.cost
        self.requests += sign * other.requests
        self.tokens += sign * other.tokens


def spent_on(reply: Reply) -> Spent:
    """Return what a reply took, the attempts before it that failed included."""
    return Spent(reply.spent_cost, reply.attempts, reply.spent_tokens)


class Budget:
    """What may be spent in all, and the switch that ends all asking.

    Args:
        max_cost: US dollars; None: no limit.
        max_requests: requests sent, repeated ones included.
        max_tokens: of prompts and replies together.

    Raises:
        InputError: a limit is negative or no number.
    """

    def __init__(
        self,
        max_cost: float | None = None,
        max_requests: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        limits = {"max_cost": max_cost, "max_requests": max_requests, "max_tokens": max_tokens}
        for name, limit in limits.items():
            if limit is not None and not 0 <= limit < math.inf:
                raise InputError(f"{name} must be 0 or more, got {limit!r}")
        self.max_cost = max_cost
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.spent = Spent()
        self._reserved = Spent()
        self._stopped: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def in_flight(self) -> int:
        """Requests that hold a reservation."""
        return self._reserved.requests

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped is not None

    def charge_earlier(self, spent: Spent) -> None:
        """Count what an earlier run of the same work spent."""
        self.spent.add(spent)

    async def reserve(self, most: Spent) -> None:
        """Set aside the most that one request can take; wait while others may give some back.

        Raises:
            BudgetSpent: it does not fit although nothing is in flight, or asking was stopped.
        """
        while True:
            self._refuse_if_stopped()
            reason = self._over(most)
            if reason is None:
                self._reserved.add(most)
                return
            if self._reserved.requests == 0:
                raise BudgetSpent(reason)
            await self._change(None)

    def settle(self, most: Spent, taken: Spent) -> None:
        """Replace a reservation by what the request took."""
        self._reserved.add(most, -1)
        self.spent.add(taken)
        self._wake()

    def stop(self, reason: str) -> None:
        """Let no further request begin; those in flight go on."""
        self._stopped = self._stopped or reason
        self._wake()

    async def pause(self, seconds: float) -> None:
        """Sleep, but not past :meth:`stop`.

        Raises:
            BudgetSpent: asking was stopped before or meanwhile.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            self._refuse_if_stopped()
            await self._change(left)
        self._refuse_if_stopped()

    def _refuse_if_stopped(self) -> None:
        if self._stopped is not None:
            raise BudgetSpent(self._stopped)

    def _over(self, most: Spent) -> str | None:
        """Return which limit the request would exceed."""
        cost = self.spent.cost + self._reserved.cost + most.cost
        # Sums of floats: a limit that is met exactly must not be missed by rounding.
        if self.max_cost is not None and cost > self.max_cost * (1 + 1e-9):
            return (
                f"the limit of ${self.max_cost:g} leaves no further request: "
                f"${self.spent.cost:.4f} is spent and one may take ${most.cost:.4f}"
            )
        requests = self.spent.requests + self._reserved.requests + most.requests
        if self.max_requests is not None and requests > self.max_requests:
            return f"the limit of {self.max_requests:,} requests is reached"
        tokens = self.spent.tokens + self._reserved.tokens + most.tokens
        if self.max_tokens is not None and tokens > self.max_tokens:
            return (
                f"the limit of {self.max_tokens:,} tokens leaves no further request: "
                f"{self.spent.tokens:,} are spent and one may take {most.tokens:,}"
            )
        return None

    async def _change(self, timeout_s: float | None) -> None:
        """Wait until something is settled or stopped, or the time is over."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait((future,), timeout=timeout_s)
        finally:
            self._waiting.discard(future)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class Pace:
    """Requests of one model spaced out so that its limits a minute are kept.

    Each request books the next free moment of two clocks, one that advances by a request and one
    that advances by tokens; there are no bursts, since servers count in windows of their own.  How
    many tokens a reply will take is not known before: a booking uses the mean so far and is put
    right when the reply is there.  A server's ``Retry-After`` holds both clocks, so that not every
    request in flight has to be told.

    Args:
        requests_per_minute: None: no limit.
        tokens_per_minute: None: no limit.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token_s = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._next_request = self._next_tokens = self._held_until = clock()

    def book(self, tokens: int) -> float:
        """Book the next free moment for a request of so many tokens; return the seconds to it."""
        now = self._clock()
        start = max(now, self._next_request, self._next_tokens, self._held_until)
        self._next_request = start + self._per_request_s
        self._next_tokens = start + tokens * self._per_token_s
        return start - now

    def correct(self, booked: int, taken: int) -> None:
        """Put a booking right once it is known how many tokens it took."""
        self._next_tokens += (taken - booked) * self._per_token_s

    def hold(self, seconds: float) -> None:
        """Let no request begin for so long."""
        self._held_until = max(self._held_until, self._clock() + seconds)
