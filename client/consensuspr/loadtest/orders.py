"""What the processes of a load test say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from consensuspr.loadtest.load import Load
from consensuspr.loadtest.settings import Settings
from consensuspr.loadtest.tally import Tally
from consensuspr.scoring.types import Rollout, Score


@dataclass(frozen=True, slots=True)
class Setup:
    """What a load process is made with.

    Attributes:
        settings: of the load test.
        rollouts: to send.
        number: of the process, from 0.
        processes: of the load test.
        connections: of this process, at least 1.
    """

    settings: Settings
    rollouts: tuple[Rollout, ...]
    number: int
    processes: int
    connections: int


@dataclass(frozen=True, slots=True)
class Start:
    """Carry out a run.

    Attributes:
        at: the end of the warm-up on the system's monotonic clock, the same for all processes.
        load: open loop; None: a closed one.
        concurrency: of this process in a closed loop.
        first: number of this process's first request of a closed loop.
        requests: measured requests: of all processes in an open loop, of this one in a closed
            loop; None: no limit.
    """

    at: float
    load: Load | None
    concurrency: int
    first: int
    requests: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run now: send nothing more, and give up what is in flight."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is connected and waits for a run."""


@dataclass(frozen=True, slots=True)
class Part:
    """What became of requests since the last part.

    Attributes:
        tally: of them.
        in_flight: requests that were sent and not answered, now.
    """

    tally: Tally
    in_flight: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A score that came back, and which rollout of the pool it is said to be of."""

    position: int
    score: Score


@dataclass(frozen=True, slots=True)
class Done:
    """A run is over.

    Attributes:
        cpu_s: processor time that the process took.
        wall_s: how long the run was, warm-up included.
        samples: scores to compare.
    """

    cpu_s: float
    wall_s: float
    samples: tuple[Sample, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Failed:
    """The process cannot go on."""

    error: Exception


Order = Start | Stop | Quit
Report = Ready | Part | Done | Failed
