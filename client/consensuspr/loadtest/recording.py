"""One process's books of a run: outcomes into tallies, and a sample of the scores."""

from __future__ import annotations

import random

from consensuspr.loadtest.orders import Sample
from consensuspr.loadtest.outcome import DEADLINE, OK, Outcome
from consensuspr.loadtest.tally import Tally

# Of a process, however small the share: a short run is checked too.
FIRST_SAMPLES = 16
# Of a process, however long the run: a sample of the whole run, not of its beginning.
MAX_SAMPLES = 2000


class Sampler:
    """Keeps scores to compare later: a share of all, evenly over the run, bounded.

    Args:
        share: of the scores, in [0, 1]; 0 keeps none.
        seed: decides which.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._draw = random.Random(seed)
        self._drawn = 0
        self.samples: list[Sample] = []

    def offer(self, outcome: Outcome) -> None:
        """Perhaps keep some of the scores of a reply."""
        reply = outcome.reply
        if reply is None or not self._share:
            return
        for place, position in enumerate(reply.positions):
            if self._drawn >= FIRST_SAMPLES and self._draw.random() >= self._share:
                continue
            self._drawn += 1
            if len(self.samples) < MAX_SAMPLES:
                self.samples.append(Sample(position, reply.score(place)))
            else:  # each score drawn so far is equally likely to stay
                slot = self._draw.randrange(self._drawn)
                if slot < MAX_SAMPLES:
                    self.samples[slot] = Sample(position, reply.score(place))


class Recorder:
    """Counts requests; those that were due in the warm-up are not counted.

    Args:
        start: end of the warm-up, on the clock of all times given here.
        sampler: is offered every reply that is counted.
    """

    def __init__(self, start: float, sampler: Sampler) -> None:
        self._start = start
        self._sampler = sampler
        self._tally = Tally()

    def sent(self, due: float, now: float, *, held: bool) -> None:
        """Count a request out.

        Args:
            due: when it was to be sent.
            now: when it was.
            held: whether too many were in flight at the time.
        """
        if due < self._start:
            return
        tally = self._tally
        tally.sent += 1
        tally.timeline.at(due - self._start).due += 1
        if held:
            tally.held += 1
        else:
            tally.lag.record(now - due)

    def abandoned(self, due: float) -> None:
        """Count a request whose end nobody waits for."""
        if due >= self._start:
            self._tally.abandoned += 1

    def ended(self, due: float, now: float, outcome: Outcome) -> None:
        """Count a request in."""
        if due < self._start:
            return
        tally = self._tally
        tally.codes[outcome.code] += 1
        tally.attempt_codes.update(outcome.failed_attempts)
        tally.retries += outcome.retries
        back = tally.timeline.at(now - self._start)
        reply = outcome.reply
        if reply is not None:
            tally.answered += 1
            tally.rollouts += len(reply.positions)
            tally.num_bytes += reply.num_bytes
            tally.statuses.update(reply.statuses)
            tally.digests[reply.digest] += 1
            back.answered += 1
            back.rollouts += len(reply.positions)
            back.num_bytes += reply.num_bytes
            self._sampler.offer(outcome)
        else:
            tally.examples.setdefault(outcome.code, outcome.message)
            if outcome.shed:
                tally.shed += 1
                back.shed += 1
            else:
                tally.failed += 1
                back.failed += 1
        # One that ran out of time took at least as long as it waited; leaving it out would
        # flatter the server most when it is slowest.
        if outcome.code in (OK, DEADLINE):
            tally.latency.record(now - due)
            tally.timeline.at(due - self._start).latency.record(now - due)

    def take(self) -> Tally:
        """Return what was counted since the last time."""
        taken, self._tally = self._tally, Tally()
        return taken
