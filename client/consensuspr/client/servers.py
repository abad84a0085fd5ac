"""The servers of a client, and which of them gets the next request.

One machine is not the limit of what a run can have scored: servers of the same datasets hold no
state, so that any request may go to any of them.  A client is given them in either of two ways.

- Several addresses (``host1:50051,host2:50051``): it has a connection to each, and
  :class:`Balancer` sends a request where the fewest of its own are on the way.  One that fails or
  refuses rests, and what it failed to do goes to another one at once.
- One name of several addresses (``dns:///rewards:50051``, a headless service of Kubernetes): gRPC
  resolves the name, again whenever a connection breaks, and takes them in turn.

Both together work too: each of several names is balanced by gRPC below the balancing here.

Rejected: gRPC's own list (``ipv4:10.0.0.1:50051,10.0.0.2:50051``) as the only way.  It is taken,
but knows no names, and so neither certificates of names nor hosts whose address changes; its
turns are blind to how busy a server is; and a server that refuses stays in them.

Not covered: servers that join while the client lives, but behind a name, and weights: a server of
twice the speed has its requests back twice as soon, and with that gets twice as many.
"""

from __future__ import annotations

import ipaddress
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpc import StatusCode

from consensuspr.client.retries import RpcFailure
from consensuspr.client.transport import check_target
from consensuspr.errors import InputError

# After a failure without a hint.  gRPC tries to reach a server again every one to two seconds; a
# request that comes before only fails at once, and goes to another server.
REST_S = 1.0

# What gRPC itself reads as several addresses of one target.
_OWN_LISTS = ("ipv4:", "ipv6:")


def split_addresses(address: str) -> tuple[str, ...]:
    """Return the servers that an address names, at least one.

    Args:
        address: ``HOST:PORT`` or any other target that gRPC resolves, or several of them with
            commas between.

    Raises:
        InputError: one of them cannot be an address, or is named twice.
    """
    if address.startswith(_OWN_LISTS):
        return (check_target(address),)
    servers = tuple(check_target(one.strip()) for one in address.split(","))
    for at, one in enumerate(servers):
        if one in servers[:at]:
            raise InputError(f"{one} is named twice in {address!r}")
    return servers


def is_local(address: str) -> bool:
    """Tell whether the address of a server means the machine that uses it."""
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


@dataclass(slots=True)
class _Server:
    """What a client knows of a server.

    Attributes:
        in_flight: requests of this client that are on the way.
        rests_until: ``clock()`` before which it gets none while another one is there.
        failing: it has answered nothing since its last failure; it then gets one at a time.
    """

    in_flight: int = 0
    rests_until: float = 0.0
    failing: bool = False

    def is_ready(self, now: float) -> bool:
        return now >= self.rests_until and not (self.failing and self.in_flight)


class Balancer:
    """Says which server gets a request; shared by all calls of a client, for any thread.

    Args:
        addresses: of the servers, at least one.
        clock: of the rests.
    """

    def __init__(
        self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.addresses = tuple(addresses)
        self._clock = clock
        self._lock = threading.Lock()
        self._servers = [_Server() for _ in addresses]
        # Clients that have a request each would all begin with the same server.
        self._turn = random.randrange(len(addresses))

    def pick(self) -> int:
        """Return the number of the server that gets a request, which counts from now."""
        if len(self._servers) == 1:
            return 0
        with self._lock:
            now = self._clock()
            turn = self._turn

            def order(number: int) -> tuple[bool, float, int, int]:
                server = self._servers[number]
                ready = server.is_ready(now)
                # Where none is ready, the one that has rested longest.
                rest = 0.0 if ready else server.rests_until
                return not ready, rest, server.in_flight, (number - turn) % len(self._servers)

            number = min(range(len(self._servers)), key=order)
            self._servers[number].in_flight += 1
            self._turn = number + 1
            return number

    def leave(self, number: int) -> None:
        """Say that nobody waits for a request any more."""
        if len(self._servers) > 1:
            with self._lock:
                self._servers[number].in_flight -= 1

    def ended(self, number: int, failure: RpcFailure | None = None) -> bool:
        """Take the end of a request.

        Args:
            number: of its server.
            failure: how it failed; None where it was answered.

        Returns:
            Whether another server is ready to take it, where it failed for now.
        """
        if len(self._servers) == 1:
            return False
        with self._lock:
            server = self._servers[number]
            server.in_flight -= 1
            # Time that passed may mean that it hangs.
            late = failure is not None and failure.code is StatusCode.DEADLINE_EXCEEDED
            if failure is None or not (failure.is_of_server or late):
                server.failing = False
                return False
            now = self._clock()
            rest_s = REST_S if failure.retry_after_s is None else failure.retry_after_s
            server.rests_until = max(server.rests_until, now + rest_s)
            # One that refuses is there; one that cannot be reached is tried with one request.
            server.failing = late or failure.code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
            return any(one.is_ready(now) for one in self._servers)
