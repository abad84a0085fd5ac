"""What a load test can be told: names, defaults, ranges, and what goes together, once."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, ValidationInfo, model_validator

from consensuspr.settings import Settings

MAX_PROCESSES = 64
MAX_DURATION_S = 24 * 3600.0
# Where only a number of requests is given: so that a server that answers none ends it too.
REQUESTS_DURATION_S = 3600.0

# Of the bins in which a run is seen over time: a search's windows are whole numbers of them.
FIRST_BIN_S = 0.25
MAX_BINS = 512
# Of a step of a search for the highest sustained rate.
MAX_WINDOWS = 8
# Replies of a window's requests that may still be on their way when it is looked at.
GRACE_S = 0.5
MIN_WINDOW_S = 2 * FIRST_BIN_S
# All windows of a step are to be seen in the narrowest bins.
MAX_WINDOW_S = int((MAX_BINS * FIRST_BIN_S - GRACE_S - 1) / MAX_WINDOWS)


class Profile(StrEnum):
    """What a request is."""

    BATCH = "batch"
    VERL = "verl"


class Arrivals(StrEnum):
    """How the times of requests are spread."""

    CONSTANT = "constant"
    POISSON = "poisson"


class LoadShape(StrEnum):
    """How the rate moves during a run."""

    CONSTANT = "constant"
    STEP = "step"
    RAMP = "ramp"


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


def default_processes() -> int:
    """Return how many processes send where nobody says it: half the cores, at most 4.

    The other half is for the server, which is often on the same machine.
    """
    return max(1, min(4, (os.cpu_count() or 1) // 2))


class LoadSettings(Settings):
    """How a server is loaded, and what it must keep."""

    profile: Profile = Field(
        Profile.BATCH,
        description="Whole batches, or single samples through the client of verl's reward loop.",
    )
    batch: Count = Field(64, description="Rollouts in a request of the profile batch.")
    rate: Rate | None = Field(
        None, description="Open loop: requests a second (samples, in the profile verl)."
    )
    arrivals: Arrivals = Field(
        Arrivals.CONSTANT,
        description="Open loop, or search: requests evenly spread, or as independent callers.",
    )
    load: LoadShape = Field(
        LoadShape.CONSTANT,
        description="Open loop: how the rate goes to rate_end, in equal steps or evenly.",
    )
    rate_end: Rate | None = Field(None, description="Rate at the end of step and ramp.")
    steps: int = Field(5, ge=2, description="Rates of step, first and last included.")
    concurrency: int = Field(8, ge=1, le=65_536, description="Closed loop: requests at a time.")
    duration: float = Field(
        10.0,
        ge=0.1,
        le=MAX_DURATION_S,
        description="End after these seconds; where only requests is given, after an hour.",
    )
    requests: Count | None = Field(None, description="End after so many requests.")
    warmup: float = Field(
        1.0,
        ge=0,
        le=MAX_DURATION_S,
        description="Seconds of load before the measured part, counted nowhere; they begin when"
        " each connection was answered once. 0: neither.",
    )
    find_saturation: bool = Field(
        False, description="Search for the highest rate that is sustained."
    )
    max_p99: Annotated[float, Field(gt=0)] | None = Field(
        None, description="p99 in milliseconds that a sustained rate may have."
    )
    window: float = Field(
        2.0,
        ge=MIN_WINDOW_S,
        le=MAX_WINDOW_S,
        multiple_of=FIRST_BIN_S,
        description="Of the search: seconds of a window of a step.",
    )
    max_error_rate: Share = Field(0.01, description="Errors above this share fail the test.")
    max_undecided: Share = Field(
        0.05,
        description="Compared scores above this share with an answer that the server left"
        " undecided and the in-process scorer did not fail the test.",
    )
    check: Share = Field(
        0.01, description="Share of replies to compare with the in-process scorer; 0: none."
    )
    processes: int = Field(
        default_factory=default_processes,
        ge=1,
        le=MAX_PROCESSES,
        description="Processes that send; where not set, half the cores, at most 4.",
    )
    # As verl's reward workers by default, each with a connection of its own.
    connections: int = Field(8, ge=1, le=1024, description="Connections of all processes together.")
    timeout: float = Field(
        30.0,
        ge=0.001,
        le=MAX_DURATION_S,
        description="Seconds of a request, from when it is due, with retries.",
    )
    retries: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Repetitions of a refused or lost request; where not set, none, and in the"
        " profile verl as many as the timeout allows, as in training.",
    )
    seed: int = Field(0, description="Of made-up texts, arrivals and the replies compared.")

    @model_validator(mode="after")
    def _check_together(self, info: ValidationInfo) -> Self:
        """Refuse what another setting makes meaningless, wherever it was given."""
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        given -= info.context or set()
        search, opened = self.find_saturation, self.rate is not None
        moving = self.load is not LoadShape.CONSTANT
        apart: tuple[tuple[bool, str, tuple[str, ...]], ...] = (
            (self.profile is Profile.VERL, "the profile verl", ("batch",)),
            (opened, "rate", ("concurrency",)),
            (
                search,
                "find_saturation",
                ("duration", "requests", "concurrency", "load", "rate_end", "steps"),
            ),
        )
        for holds, what, others in apart:
            for name in others:
                if holds and name in given:
                    raise ValueError(f"{name} does not go with {what}")
        together: tuple[tuple[bool, str, tuple[str, ...]], ...] = (
            (search, "find_saturation", ("max_p99", "window")),
            (opened or search, "rate or find_saturation", ("arrivals",)),
            (opened or not moving, "rate (a closed loop has none)", ("load",)),
            (opened and moving, "rate and the load step or ramp", ("rate_end",)),
            (self.load is LoadShape.STEP, "the load step", ("steps",)),
        )
        for holds, what, others in together:
            for name in others:
                if not holds and name in given:
                    raise ValueError(f"{name} goes with {what}, which is not given")
        if moving and self.rate_end is None:
            raise ValueError(f"the load {self.load} goes from rate to rate_end, which is not given")
        if search and self.rate is not None and self.rate < self.lowest_rate:
            raise ValueError(
                f"rate must be at least {self.lowest_rate:g} requests a second, one in each window"
                f" of {self.window:g} seconds, got {self.rate:g}"
            )
        return self

    @property
    def end_s(self) -> float:
        """Seconds after which the measured part ends at the latest."""
        if self.requests is not None and "duration" not in self.model_fields_set:
            return REQUESTS_DURATION_S
        return self.duration

    @property
    def lowest_rate(self) -> float:
        """Requests a second below which a window has no request to judge by."""
        return 1 / self.window

    @property
    def rollouts_per_request(self) -> int:
        """Rollouts in what is timed."""
        return self.batch if self.profile is Profile.BATCH else 1
