"""What a load test is told, checked."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from enum import StrEnum

from consensuspr.client.retry import RetryPolicy
from consensuspr.errors import InputError
from consensuspr.loadtest.load import Arrivals, Load, LoadShape
from consensuspr.wire.info import ServerInfo
from consensuspr.wire.options import ScoreOptions

MAX_PROCESSES = 64
MAX_CONNECTIONS = 1024
MAX_CONCURRENCY = 65_536
MAX_DURATION_S = 24 * 3600.0
DEFAULT_DURATION_S = 10.0
# Where only a number of requests is given: so that a server that answers none ends it too.
REQUESTS_DURATION_S = 3600.0

# Reward workers of verl by default, each with a connection of its own.
DEFAULT_CONNECTIONS = 8
DEFAULT_CONCURRENCY = 8
DEFAULT_BATCH = 64
DEFAULT_STEPS = 5

# What all requests in flight may take together: gRPC holds a copy of each.
IN_FLIGHT_BYTES = 256 << 20
IN_FLIGHT_REQUESTS = 4096


class Profile(StrEnum):
    """What a request is."""

    BATCH = "batch"
    VERL = "verl"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is loaded.

    Attributes:
        address: ``HOST:PORT``; nothing is sent anywhere else.
        profile: whole batches, each a request; or single samples through the client that
            verl's reward loop uses, which sends those that wait together.
        batch: rollouts in a request of ``batch``.
        rate: requests a second at the start; None: a closed loop.
        arrivals: how the times of requests are spread.
        shape: how the rate moves.
        rate_end: at the end, where it moves.
        steps: rates of a stepped load.
        concurrency: requests at a time of a closed loop.
        duration_s: of the measured part at most.
        requests: measured requests at most; None: no limit.
        warmup_s: before the measured part.
        processes: that send.
        connections: of all processes together.
        timeout_s: of a request, from when it is due, retries included.
        retries: of a request; None: as many as its timeout allows.
        check: share of the replies that are compared with the in-process scorer, in [0, 1].
        seed: of arrivals, texts and the sample.
        options: how the server is to score.

    Raises:
        InputError: a value is out of its range, or two do not go together.
    """

    address: str
    profile: Profile = Profile.BATCH
    batch: int = DEFAULT_BATCH
    rate: float | None = None
    arrivals: Arrivals = Arrivals.CONSTANT
    shape: LoadShape = LoadShape.CONSTANT
    rate_end: float | None = None
    steps: int = DEFAULT_STEPS
    concurrency: int = DEFAULT_CONCURRENCY
    duration_s: float = DEFAULT_DURATION_S
    requests: int | None = None
    warmup_s: float = 1.0
    processes: int = 1
    connections: int = DEFAULT_CONNECTIONS
    timeout_s: float = 30.0
    retries: int | None = 0
    check: float = 0.01
    seed: int = 0
    options: ScoreOptions = field(default_factory=ScoreOptions)

    def __post_init__(self) -> None:
        for option, count, limit in (
            ("batch", self.batch, None),
            ("concurrency", self.concurrency, MAX_CONCURRENCY),
            ("requests", self.requests, None),
            ("processes", self.processes, MAX_PROCESSES),
            ("connections", self.connections, MAX_CONNECTIONS),
        ):
            if count is not None and (count < 1 or (limit is not None and count > limit)):
                allowed = "at least 1" if limit is None else f"in [1, {limit}]"
                raise InputError(f"--{option} must be {allowed}, got {count}")
        for option, seconds, least in (
            ("duration", self.duration_s, 0.1),
            ("warmup", self.warmup_s, 0.0),
            ("timeout", self.timeout_s, 0.001),
        ):
            if not least <= seconds <= MAX_DURATION_S:
                raise InputError(
                    f"--{option} must be in [{least:g}, {MAX_DURATION_S:g}] seconds,"
                    f" got {seconds:g}"
                )
        if not 0 <= self.check <= 1:
            raise InputError(f"--check must be a share in [0, 1], got {self.check:g}")
        if self.retries is not None and self.retries < 0:
            raise InputError(f"--retries must be at least 0, got {self.retries}")
        if self.rate is None and self.shape is not LoadShape.CONSTANT:
            raise InputError(f"--load {self.shape} needs --rate; a closed loop has no rate")
        if self.rate is None and self.rate_end is not None:
            raise InputError(
                "--rate-end goes with --rate and --load step or ramp, which are not given"
            )
        self.load()

    def load(self) -> Load | None:
        """Return the rate over time; None for a closed loop."""
        if self.rate is None:
            return None
        return Load.of(
            self.shape, self.rate, self.rate_end, self.steps, self.duration_s, self.warmup_s
        )

    @property
    def policy(self) -> RetryPolicy:
        """When a failed attempt is repeated."""
        return RetryPolicy(max_attempts=None if self.retries is None else self.retries + 1)

    @property
    def rollouts_per_request(self) -> int:
        """Rollouts in what is timed."""
        return self.batch if self.profile is Profile.BATCH else 1

    def check_against(self, server: ServerInfo, request_bytes: int) -> None:
        """Refuse what one request of that server cannot carry.

        Args:
            server: its limits.
            request_bytes: of the responses of the largest request.

        Raises:
            InputError: the batch is larger than the server takes.
        """
        if self.profile is Profile.BATCH and self.batch > server.max_rollouts:
            raise InputError(
                f"--batch must be at most {server.max_rollouts}, which is what the server takes"
                f" in one request, got {self.batch}"
            )
        if self.profile is Profile.BATCH and request_bytes > server.max_message_bytes:
            raise InputError(
                f"--batch {self.batch} makes a request of {request_bytes:,} bytes; the server takes"
                f" at most {server.max_message_bytes:,}"
            )


def default_processes() -> int:
    """Return how many processes send where nobody says it: half the cores, at most 4.

    The other half is for the server, which is often on the same machine.
    """
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def in_flight_limit(request_bytes: float, processes: int) -> int:
    """Return how many requests one process may have in flight.

    Args:
        request_bytes: mean size of a request.
        processes: that share the machine's memory.
    """
    by_bytes = math.floor(IN_FLIGHT_BYTES / max(1.0, request_bytes))
    return max(1, min(IN_FLIGHT_REQUESTS, by_bytes) // processes)
