"""The servers of a client, and which of them gets the next request.

Servers of the same datasets hold no state, so any request may go to any of them.  Give a client
several addresses (``host1:50051,host2:50051``), or one name behind which they are
(``dns:///rewards:50051``), which gRPC resolves and balances itself.
"""

from __future__ import annotations

import ipaddress
import random
import threading
import time
from collections.abc import Callable, Sequence

from grpc import StatusCode

from consensuspr.client.retries import RpcFailure
from consensuspr.client.transport import check_target
from consensuspr.errors import InputError

# Pause of a server after a failure without a hint; gRPC reconnects every one to two seconds.
REST_S = 1.0

# Prefixes of gRPC's own lists of addresses.
_OWN_LISTS = ("ipv4:", "ipv6:")


def split_addresses(address: str) -> tuple[str, ...]:
    """Return the servers that an address names, at least one.

    Args:
        address: ``HOST:PORT`` or another target that gRPC resolves, or several, comma-separated.

    Raises:
        InputError: one of them is not an address, or is named twice.
    """
    if address.startswith(_OWN_LISTS):
        return (check_target(address),)
    servers = tuple(check_target(server.strip()) for server in address.split(","))
    for at, server in enumerate(servers):
        if server in servers[:at]:
            raise InputError(f"{server} is named twice in {address!r}")
    return servers


def is_local(address: str) -> bool:
    """Return whether the address of a server means this machine."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


class Balancer:
    """Picks the server with the fewest requests in flight; one that failed pauses.  Thread-safe.

    One that let a deadline pass gets a single request at a time until it answers one.
    """

    def __init__(
        self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.addresses = tuple(addresses)
        self._clock = clock
        self._lock = threading.Lock()
        self._in_flight = [0] * len(addresses)
        self._rests_until = [0.0] * len(addresses)
        self._silent = [False] * len(addresses)
        # Clients with one request each must not all begin with the same server.
        self._turn = random.randrange(len(addresses))

    def pick(self) -> int:
        """Return the number of the server that gets a request; :meth:`ended` is due for it."""
        with self._lock:
            now, count = self._clock(), len(self.addresses)

            def order(number: int) -> tuple[bool, float, int, int]:
                rest_s = max(0.0, self._rests_until[number] - now)
                turn = (number - self._turn) % count
                return self._is_tried(number), rest_s, self._in_flight[number], turn

            number = min(range(count), key=order)
            self._in_flight[number] += 1
            self._turn = number + 1
            return number

    def ended(self, number: int, outcome: bytes | RpcFailure | None) -> bool:
        """Count the end of a request.

        Args:
            number: of its server.
            outcome: the reply or the failure; None if it was abandoned.

        Returns:
            Whether another server can take the request now, if this one failed.
        """
        with self._lock:
            self._in_flight[number] -= 1
            if not isinstance(outcome, RpcFailure):
                self._silent[number] &= outcome is None
                return False
            if outcome.code is StatusCode.DEADLINE_EXCEEDED:  # it may hang
                self._silent[number] = True
            elif not outcome.is_of_server:
                return False
            now = self._clock()
            rest_s = REST_S if outcome.retry_after_s is None else outcome.retry_after_s
            self._rests_until[number] = max(self._rests_until[number], now + rest_s)
            return any(
                until <= now and not self._is_tried(other)
                for other, until in enumerate(self._rests_until)
            )

    def _is_tried(self, number: int) -> bool:
        """Return whether a request finds out now if a silent server answers again."""
        return self._silent[number] and self._in_flight[number] > 0
