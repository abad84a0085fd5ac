"""What a load test found: figures, what limits them, and whether it passed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from consensuspr.loadtest.checking import Checked
from consensuspr.loadtest.histogram import RELATIVE_ERROR, Histogram
from consensuspr.loadtest.load import Arrivals
from consensuspr.loadtest.pool import Pool
from consensuspr.loadtest.saturation import LATE_S, Search
from consensuspr.loadtest.settings import Settings
from consensuspr.loadtest.tally import Tally
from consensuspr.wire.info import ServerInfo

RANKS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)

# Of the tail, the share that a late start may have before it is no longer the server's.
_LATE_SHARE = 0.10
_BUSY_SHARE = 0.9
_HELD_SHARE = 0.01

# A rollout that ended so says something of the server's scoring.  INTERNAL is an error, and
# said as one.
_SCORED = ("OK", "ANSWER_UNDECIDED", "NO_NODES", "NO_GROUND_TRUTH", "INTERNAL")


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A load test that is over.

    Attributes:
        settings: what it was told.
        pool: what it sent.
        server: what the server said about itself before.
        digest: of the dataset that was to score.
        machine: that sent.
        began_at: in UTC, ISO 8601.
        tally: what became of the requests; of all steps in a search.
        elapsed_s: measured time.
        cpu_shares: processor time over time, of each load process.
        interrupted: Ctrl-C ended it early; everything here is of what was done until then.
        checked: the comparison of scores; None where none was wanted.
        max_error_rate: allowed share of errors.
        max_undecided: allowed share of scores that only the in-process scorer decided.
        search: the search for the highest sustained rate; None where there was one load.
    """

    settings: Settings
    pool: Pool
    server: ServerInfo
    digest: str
    machine: dict[str, str | int | float]
    began_at: str
    tally: Tally
    elapsed_s: float
    cpu_shares: list[float]
    interrupted: bool
    checked: Checked | None
    max_error_rate: float
    max_undecided: float
    search: Search | None = None

    @property
    def request_rate(self) -> float:
        """Requests answered a second."""
        return self.tally.answered / self._seconds

    @property
    def rollout_rate(self) -> float:
        """Rollouts scored a second."""
        return self.tally.rollouts / self._seconds

    @property
    def byte_rate(self) -> float:
        """Bytes of responses scored a second."""
        return self.tally.num_bytes / self._seconds

    @property
    def measured_s(self) -> float:
        """Seconds that throughput is counted over.

        Of an open loop at least as long as its schedule: the last request of 1 a second for 2 s
        is due, and perhaps answered, after one second.
        """
        load = self.settings.load()
        if load is None or self.interrupted or self.search is not None:
            return self.elapsed_s
        planned_s = load.duration_s
        if self.settings.requests is not None:
            # Where their time is drawn, the end that was planned is not known better.
            even = self.settings.arrivals is Arrivals.CONSTANT
            end_s = load.when(load.warmup_requests + self.settings.requests) if even else 0.0
            planned_s = load.duration_s if end_s is None else min(load.duration_s, end_s)
        return max(self.elapsed_s, planned_s)

    @property
    def _seconds(self) -> float:
        return max(self.measured_s, 1e-9)

    def faults(self) -> list[str]:
        """Return why the test failed, one sentence each; none where it passed."""
        tally = self.tally
        found = []
        if self.checked is not None and self.checked.first is not None:
            found.append(
                f"{self.checked.wrong:,} of {self.checked.compared:,} compared scores are wrong;"
                f" the first is {self.checked.first}"
            )
        if self.checked is not None and self.checked.unanswered_share > self.max_undecided:
            found.append(
                f"{self.checked.unanswered_share:.2%} of the compared scores"
                f" ({self.checked.unanswered:,} of {self.checked.compared:,}) have an answer that"
                " the server left undecided and the in-process scorer decided, more than"
                f" the allowed {self.max_undecided:.2%} (--max-undecided)"
            )
        foreign = {digest: n for digest, n in tally.digests.items() if digest != self.digest}
        if foreign:
            digest, count = next(iter(foreign.items()))
            found.append(
                f"{count:,} replies were scored with another dataset ({digest[:19]}) than the one"
                f" given ({self.digest[:19]})"
            )
        if not tally.answered and tally.ended:
            found.append(f"none of {tally.ended:,} requests was answered{self._example()}")
        elif not tally.ended and not self.interrupted:
            found.append(
                "no request ended within the measured time; a server that has just started may"
                " take seconds until its first answers come: use a longer --warmup or --duration"
            )
        elif self.search is None and tally.error_rate > self.max_error_rate:
            found.append(
                f"{tally.error_rate:.2%} of what the server took ended in an error, more than the"
                f" allowed {self.max_error_rate:.2%}{self._example()}"
            )
        if tally.rollouts and not any(tally.statuses[status] for status in _SCORED):
            ended = ", ".join(f"{n:,} {status}" for status, n in tally.statuses.most_common())
            found.append(f"none of {tally.rollouts:,} rollouts could be scored: {ended}")
        if self.search is not None and self.search.best is None and not self.interrupted:
            if any(step.sustained is False for step in self.search.last_tries):
                found.append("no rate was sustained, not even the lowest that was tried")
            else:
                found.append("no rate could be judged: the load generator was late at each of them")
        return found

    def client_limits(self) -> list[str]:
        """Return in which ways the load generator, and not the server, limited the figures."""
        found = []
        busy = max(self.cpu_shares, default=0.0)
        if busy > _BUSY_SHARE:
            found.append(
                f"a load process took {busy:.0%} of a core, it could not send more;"
                " use more --processes, or another machine"
            )
        if self.search is not None:
            undecided = [s.rate for s in self.search.last_tries if s.sustained is None]
            if undecided:
                found.append(
                    f"at {min(undecided):,.1f} requests a second it left late twice, so that rates"
                    " from there on are undecided; the server may sustain more than was found"
                )
            return found
        late = self.tally.lag.percentile(99) or 0.0
        tail = self.tally.latency.percentile(99) or 0.0
        if self.settings.rate is not None and late > max(LATE_S, _LATE_SHARE * tail):
            found.append(
                f"1 % of the requests left {late * 1e3:,.1f} ms or more after they were due, which"
                " is part of their latency; this machine is too busy for the rate"
            )
        return found

    def notes(self) -> list[str]:
        """Return what a reader of the figures should know besides."""
        tally, checked = self.tally, self.checked
        found = []
        if self.interrupted:
            found.append("ended early by Ctrl-C: the figures are of what was done until then")
        if tally.abandoned and self.search is None:
            found.append(
                f"{tally.abandoned:,} requests were given up unanswered when the run was stopped"
            )
        if tally.held > _HELD_SHARE * max(1, tally.sent):
            found.append(
                f"{tally.held:,} requests had to wait until others were answered, because no more"
                " may be in flight; their latency counts from when they were due"
            )
        if checked is not None and checked.undecided:
            found.append(
                f"{checked.undecided:,} of {checked.compared:,} compared scores had an undecided"
                " answer (a busy machine may leave one so); their nodes alone were compared"
            )
        if checked is None or not checked.compared:
            found.append("no score was compared with the in-process scorer")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything, ready for ``json.dumps``; seconds, bytes, shares in [0, 1]."""
        tally = self.tally
        return {
            "passed": not self.faults(),
            "faults": self.faults(),
            "client_limits": self.client_limits(),
            "notes": self.notes(),
            "began_at": self.began_at,
            "elapsed_s": self.measured_s,
            "requests": {
                "sent": tally.sent,
                "answered": tally.answered,
                "shed": tally.shed,
                "failed": tally.failed,
                "abandoned": tally.abandoned,
                "retries": tally.retries,
                "held": tally.held,
                "error_rate": tally.error_rate,
                "shed_rate": tally.shed_rate,
            },
            "throughput": {
                "requests_per_s": self.request_rate,
                "rollouts_per_s": self.rollout_rate,
                "bytes_per_s": self.byte_rate,
            },
            "latency": latency_json(tally.latency),
            "codes": dict(tally.codes),
            "failed_attempts": dict(tally.attempt_codes),
            "examples": tally.examples,
            "statuses": dict(tally.statuses),
            "checked": None if self.checked is None else asdict(self.checked),
            "generator": {
                "cpu_shares": self.cpu_shares,
                "lag": latency_json(tally.lag),
            },
            "search": None if self.search is None else self._search_json(self.search),
            "timeline": [] if self.search is not None else self.series(),
            "settings": _settings_json(self.settings),
            "rollouts": {
                "source": self.pool.source,
                "count": len(self.pool.rollouts),
                "mean_bytes": self.pool.mean_bytes,
            },
            "server": asdict(self.server),
            "machine": self.machine,
        }

    def series(self) -> list[dict[str, float | int | None]]:
        """Return the run over time, a row for each stretch; of a search, a row for each step."""
        if self.search is not None:
            return [asdict(step) for step in self.search.steps]
        width_s = self.tally.timeline.width_s
        rows: list[dict[str, float | int | None]] = []
        for start_s, its in self.tally.timeline.bins():
            p50, p90, p99 = its.latency.percentiles((50, 90, 99)) or (None, None, None)
            rows.append(
                {
                    "start_s": start_s,
                    "width_s": width_s,
                    "due": its.due,
                    "answered": its.answered,
                    "shed": its.shed,
                    "failed": its.failed,
                    "rollouts": its.rollouts,
                    "bytes": its.num_bytes,
                    "p50_s": p50,
                    "p90_s": p90,
                    "p99_s": p99,
                    "max_s": its.latency.max_s if its.latency.count else None,
                }
            )
        return rows

    def _search_json(self, search: Search) -> dict[str, Any]:
        return {
            "sustained": None if search.best is None else asdict(search.best),
            "steps": [asdict(step) for step in search.steps],
        }

    def _example(self) -> str:
        """Return the most frequent error with its first sentence."""
        met = [(n, code) for code, n in self.tally.codes.items() if code in self.tally.examples]
        if not met:
            internal = self.tally.statuses["INTERNAL"]
            return f": {internal:,} rollouts ended INTERNAL" if internal else ""
        _, code = max(met)
        return f"; most often {code}: {self.tally.examples[code]}"


def latency_json(latency: Histogram) -> dict[str, Any]:
    """Return count, mean, percentiles and extremes of a histogram, in seconds.

    A percentile that the values are too few to tell is None.
    """
    ranked = latency.resolved(RANKS)
    return {
        "count": latency.count,
        "mean_s": latency.mean_s,
        "min_s": latency.min_s if latency.count else None,
        "max_s": latency.max_s if latency.count else None,
        "percentiles_s": {f"p{rank:g}": v for rank, v in zip(RANKS, ranked, strict=True)},
        "relative_error": RELATIVE_ERROR,
    }


def _settings_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values."""
    plain = asdict(settings)
    plain["options"]["reward"] = asdict(settings.options.reward)
    return plain
