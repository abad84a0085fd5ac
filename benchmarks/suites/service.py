"""The service: a real server and its clients, against what cannot be had for less.

The floor is an empty gRPC echo of as many bytes plus the scoring itself, in this process; the
peers are HTTP with JSON and a Ray actor (:mod:`benchmarks.children.peers`).  First everything
stands on one core, so that the server's own cost shows; then on all, where sending, scoring and
reading overlap.  Then the load of an open loop past saturation, what is done of it and what a
modest run gets beside it, two servers instead of one, a server that keeps a score log, and the
HTTP endpoint's own work: reading a step's JSON piece by piece, and naming problems.

A cost, here, is microseconds a rollout of a way's best round.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import grpc

from benchmarks import texts
from benchmarks.children.peers import ECHO_METHOD, ECHO_SIZE_BYTES, REWARD, check, ray_actor
from benchmarks.harness import verl_python
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.measure import Context, WrongAnswerError, fastest
from benchmarks.processes import (
    confined,
    fresh,
    listening,
    on_one_core,
    processor_seconds,
    serving,
)
from consensuspr.client import Access, AsyncRewardClient, RewardClient
from consensuspr.client.transport import channel_options
from consensuspr.credentials import new_token, write_token
from consensuspr.http.json_body import members, text
from consensuspr.http.problems import build
from consensuspr.loadtest.load import Pool, Target
from consensuspr.loadtest.result import perform
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.score_log import LogReader
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Score, ScoreOptions, Scorer
from consensuspr.scoring.types import Identity
from consensuspr.wire.codec import (
    encode_rollout_field,
    encode_score_request,
    encode_score_response,
)

ROLLOUT_BYTES = 10_000
COUNTS = (64, 256)
ALL_COUNTS = (1, 8, 64, 256, 2048)
UNIT = "µs a rollout"

# The ways to have a batch scored, and one that scores nothing.
SCORING = "in-process scoring"
ECHO = "empty gRPC echo"
SYNC = "server, RewardClient"
ASYNC = "server, AsyncRewardClient"
SINGLES = "server, single samples at once"
JSON = "FastAPI with JSON"
WITH_TOKEN = "server with a token"
WITH_TLS = "server with TLS and a token"
# Batches under way at a time, where several are.
UNDER_WAY = 4
OVERLAPPED = f"server, {UNDER_WAY} batches under way"

# Of the open loop past saturation.
BATCH = 16
# Enough to keep one worker busy, few enough that none is refused.
CONCURRENCY = 8
LOW, HIGH = 0.8, 2.0
# The capacity was found if no more than this times it is served past it.
FITS = 1.2
# Pairs of runs, and the most that are made to get them.
RUNS, MOST_RUNS = 3, 8
# Refused at 80 % of the capacity: then it was not that, for want of a core.
DISTURBED = 0.01

# Of what is done past saturation: rollouts in a request, times the capacity, seconds of patience.
GOODPUT_BATCHES = 16, 64
GOODPUT_LOADS = 1, 2, 3
PATIENCE_S = 2.0
# The same by verl's client, which heeds the hints: samples that it may have under way by so many
# connections, where it is asked for as many as it can.
SAMPLES_UNDER_WAY = {"concurrency": 256, "connections": 8}
# Of the capacity, what a run asks for that sends little beside one that sends all it can.
MODEST = 0.05
# Of one server and of two: processor time is told in steps of 10 ms.
TURN_S = 3.0
# With a score log and without, in turn: batches of a turn, which take more than a second and fill
# a segment, so that packing it counts too.
LOGGED_BATCHES = 64
# Longer than what waits for the log's thread, so that all of it counts.
FLUSHED_S = 3.0

# What the HTTP endpoint reads.
ROLLOUT = 'Let us see: \\frac{1}{2} of it is \\sqrt{16}, so\n\\[ x = 4 \\] "holds". 𝑥 ' * 180
WORDS = (
    "find the value of x such that a b c is let be real number sum over all prime 12 34 what how"
)

Way = Callable[[], object]
Costs = dict[str, float]


@dataclass(frozen=True)
class Work:
    """Rollouts of about ten kilobytes, eight of a problem, and how to score them here."""

    dataset: Path
    rollouts: list[Rollout]
    scorer: Scorer

    def score(self, count: int) -> tuple[list[Score], Identity]:
        """Score the first ``count`` rollouts in this thread."""
        return self.scorer.score(self.rollouts[:count], ScoreOptions(REWARD))

    def reply_bytes(self, count: int) -> int:
        """Return how many bytes the server's reply to the first ``count`` rollouts has."""
        found = self.scorer.score_columns(self.rollouts[:count], ScoreOptions(REWARD))
        return len(encode_score_response(*found))


@contextlib.contextmanager
def prepared(context: Context, count: int) -> Iterator[Work]:
    """Write a dataset into the scratch folder and make ``count`` rollouts of it.

    Raises WrongAnswerError where in-process scoring does not find what the texts hold.
    """
    batch = texts.batch(count, ROLLOUT_BYTES, context.seed, context.scratch)
    index = DatasetIndex.load(batch.dataset)
    with AnswerVerifier(workers=1) as verifier:
        scorer = Scorer({"default": index}, verifier=verifier, threads=1)
        work = Work(batch.dataset, batch.rollouts, scorer)
        for row, score in zip(batch.rows, work.score(count)[0], strict=True):
            if (list(score.matched), score.acc == 1.0) != (row["expected"], row["correct"]):
                raise WrongAnswerError(f"in-process scoring is wrong for {row['rollout_id']}")
        yield work


def _reward_server(
    work: Work, scratch: Path, workers: int = 1, settings: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[tuple[str, int]]:
    """Start ``consensuspr serve`` with one matching thread in each worker."""
    own = {"CONSENSUSPR_THREADS": "1", **(settings or {})}
    return serving(work.dataset, scratch, workers=workers, settings=own)


def peer(*words: str) -> list[str]:
    """Return the command that runs a peer in a process of its own."""
    return [sys.executable, "-m", "benchmarks.children.peers", *words]


@dataclass(frozen=True)
class Field:
    """A reward server and the empty echo, running: ``ways`` gives what they can do.

    ``ways(count)`` returns a call by name that scores the first ``count`` rollouts, or echoes as
    many bytes; each was checked.
    """

    address: str
    ways: Callable[[int], dict[str, Way]]


@contextlib.contextmanager
def running(work: Work, scratch: Path, workers: int = 1) -> Iterator[Field]:
    """Start the servers that are measured against each other; they end with the block."""
    with (
        _reward_server(work, scratch, workers) as (address, _),
        RewardClient(address) as client,
        ThreadPoolExecutor(UNDER_WAY) as threads,
        contextlib.closing(asyncio.new_event_loop()) as loop,
        listening(peer("echo"), scratch) as (echo_address, _),
        grpc.insecure_channel(echo_address, channel_options()) as channel,
    ):
        async_client = AsyncRewardClient(address)
        echo = channel.unary_unary(ECHO_METHOD, request_serializer=None, response_deserializer=None)

        async def one_by_one(rollouts: Sequence[Rollout]) -> list[Score]:
            calls = (async_client.score_one(rollout, REWARD) for rollout in rollouts)
            return await asyncio.gather(*calls)

        def ways(count: int) -> dict[str, Way]:
            rollouts = work.rollouts[:count]
            expected = work.score(count)[0]
            single: dict[str, Callable[[], list[Score]]] = {
                SYNC: lambda: client.score(rollouts, REWARD),
                ASYNC: lambda: loop.run_until_complete(async_client.score(rollouts, REWARD)),
                SINGLES: lambda: loop.run_until_complete(one_by_one(rollouts)),
            }

            def overlapped() -> list[list[Score]]:
                return [*threads.map(lambda _: single[SYNC](), range(UNDER_WAY))]

            for name, way in single.items():
                check(name, way(), expected)
            for scores in overlapped():
                check(OVERLAPPED, scores, expected)
            return {ECHO: _echoing(echo, work, count), **single, OVERLAPPED: overlapped}

        try:
            yield Field(address, ways)
        finally:
            loop.run_until_complete(async_client.close())


def _echoing(echo: Callable[[bytes], bytes], work: Work, count: int) -> Way:
    """Return a call with as many bytes, both ways, as scoring ``count`` rollouts has.

    Raises WrongAnswerError where the reply has another size.
    """
    rollouts = map(encode_rollout_field, work.rollouts[:count])
    size = len(encode_score_request(rollouts, ScoreOptions(reward=REWARD)))
    reply = work.reply_bytes(count)
    payload = reply.to_bytes(ECHO_SIZE_BYTES, "little").ljust(size, b"\0")
    if len(echo(payload)) != reply:
        raise WrongAnswerError(f"the echo does not reply with {reply} bytes")
    return partial(echo, payload)


def missing_for_json() -> list[str]:
    """Return the packages that the FastAPI application needs and that are not installed."""
    return [name for name in ("fastapi", "uvicorn") if not importlib.util.find_spec(name)]


@contextlib.contextmanager
def json_server(work: Work, scratch: Path) -> Iterator[Callable[[int], Way]]:
    """Start the FastAPI application; give what scores the first rollouts through it, checked.

    Calls go over one connection that stays open.
    """
    with contextlib.ExitStack() as stack:
        command = peer("json", str(work.dataset))
        address, _ = stack.enter_context(listening(command, scratch))
        connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection(address)))

        def way(count: int) -> Way:
            def score() -> list[dict[str, Any]]:
                items = [
                    {"problem_id": one.problem_id, "response": one.response}
                    for one in work.rollouts[:count]
                ]
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/score", json.dumps({"rollouts": items}), headers)
                found: list[dict[str, Any]] = json.loads(connection.getresponse().read())
                return found

            expected = [(one.reward, list(one.matched)) for one in work.score(count)[0]]
            if [(one["reward"], one["matched"]) for one in score()] != expected:
                raise WrongAnswerError(f"{JSON} does not give the scores of in-process scoring")
            return score

        yield way


def run(context: Context) -> SuiteResult:
    """Measure the service; quick: batches of 1, 64 and 256, and what has targets."""
    counts = ALL_COUNTS if context.full else (1, *COUNTS)
    result = SuiteResult(suite="service", title="Service: server and clients")
    with prepared(context, max(counts)) as work:
        _one_core(context, work, counts, result)
        secured(context, work, counts, result)
        if len(os.sched_getaffinity(0)) > 1:
            _all_cores(context, work, counts, result)
            _two_workers(context, work, result)
        else:
            result.notes.append("one core: nothing can overlap, and it was not measured")
        overload(context, work, result)
        if context.full:
            goodput(context, work, result)
            fairness(context, work, result)
            two_servers(context, work, result)
        logged(context, work, result)
        http_reading(context, result)
    return result


def costs(
    context: Context,
    field: Field,
    work: Work,
    count: int,
    names: Iterable[str],
    more: Mapping[str, Way] | None = None,
) -> Costs:
    """Time ways to score a batch in turn with the floor: an empty echo, and the scoring."""
    there = field.ways(count)
    ways = {SCORING: lambda: work.score(count), **{name: there[name] for name in (ECHO, *names)}}
    return a_rollout(fastest({**ways, **(more or {})}, context.rounds), count)


def a_rollout(seconds: Mapping[str, float], count: int) -> Costs:
    """Return what a rollout costs, from the seconds of one call of each way with ``count``."""
    return {
        name: 1e6 * spent / count / (UNDER_WAY if name == OVERLAPPED else 1)
        for name, spent in seconds.items()
    }


def over_floor(found: Costs, name: str) -> float:
    """Return a way's cost over that of an empty echo and the scoring, one after the other."""
    return found[name] / (found[ECHO] + found[SCORING])


def _one_core(context: Context, work: Work, counts: Sequence[int], result: SuiteResult) -> None:
    """Compare on one core: all that both processes of a call do counts."""
    with on_one_core(), running(work, context.scratch) as field:
        found: dict[int, Costs] = {}
        for count in counts:
            context.say(f"batches of {count} on one core")
            found[count] = costs(context, field, work, count, [SYNC])
    _table(result, found, "1")
    _ratios(result, found, SYNC, "1")
    for count in counts:
        of: Parameters = {"rollouts": count, "cores": "1"}
        result.add("reply on the wire", work.reply_bytes(count) / count, "bytes a rollout", of)
    worst = max(COUNTS, key=lambda count: over_floor(found[count], SYNC))
    result.check(
        "server_vs_echo_plus_scoring",
        over_floor(found[worst], SYNC),
        f"batches of {worst}, client and server on the same core;"
        f" scoring alone {found[worst][SCORING]:.0f} µs a rollout,"
        f" echo {found[worst][ECHO]:.0f}; what comes on top is told in"
        " docs/design/server.md",
    )
    shares = {
        count: found[count][SYNC] - found[count][ECHO] - found[count][SCORING] for count in COUNTS
    }
    result.check(
        "own_share_us",
        max(shares.values()),
        "client and server beside scoring and an empty echo, all on one core; "
        + ", ".join(f"{share:.1f} µs in batches of {count}" for count, share in shares.items()),
    )


def secured(context: Context, work: Work, counts: Sequence[int], result: SuiteResult) -> None:
    """Compare, on one core, calls that show a token, and such over TLS, with plain ones."""
    if shutil.which("openssl") is None:
        result.notes.append("no openssl, which makes certificates: TLS was not measured")
        return
    token, cert, key = (context.scratch / name for name in ("token", "tls.pem", "tls.key"))
    write_token(token, new_token())
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=benchmark"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    shown = {"CONSENSUSPR_TOKEN_FILE": str(token)}
    both = {**shown, "CONSENSUSPR_TLS_CERT": str(cert), "CONSENSUSPR_TLS_KEY": str(key)}
    ways = {
        SYNC: ({}, Access(tls=False)),
        WITH_TOKEN: (shown, Access(token, tls=False)),
        WITH_TLS: (both, Access(token, tls_ca=cert)),
    }
    found: dict[int, Costs] = {}
    with on_one_core(), contextlib.ExitStack() as stack:
        clients = {}
        for name, (settings, access) in ways.items():
            address, _ = stack.enter_context(_reward_server(work, context.scratch, 1, settings))
            clients[name] = stack.enter_context(RewardClient(address, access=access))
        for count in counts:
            context.say(f"batches of {count} with a token and TLS")
            rollouts, expected = work.rollouts[:count], work.score(count)[0]
            for name, client in clients.items():
                check(name, client.score(rollouts, REWARD), expected)
            calls = {name: partial(one.score, rollouts, REWARD) for name, one in clients.items()}
            found[count] = a_rollout(fastest(calls, context.rounds), count)
    for count, of_one in found.items():
        of: Parameters = {"rollouts": count, "cores": "1"}
        for name in (WITH_TOKEN, WITH_TLS):
            result.add(f"{name} / plain", of_one[name] / of_one[SYNC], "x", of)


def _all_cores(context: Context, work: Work, counts: Sequence[int], result: SuiteResult) -> None:
    """Compare on all cores: one worker with one thread."""
    names = SYNC, ASYNC, SINGLES, OVERLAPPED
    missing = missing_for_json()
    if missing:
        result.notes.append(f"{JSON}: not measured, {' and '.join(missing)} are not installed")
    found: dict[int, Costs] = {}
    with running(work, context.scratch) as field:
        for count in counts:
            context.say(f"batches of {count} on all cores")
            with contextlib.ExitStack() as stack:
                more = {}
                if not missing:
                    more[JSON] = stack.enter_context(json_server(work, context.scratch))(count)
                found[count] = costs(context, field, work, count, names, more)
        _ray(context, work, field.address, counts, result)
    _table(result, found, "all")
    for name in names:
        _ratios(result, found, name, "all")
    if not missing:
        for count, of_one in found.items():
            of: Parameters = {"rollouts": count, "cores": "all"}
            result.add(f"{JSON} / {SYNC}", of_one[JSON] / of_one[SYNC], "x", of)
    worst = max(COUNTS, key=lambda count: over_floor(found[count], OVERLAPPED))
    result.check(
        "server_overlapped",
        over_floor(found[worst], OVERLAPPED),
        f"batches of {worst}, {UNDER_WAY} under way, one worker with one thread",
    )
    lines = {name: [(count, of_one[name]) for count, of_one in found.items()] for name in found[1]}
    x_label = "rollouts of 10 KB in a batch"
    result.plot("Scoring a batch", x_label, "microseconds a rollout", lines)


def _two_workers(context: Context, work: Work, result: SuiteResult) -> None:
    """Measure a server of two workers: one client is one connection, and uses one of them."""
    names = SYNC, ASYNC, OVERLAPPED
    with running(work, context.scratch, workers=2) as field:
        found = {count: costs(context, field, work, count, names) for count in COUNTS}
    for name in names:
        _ratios(result, found, name, "all", ", two workers")


def _table(result: SuiteResult, found: Mapping[int, Costs], cores: str) -> None:
    for count, of_one in found.items():
        for name, cost in of_one.items():
            result.add(name, cost, UNIT, {"rollouts": count, "cores": cores})


def _ratios(
    result: SuiteResult, found: Mapping[int, Costs], name: str, cores: str, where: str = ""
) -> None:
    """Add what a way takes over the floor, by size of the batch."""
    for count, of_one in found.items():
        of: Parameters = {"rollouts": count, "cores": cores}
        result.add(f"{name} / (echo + scoring){where}", over_floor(of_one, name), "x", of)


def _ray(
    context: Context, work: Work, address: str, counts: Sequence[int], result: SuiteResult
) -> None:
    """Measure a Ray actor, in the environment that has Ray."""
    python = verl_python.interpreter()
    if python is None:
        result.notes.append(
            f"Ray actor calls: not measured, `{verl_python.MAKE}` makes the environment that has"
            " Ray"
        )
        return
    context.say("Ray actor calls")
    usage = {"RAY_USAGE_STATS_ENABLED": "0"}
    words = work.dataset, work.rollouts, address, context.rounds, counts
    for count, ways in fresh(ray_actor, *words, python=python, environment=usage).items():
        for name, value in ways.items():
            of: Parameters = {"rollouts": count, "cores": "all"}
            result.add(name, value, UNIT, of, "in Ray's interpreter, a run of its own")


class Load(NamedTuple):
    """One run of load: requests served a second, share refused, 99th percentile in seconds.

    ``sent_late`` where not the server but what sends was the limit.
    """

    served: float
    shed: float
    p99_s: float
    sent_late: bool = False


def overload(context: Context, work: Work, result: SuiteResult) -> None:
    """Load a server of one worker beyond what it can do.

    Other programs may take so much of the server's core that it refuses requests at 80 % of what
    it had done before, or is not through with those of the warm-up when a run at 200 % ends; where
    that is so each time, nothing is reported.

    Raises WrongAnswerError where a reply is lost or is not what in-process scoring gives.
    """
    with _loaded_server(context, work) as address:

        def load(**how: float) -> Load:
            return _load(address, _load_settings(context, batch=BATCH, **how), work)

        # On a shared machine a core is not always ours: the most that was served is the
        # capacity, and both loads are compared next to each other, the median of the pairs counts.
        capacity = max(load(concurrency=CONCURRENCY).served for _ in range(RUNS))
        context.say(f"capacity: {capacity:.0f} requests of {BATCH} rollouts a second")
        pairs: list[tuple[Load, Load]] = []
        for _ in range(MOST_RUNS):
            high = load(rate=HIGH * capacity)
            if not high.served:
                context.say("nothing was served at 200 %: once more")
                continue
            if high.served > FITS * capacity:
                # It can do more than a closed loop asked of it: that was no overload.
                capacity = high.served
                context.say(f"capacity: rather {capacity:.0f}")
                pairs = []
                continue
            low = load(rate=LOW * capacity)
            if low.shed > DISTURBED:
                context.say(f"{100 * low.shed:.0f} % were refused at 80 %: once more")
                continue
            pairs.append((low, high))
            context.say(
                f"99th percentile: {low.p99_s * 1e3:.0f} ms at 80 %,"
                f" {high.p99_s * 1e3:.0f} ms at 200 %"
            )
            if len(pairs) == RUNS:
                break
    if pairs:
        report_overload(capacity, pairs, result)
    else:
        result.notes.append("overload: not measured, other programs took the server's core")


@contextlib.contextmanager
def _loaded_server(context: Context, work: Work) -> Iterator[str]:
    """Start a server of one worker on one core; what loads it has the others."""
    others = os.sched_getaffinity(0) - {max(os.sched_getaffinity(0))}
    with contextlib.ExitStack() as stack:
        with on_one_core():
            address, _ = stack.enter_context(_reward_server(work, context.scratch))
        stack.enter_context(confined(others or None))
        yield address


def _load_settings(context: Context, **how: Any) -> LoadSettings:
    common = {
        "duration": 15.0 if context.full else 4.0,
        "warmup": 2.0,
        "check": 0.02,
        "seed": context.seed,
        "max_error_rate": 1.0,
    }
    return LoadSettings.model_validate({**common, **how})


def _load(
    address: str, settings: LoadSettings, work: Work, run: str | None = None, in_time: bool = True
) -> Load:
    """Load the server once, and check that what it accepted came back, and right.

    Unless ``in_time``, it may be that what it accepted did not come back before its deadline.
    Where it accepted nothing that was due after the warm-up, the percentile is infinite.
    """
    with RewardClient(address) as client:
        server = client.server_info()
    options = ScoreOptions(reward=REWARD, run=run)
    target = Target(address, server, str(work.dataset), options)
    test = perform(target, settings, Pool(tuple(work.rollouts), "generated"))
    tally = test.tally
    late = tally.timed_out and in_time
    if tally.failed or late or tally.abandoned or set(tally.statuses) - {"OK"}:
        raise WrongAnswerError(
            f"requests were lost: {dict(tally.codes)}, {tally.abandoned} abandoned,"
            f" {dict(tally.statuses)}, {tally.examples}"
        )
    p99_s = tally.latency.percentile(99.0)
    if p99_s is None:
        return Load(0.0, tally.shed_rate, math.inf)
    checked = test.checked
    if checked is None or checked.wrong or not checked.compared:
        raise WrongAnswerError(f"replies under load are wrong, or none was compared: {checked}")
    served = tally.answered / test.result.elapsed_s
    return Load(served, tally.shed_rate, p99_s, bool(test.client_limits()))


def report_overload(
    capacity: float, pairs: Iterable[tuple[Load, Load]], result: SuiteResult
) -> None:
    """Add what pairs of runs at 80 % and at 200 % show, and the ratio that the target is about."""
    ranked = sorted((high.p99_s / low.p99_s, low, high) for low, high in pairs)
    ratio, low, high = ranked[len(ranked) // 2]
    of = {"rollouts in a request": BATCH}
    result.add("capacity", capacity, "requests/s", of)
    result.add("p99 at 80 %", low.p99_s * 1e3, "ms", of)
    result.add("p99 at 200 %", high.p99_s * 1e3, "ms", of)
    result.add("served at 200 %", high.served, "requests/s", of)
    result.add("refused at 200 %", 100 * high.shed, "%", of)
    result.check(
        "overload_p99",
        ratio,
        f"median of {', '.join(f'{each:.1f}' for each, _, _ in ranked)};"
        f" {100 * high.shed:.0f} % refused, nothing lost, what was served is right",
    )


def goodput(context: Context, work: Work, result: SuiteResult) -> None:
    """Load a server of one worker with more than it can do, by callers of little patience.

    What counts is how much is answered in time, in % of the most that a closed loop was served
    beside it: work for what comes too late, and refusing, cost what could have been served.
    """
    for batch in (*GOODPUT_BATCHES, None):
        of: Parameters = {"rollouts in a request": batch or "as verl's client sends them"}
        for times, found in _done_past(context, work, batch).items():
            if not found:
                result.notes.append("goodput: not measured, other programs took the server's core")
                return
            middle, _ = found[len(found) // 2]
            context.say(f"{batch or 'samples'} in a request at {times}x: {middle:.0f} % done")
            note = f"of {len(found)} runs: {', '.join(f'{each:.0f}' for each, _ in found)}"
            if late := sum(sent_late for _, sent_late in found):
                note += f"; in {late} of them the load generator was the limit"
            result.add(f"done at {100 * times} %", middle, "%", of, note)


def _done_past(
    context: Context, work: Work, batch: int | None
) -> dict[int, list[tuple[float, bool]]]:
    """Return how much of the capacity is done, in %, by how many times of it was asked for.

    With whether the load generator was the limit, for each run, the least done first.

    Without ``batch``, samples are asked for one by one, by the client of verl's reward loop.
    """
    if batch is None:
        asked: dict[str, Any] = {"profile": "verl", "connections": SAMPLES_UNDER_WAY["connections"]}
        most: dict[str, Any] = SAMPLES_UNDER_WAY
    else:
        asked, most = {"batch": batch}, {"concurrency": CONCURRENCY}
    done: dict[int, list[tuple[float, bool]]] = {times: [] for times in GOODPUT_LOADS}
    with _loaded_server(context, work) as address:

        def load(**how: Any) -> Load:
            settings = _load_settings(context, timeout=PATIENCE_S, **{**asked, **how})
            return _load(address, settings, work, in_time=False)

        for _ in range(RUNS):
            # Next to each other: how much of a core there is changes.
            capacity = load(**most).served
            if not capacity:
                continue
            for times, found in done.items():
                run = load(rate=times * capacity)
                found.append((100 * run.served / capacity, run.sent_late))
    return {times: sorted(found) for times, found in done.items()}


def fairness(context: Context, work: Work, result: SuiteResult) -> None:
    """Let one run send all it can, and another, on the same machine, a little beside it."""
    with _loaded_server(context, work) as address, ThreadPoolExecutor(1) as other:

        def load(run: str, **how: float) -> Load:
            settings = _load_settings(context, batch=BATCH, processes=1, **how)
            return _load(address, settings, work, run, in_time=False)

        capacity = load("greedy", concurrency=CONCURRENCY).served

        def modest() -> Load:
            return load("modest", rate=MODEST * capacity, connections=1, timeout=PATIENCE_S)

        alone = modest() if capacity else Load(0.0, 0.0, math.inf)
        if not alone.served:
            result.notes.append("fairness: not measured, other programs took the server's core")
            return
        result.add("a modest run's p99 alone", alone.p99_s * 1e3, "ms", {})
        past = GOODPUT_LOADS[-1] * capacity
        greedy: dict[str, dict[str, float]] = {
            "closed, 256 at a time by 64 connections": {"concurrency": 256, "connections": 64},
            "open, 3x the capacity by 8 connections": {"rate": past, "connections": 8},
            "open, 3x by 256 connections, 2 s of patience": {
                "rate": past,
                "connections": 256,
                "timeout": PATIENCE_S,
            },
        }
        for name, how in greedy.items():
            # It begins before the modest one and ends after it.
            longer = {"warmup": 3.0, "duration": 8.0 + (10.0 if context.full else 0.0)}
            sending = other.submit(load, "greedy", **longer, **how)
            beside, taken = modest(), sending.result()
            context.say(f"{name}: {beside.p99_s / alone.p99_s:.1f}x the modest run's p99 alone")
            of: Parameters = {"the other run": name}
            result.add("a modest run's p99, of that alone", beside.p99_s / alone.p99_s, "x", of)
            served = 100 * beside.served / alone.served
            result.add("a modest run's answers, of those alone", served, "%", of)
            result.add(
                "the other run's answers, of the capacity", 100 * taken.served / capacity, "%", of
            )


def two_servers(context: Context, work: Work, result: SuiteResult) -> None:
    """Compare the processor time of a rollout with one server and with two, by one client.

    They stand on one core together, and take turns: what the second one adds is what shows.
    """
    rollouts = work.rollouts[: max(COUNTS)]
    with on_one_core(), contextlib.ExitStack() as stack:
        servers = [stack.enter_context(_reward_server(work, context.scratch)) for _ in range(2)]
        spent: dict[int, list[list[float]]] = {1: [], 2: []}
        clients = {
            many: stack.enter_context(RewardClient(",".join(at for at, _ in servers[:many])))
            for many in spent
        }
        for client in clients.values():
            check("two servers", client.score(rollouts, REWARD), work.score(len(rollouts))[0])
        for _ in range(RUNS):
            for many, client in clients.items():
                began, scored = time.monotonic(), 0
                before = [*map(processor_seconds, [pid for _, pid in servers]), time.process_time()]
                while time.monotonic() - began < TURN_S:
                    client.score(rollouts, REWARD)
                    scored += len(rollouts)
                after = [*map(processor_seconds, [pid for _, pid in servers]), time.process_time()]
                spent[many].append(
                    [1e6 * (b - a) / scored for a, b in zip(before, after, strict=True)]
                )
    one, two = (min(spent[many], key=sum) for many in (1, 2))
    result.add("processor time of a rollout with two servers, of one's", sum(two[:2]) / one[0], "x")
    result.add("share of the busier of two servers", 100 * max(two[:2]) / sum(two[:2]), "%")
    result.add("the client's processor time of two servers'", two[2] / sum(two[:2]), "x")


def logged(context: Context, work: Work, result: SuiteResult) -> None:
    """Compare a server's processor time of a rollout with a score log, texts included, and without.

    What is written later, and beside the scoring, counts: each turn ends when the log is on disk.

    Raises:
        WrongAnswerError: the log does not hold every rollout with its text.
    """
    rollouts = work.rollouts[: max(COUNTS)]
    run = context.scratch / "run"
    ways = {"plain": {}, "logged": {"CONSENSUSPR_SCORE_LOG": str(run)}}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    waited: dict[str, list[float]] = {name: [] for name in ways}
    with on_one_core(), contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(_reward_server(work, context.scratch, 1, settings))
            for name, settings in ways.items()
        }
        clients = {
            name: stack.enter_context(RewardClient(address))
            for name, (address, _) in servers.items()
        }
        for name, client in clients.items():
            check(name, client.score(rollouts, REWARD), work.score(len(rollouts))[0])
        time.sleep(FLUSHED_S)
        for _ in range(context.rounds):
            for name, client in clients.items():
                before = processor_seconds(servers[name][1])
                for _ in range(LOGGED_BATCHES):
                    asked = time.perf_counter()
                    client.score(rollouts, REWARD)
                    waited[name].append(time.perf_counter() - asked)
                time.sleep(FLUSHED_S)
                scored = LOGGED_BATCHES * len(rollouts)
                spent[name].append(1e6 * (processor_seconds(servers[name][1]) - before) / scored)
    kept = sum(
        batch.num_rows - batch["response"].null_count
        for batch in LogReader(run, ["response"]).read()
    )
    wanted = (context.rounds * LOGGED_BATCHES + 1) * len(rollouts)
    if kept != wanted:
        raise WrongAnswerError(f"the score log has {kept:,} texts of {wanted:,} rollouts")
    plain, with_log = (min(spent[name]) for name in ways)
    for name, cost in (("server without a score log", plain), ("server with one", with_log)):
        result.add(f"processor time, {name}", cost, UNIT, {"rollouts": max(COUNTS), "cores": "1"})
    asked_for = median(waited["logged"]) / median(waited["plain"])
    result.check(
        "score_log",
        with_log / plain,
        f"processor time of a rollout of 10 KB with its text, {with_log:.0f} µs against"
        f" {plain:.0f}, the log's thread and the packing of full segments included; a batch of"
        f" {len(rollouts)} takes {asked_for:.2f} times as long, all on one core",
    )


def http_reading(context: Context, result: SuiteResult) -> None:
    """Measure the HTTP endpoint's own work.

    "Longest hold" is how long Python's lock is kept from everybody else at most: for
    ``json.loads`` all of it, for the endpoint the decoding of one rollout.
    """
    _read_a_step(4096 if context.full else 512, context.rounds, result)
    _name_problems(100_000 if context.full else 5_000, context, result)


def _read_a_step(count: int, rounds: int, result: SuiteResult) -> None:
    """Compare ways to read the queries of one request."""
    body = json.dumps({"query": [ROLLOUT] * count}, ensure_ascii=False).encode()
    found = members(body, ["query"], count).lists["query"]
    if [text(body, at, "query") for at in found] != json.loads(body)["query"]:
        raise WrongAnswerError("the endpoint reads other texts than json.loads")
    best = fastest(
        {
            "whole": lambda: json.loads(body),
            "boundaries": lambda: members(body, ["query"], count).lists["query"],
            "one": lambda: text(body, found[0], "query"),
        },
        rounds,
    )
    of = {"rollouts": count, "MB": round(len(body) / 1e6, 1)}
    for name, seconds in (
        ("json.loads", best["whole"]),
        ("boundaries, then one at a time", best["boundaries"] + best["one"] * count),
        ("longest hold of json.loads", best["whole"]),
        ("longest hold of one rollout", best["one"]),
    ):
        result.add(name, seconds * 1e3, "ms", of)


def _name_problems(count: int, context: Context, result: SuiteResult) -> None:
    """Find one problem by its text among ``count``."""
    chance = random.Random(context.seed)
    prompts = [
        f"{' '.join(chance.choices(WORDS.split(), k=chance.randint(20, 60)))} #{at}?"
        for at in range(count)
    ]
    index = build(enumerate(prompts))
    wanted = chance.randrange(count)
    prompt = f"<|im_start|>user\n{prompts[wanted]}\nThink step by step.<|im_end|>\n"
    found = index.find(prompt)
    if found is None or [one.position for one in found] != [wanted]:
        raise WrongAnswerError("the endpoint finds another problem than the one that is asked for")
    spent = fastest({"find": lambda: index.find(prompt)}, context.rounds)["find"]
    of = {"problems": count, "characters": len(prompt)}
    result.add("naming a prompt's problem", spent * 1e3, "ms", of)
