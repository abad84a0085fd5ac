"""A load test from its settings to its result: figures, whether they are right, what limits them.

The scores that came back are compared with those of the in-process scorer for the same rollouts.
Equal input has one right score, so that everything but the wording has to be equal, bit for
bit.  What a busy machine left undecided is not wrong: of such a rollout the nodes are compared
and nothing that hangs on its answer; but it is counted, because a server that decides nothing
is of no use.  A rollout that ended INTERNAL is a failure of the server and is counted as one
elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from consensuspr.client import LocalClient, Rollout, Score, Status
from consensuspr.loadtest.load import Load, Pool, Target
from consensuspr.loadtest.processes import RunProgress, RunResult, Team
from consensuspr.loadtest.saturation import LATE_S, RateStep, Search, find_saturation
from consensuspr.loadtest.settings import Arrivals, LoadSettings
from consensuspr.loadtest.stats import ENDS, RELATIVE_ERROR, Histogram, LoadTally, ScoreSample, ms
from consensuspr.scoring.types import Limits
from consensuspr.version import VERSION

_REQUEST_COUNTS = ("sent", *ENDS, "retries", "held", "error_rate", "shed_rate")

RANKS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)

# Of the tail, the share that a late start may have before it is no longer the server's.
_LATE_SHARE = 0.10
_BUSY_SHARE = 0.9
_HELD_SHARE = 0.01

# A rollout that ended so says something of the server's scoring.  INTERNAL is an error, and
# said as one.
_SCORED = ("OK", "ANSWER_UNDECIDED", "NO_NODES", "NO_GROUND_TRUTH", "INTERNAL")

# Where a search begins, in bytes a second of responses, and at most so many requests: low for
# any server, and a handful of doublings from what one core does.
START_BYTES_PER_S = 1e6
MAX_START_RATE = 100.0

# Not among them: the sentence of a status and the way in which an answer was decided, which
# say how and not what.
_OF_NODES: tuple[str, ...] = (
    "ncr", "ncr_raw", "guard", "num_nodes", "num_matched", "matched", "channels", "tpn",
)  # fmt: skip
_ALL: tuple[str, ...] = ("status", "reward", "acc", *_OF_NODES, "answer")

# Answers that need computer algebra wait for one process; a check is no race.
_ANSWER_BUDGET_S = 10.0


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """One score that is not the right one: of which rollout, and the first field that differs."""

    rollout: str
    field: str
    served: str
    right: str

    def __str__(self) -> str:
        return (
            f"{self.rollout}: the server says {self.field}={self.served},"
            f" the in-process scorer {self.field}={self.right}"
        )


@dataclass(frozen=True, slots=True)
class ScoreCheck:
    """What the comparison found.

    Attributes:
        undecided: of which only the nodes were compared.
        unanswered: of which the server left an answer undecided that the scorer here decided.
        skipped: scores without a value to compare, because they ended INTERNAL.
        first: the first difference in the order of the pool.
    """

    compared: int = 0
    wrong: int = 0
    undecided: int = 0
    unanswered: int = 0
    skipped: int = 0
    first: ScoreDifference | None = None

    @property
    def unanswered_share(self) -> float:
        """Share of the compared scores whose answer only the scorer here decided, in [0, 1]."""
        return self.unanswered / self.compared if self.compared else 0.0

    def __str__(self) -> str:
        if self.wrong:
            found = f"{self.wrong:,} WRONG"
        else:
            found = "no difference" if self.undecided else "all equal"
        parts = f"{self.compared - self.undecided:,} in full, {self.undecided:,} nodes only; "
        return (
            f"{self.compared:,} scores compared with the in-process scorer:"
            f" {parts if self.undecided else ''}{found}"
        )


def check_samples(
    samples: Sequence[ScoreSample],
    rollouts: Sequence[Rollout],
    target: Target,
) -> ScoreCheck:
    """Compare scores with those of the in-process scorer.

    The target's limits on one rollout hold here too, its name of the dataset does not.

    Raises:
        DataError: the dataset cannot be read.
    """
    info, options = target.info, target.options
    limits = Limits(
        max_response_bytes=info.max_response_bytes,
        max_inline_nodes=info.max_inline_nodes,
        max_expressions_per_node=info.max_expressions_per_node,
        max_expression_bytes=info.max_expression_bytes,
        max_inline_bytes=info.max_inline_bytes,
    )
    with LocalClient(target.dataset, answer_budget_s=_ANSWER_BUDGET_S, limits=limits) as local:
        positions = sorted({sample.position for sample in samples})
        scored = local.score_with(
            [rollouts[position] for position in positions], replace(options, dataset=None)
        )
    right = dict(zip(positions, scored, strict=True))
    compared = wrong = undecided = unanswered = skipped = 0
    first: ScoreDifference | None = None
    for sample in sorted(samples, key=lambda sample: sample.position):
        served, truth = sample.score, right[sample.position]
        if Status.INTERNAL in (served.status, truth.status):
            skipped += 1
            continue
        compared += 1
        fields = _ALL
        if _is_undecided(served) or _is_undecided(truth):
            undecided += 1
            unanswered += not _is_undecided(truth)
            fields = _OF_NODES
        differing = next((f for f in fields if getattr(served, f) != getattr(truth, f)), None)
        if differing is None:
            continue
        wrong += 1
        if first is None:
            first = ScoreDifference(
                _named(sample.position, rollouts[sample.position]),
                differing,
                _shown(getattr(served, differing)),
                _shown(getattr(truth, differing)),
            )
    return ScoreCheck(compared, wrong, undecided, unanswered, skipped, first)


def _is_undecided(score: Score) -> bool:
    return score.undecided_by_load or score.status is Status.ANSWER_UNDECIDED


def _named(position: int, rollout: Rollout) -> str:
    name = f", rollout_id {rollout.rollout_id!r}" if rollout.rollout_id else ""
    return f"rollout {position + 1} of those sent{name}, problem {rollout.problem_id!r}"


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Status) else repr(value)


def describe_machine() -> dict[str, str | int | float]:
    """Return processor, cores, memory, system and versions; nothing that names its owner."""
    facts: dict[str, str | int | float] = {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "consensuspr": VERSION,
    }
    with contextlib.suppress(OSError, ValueError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts["memory_gib"] = round(memory / (1 << 30), 1)
    return facts


def processor() -> str:
    """Return what the processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A load test that is over.

    Attributes:
        began_at: in UTC, ISO 8601.
        result: what became of the requests; of all steps in a search.
        checked: the comparison of scores; None where none was wanted.
        search: None where there was one load.
    """

    target: Target
    settings: LoadSettings
    pool: Pool
    machine: dict[str, str | int | float]
    began_at: str
    result: RunResult
    checked: ScoreCheck | None
    search: Search | None = None

    @property
    def tally(self) -> LoadTally:
        """What became of the requests."""
        return self.result.tally

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
        load = Load.of(self.settings)
        if load is None or self.result.interrupted or self.search is not None:
            return self.result.elapsed_s
        planned_s = load.duration_s
        if self.settings.requests is not None:
            # Where their time is drawn, the end that was planned is not known better.
            even = self.settings.arrivals is Arrivals.CONSTANT
            end_s = load.when(load.warmup_requests + self.settings.requests) if even else 0.0
            planned_s = load.duration_s if end_s is None else min(load.duration_s, end_s)
        return max(self.result.elapsed_s, planned_s)

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
        if self.checked is not None and self.checked.unanswered_share > self.settings.max_undecided:
            found.append(
                f"{self.checked.unanswered_share:.2%} of the compared scores"
                f" ({self.checked.unanswered:,} of {self.checked.compared:,}) have an answer that"
                " the server left undecided and the in-process scorer decided, more than"
                f" the allowed {self.settings.max_undecided:.2%} (--max-undecided)"
            )
        foreign = {digest: n for digest, n in tally.digests.items() if digest != self.target.digest}
        if foreign:
            digest, count = next(iter(foreign.items()))
            found.append(
                f"{count:,} replies were scored with another dataset ({digest[:19]}) than the one"
                f" given ({self.target.digest[:19]})"
            )
        if not tally.answered and tally.ended:
            found.append(f"none of {tally.ended:,} requests was answered{self._example()}")
        elif not tally.ended and not self.result.interrupted:
            found.append(
                "no request ended within the measured time; a server that has just started may"
                " take seconds until its first answers come: use a longer --warmup or --duration"
            )
        elif self.search is None and tally.error_rate > self.settings.max_error_rate:
            found.append(
                f"{tally.error_rate:.2%} of what the server took ended in an error, more than the"
                f" allowed {self.settings.max_error_rate:.2%}{self._example()}"
            )
        if tally.rollouts and not any(tally.statuses[status] for status in _SCORED):
            ended = ", ".join(f"{n:,} {status}" for status, n in tally.statuses.most_common())
            found.append(f"none of {tally.rollouts:,} rollouts could be scored: {ended}")
        if self.search is not None and self.search.best is None and not self.result.interrupted:
            if any(step.sustained is False for step in self.search.last_tries):
                found.append("no rate was sustained, not even the lowest that was tried")
            else:
                found.append("no rate could be judged: the load generator was late at each of them")
        return found

    def client_limits(self) -> list[str]:
        """Return in which ways the load generator, and not the server, limited the figures."""
        found = []
        busy = max(self.result.cpu_shares, default=0.0)
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
        if self.result.interrupted:
            found.append("ended early by Ctrl-C: the figures are of what was done until then")
        if tally.abandoned:
            what = "the run" if self.search is None else "their step"
            found.append(
                f"{tally.abandoned:,} requests were cut off: in flight, or waiting to be sent, when"
                f" {what} was stopped"
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
        tally, search = self.tally, self.search
        return {
            "passed": not self.faults(),
            "faults": self.faults(),
            "client_limits": self.client_limits(),
            "notes": self.notes(),
            "began_at": self.began_at,
            "elapsed_s": self.measured_s,
            "requests": {name: getattr(tally, name) for name in _REQUEST_COUNTS},
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
                "cpu_shares": self.result.cpu_shares,
                "lag": latency_json(tally.lag),
            },
            "search": search
            and {
                "sustained": search.best and asdict(search.best),
                "steps": [asdict(step) for step in search.steps],
            },
            "timeline": self.series() if search is None else [],
            "address": self.target.address,
            "settings": self.settings.model_dump(mode="json"),
            "scored_with": asdict(self.target.options),
            "rollouts": {
                "source": self.pool.source,
                "count": len(self.pool.rollouts),
                "mean_bytes": self.pool.mean_bytes,
            },
            "server": asdict(self.target.info),
            "machine": self.machine,
        }

    def series(self) -> list[dict[str, float | int | None]]:
        """Return the run over time, a row for each stretch; of a search, a row for each step."""
        if self.search is not None:
            return [asdict(step) for step in self.search.steps]
        width_s = self.tally.timeline.width_s
        rows: list[dict[str, float | int | None]] = []
        for start_s, its in self.tally.timeline.bins():
            p50, p90, p99 = its.latency.percentiles((50, 90, 99))
            counts = {name: getattr(its, name) for name in ("due", *ENDS)}
            rows.append(
                {"start_s": start_s, "width_s": width_s}
                | counts
                | {"rollouts": its.rollouts, "bytes": its.num_bytes}
                | {"p50_s": p50, "p90_s": p90, "p99_s": p99, "max_s": its.latency.max_s or None}
            )
        return rows

    def latency_row(self) -> tuple[list[str], list[str]]:
        """Return mean, percentiles and maximum, in milliseconds."""
        latency = self.tally.latency
        values = [latency.mean_s, *latency.resolved(RANKS), latency.max_s or None]
        return ["mean", *(f"p{rank:g}" for rank in RANKS), "max"], [*map(ms, values)]

    def ends(self) -> list[tuple[str, str, int, str]]:
        """Return how requests, attempts and rollouts ended: what, status, count, the first."""
        tally = self.tally
        named = {
            "request": tally.codes,
            "failed attempt": tally.attempt_codes,
            "rollout": tally.statuses,
        }
        return [
            (what, status, count, tally.examples.get(status, "") if what == "request" else "")
            for what, counts in named.items()
            for status, count in sorted(counts.items())
        ]

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


def perform(
    target: Target,
    settings: LoadSettings,
    pool: Pool,
    show: Callable[[RunProgress], None] = lambda progress: None,
    say: Callable[[RateStep], None] = lambda step: None,
) -> LoadTest:
    """Load a server and return what was found; Ctrl-C ends it early, with a result.

    A search begins with the settings' rate, where they name one.  ``show`` is told some times a
    second how a run goes, ``say`` of each step of a search.

    Raises:
        InputError: the settings do not fit the server.
        ConsensusPRError: the load could not be made.
    """
    target.check_batch(settings, pool.largest_batch_bytes(settings.batch))
    began_at = datetime.now(UTC).isoformat(timespec="seconds")
    search: Search | None = None
    with Team(target, settings, pool) as team:

        def run(
            load: Load | None, watch: Callable[[RunProgress], bool] = lambda progress: False
        ) -> RunResult:
            def both(progress: RunProgress) -> bool:
                show(progress)
                return watch(progress)

            return team.run(load, both)

        if settings.find_saturation:
            request_bytes = pool.mean_bytes * settings.rollouts_per_request
            usual = min(MAX_START_RATE, max(1.0, START_BYTES_PER_S / request_bytes))
            start = settings.rate or max(usual, settings.lowest_rate)
            search = find_saturation(run, start, settings, say)
            result = search.result
        else:
            result = run(Load.of(settings))
    checked = check_samples(result.samples, pool.rollouts, target) if settings.check else None
    machine = describe_machine()
    return LoadTest(target, settings, pool, machine, began_at, result, checked, search)
