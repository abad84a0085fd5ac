"""When requests are due: how the rate moves, and how arrivals are spread around it.

An arrival process is a constant one whose clock is bent: with ``L(t)`` the requests expected
until ``t``, arrival ``i`` comes at the ``t`` where ``L(t)`` is ``i`` (constant), or where it is
the sum of ``i`` draws from the unit exponential (Poisson).  So a load is its ``L`` and the
inverse, both in closed form, and a schedule is the same whoever carries it out.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from consensuspr.errors import InputError


class Arrivals(StrEnum):
    """How the times of requests are spread."""

    CONSTANT = "constant"
    POISSON = "poisson"


class LoadShape(StrEnum):
    """How the rate moves during a run."""

    CONSTANT = "constant"
    STEP = "step"
    RAMP = "ramp"


@dataclass(frozen=True, slots=True)
class Load:
    """A rate over time: pieces of equal length, each with its rate at its start and end.

    Before the first piece lies the warm-up, at the rate with which the load begins.

    Attributes:
        rates: of each piece in requests a second, at its start and its end; above 0.
        duration_s: of all pieces together, above 0.
        warmup_s: before them.
    """

    rates: tuple[tuple[float, float], ...]
    duration_s: float
    warmup_s: float = 0.0

    @classmethod
    def of(
        cls,
        shape: LoadShape,
        rate: float,
        rate_end: float | None,
        steps: int,
        duration_s: float,
        warmup_s: float,
    ) -> Load:
        """Return the load of a shape.

        Args:
            shape: ``constant`` has one rate, ``step`` goes up or down in equal steps of equal
                length, ``ramp`` evenly.
            rate: at the start, requests a second.
            rate_end: at the end; not with ``constant``.
            steps: rates of ``step``, the first and the last included.
            duration_s: of the measured part.
            warmup_s: before it, at the first rate.

        Raises:
            InputError: a value is out of its range, or does not go with the shape.
        """
        for name, value in (("rate", rate), ("rate-end", rate_end)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"--{name} must be above 0 requests a second, got {value:g}")
        if shape is LoadShape.CONSTANT:
            if rate_end is not None:
                raise InputError("--rate-end goes with --load step or ramp, the load is constant")
            return cls(((rate, rate),), duration_s, warmup_s)
        if rate_end is None:
            raise InputError(f"--load {shape} goes from --rate to --rate-end, which is not given")
        if shape is LoadShape.RAMP:
            return cls(((rate, rate_end),), duration_s, warmup_s)
        if steps < 2:
            raise InputError(f"--steps must be at least 2, got {steps}")
        levels = [rate + (rate_end - rate) * step / (steps - 1) for step in range(steps)]
        return cls(tuple((level, level) for level in levels), duration_s, warmup_s)

    @property
    def warmup_requests(self) -> float:
        """Requests that the warm-up is expected to hold."""
        return self.rates[0][0] * self.warmup_s

    def rate(self, at_s: float) -> float:
        """Return the rate at a time counted from the end of the warm-up."""
        if at_s < 0:
            return self.rates[0][0]
        piece_s = self._piece_s
        number = min(int(at_s / piece_s), len(self.rates) - 1)
        start, end = self.rates[number]
        return start + (end - start) * min(1.0, at_s / piece_s - number)

    def expected(self, until_s: float) -> float:
        """Return ``L``: the requests expected from the start until a time, the warm-up's too.

        Args:
            until_s: from the end of the warm-up, in [-warmup_s, duration_s].
        """
        if until_s <= 0:
            return self.rates[0][0] * (until_s + self.warmup_s)
        count = self.warmup_requests
        left_s = until_s
        for start, end in self.rates:
            inside_s = min(left_s, self._piece_s)
            slope = (end - start) / self._piece_s
            count += start * inside_s + slope * inside_s**2 / 2
            left_s -= inside_s
        return count

    def when(self, count: float) -> float | None:
        """Return the inverse of :meth:`expected`; None where it is past the end."""
        if count <= self.warmup_requests:
            return count / self.rates[0][0] - self.warmup_s
        left = count - self.warmup_requests
        piece_s = self._piece_s
        for number, (start, end) in enumerate(self.rates):
            inside = (start + end) / 2 * piece_s
            if left <= inside:
                slope = (end - start) / piece_s
                # The root of slope/2 t² + start t - left that does not cancel near slope 0.
                root = math.sqrt(max(0.0, start**2 + 2 * slope * left))
                return number * piece_s + 2 * left / (start + root)
            left -= inside
        return None

    @property
    def _piece_s(self) -> float:
        return self.duration_s / len(self.rates)


def due_times(load: Load, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Yield when requests are due, ascending, in seconds from the end of the warm-up.

    Args:
        load: what rate is wanted when.
        arrivals: evenly, or as a Poisson process.
        seed: of the Poisson process.
    """
    draw = random.Random(seed)
    counts: Iterator[float]
    if arrivals is Arrivals.POISSON:
        counts = itertools.accumulate(draw.expovariate(1.0) for _ in itertools.count())
    else:
        counts = map(float, itertools.count())
    for count in counts:
        due_s = load.when(count)
        # The end is not part of the run: 10 a second for 2 s are 20 requests, not 21.
        if due_s is None or due_s >= load.duration_s:
            return
        yield due_s
