"""The service: a real server and its clients, against what cannot be had for less.

The floor is an empty gRPC echo of as many bytes plus the scoring itself, in this process; the
peers are HTTP with JSON and a Ray actor (:mod:`benchmarks.children.peers`).  First everything
stands on one core, so that the server's own cost shows; then on all, where sending, scoring and
reading overlap.  Then the load of an open loop past saturation, and the HTTP endpoint's own work:
reading a step's JSON piece by piece, and naming problems.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from benchmarks.children.peers import ECHO_METHOD, ECHO_SIZE_BYTES, REWARD, check
from benchmarks.harness import texts
from benchmarks.harness.measure import REPOSITORY, Context, Timing, WrongAnswerError, interleaved
from benchmarks.harness.processes import listening, on_one_core, serving
from benchmarks.harness.results import Parameters, SuiteResult
from consensuspr.client import AsyncRewardClient, RewardClient
from consensuspr.client.transport import channel_options
from consensuspr.http.json_body import Bounds, members, text
from consensuspr.http.problems import build
from consensuspr.loadtest.load import Pool, Target
from consensuspr.loadtest.result import LoadTest, perform
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Score, ScoreOptions, Scorer
from consensuspr.scoring.types import Identity
from consensuspr.wire.codec import encode_rollout, encode_score_request, encode_score_response

ROLLOUT_BYTES = 10_000
PER_PROBLEM = 8
COUNTS = (64, 256)
ALL_COUNTS = (1, 8, 64, 256, 2048)
TITLE = "Service: server and clients"
UNIT = "µs a rollout"

# The ways to have a batch scored, and one that scores nothing.
SCORING = "in-process scoring"
ECHO = "empty gRPC echo"
SYNC = "server, RewardClient"
ASYNC = "server, AsyncRewardClient"
SINGLES = "server, single samples at once"
JSON = "FastAPI with JSON"
# Batches under way at a time, where several are.
UNDER_WAY = 4
OVERLAPPED = f"server, {UNDER_WAY} batches under way"

# The environment of `make test-verl`, which has Ray.
RAY_PYTHON = REPOSITORY / ".venv-verl-0.9.1" / "bin" / "python"
RAY_TIMEOUT_S = 300

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

# What the HTTP endpoint reads.
ROLLOUT = 'Let us see: \\frac{1}{2} of it is \\sqrt{16}, so\n\\[ x = 4 \\] "holds". 𝑥 ' * 180
WORDS = (
    "find the value of x such that a b c is let be real number sum over all prime 12 34 what how"
)

T = TypeVar("T")
Contenders = dict[str, Callable[[], object]]
Timings = dict[int, dict[str, Timing]]


@dataclass(frozen=True)
class Work:
    """Rollouts of about ten kilobytes, eight of a problem, and how to score them here."""

    dataset: Path
    rollouts: list[Rollout]
    scorer: Scorer
    verifier: AnswerVerifier

    @classmethod
    def make(cls, context: Context, count: int) -> Work:
        """Write a dataset into the scratch folder and make ``count`` rollouts of it.

        Raises WrongAnswerError where in-process scoring does not find what the texts hold.
        """
        problems = texts.problems(-(-count // PER_PROBLEM), context.seed)
        rows = texts.rollouts_of(problems, PER_PROBLEM, ROLLOUT_BYTES, context.seed)[:count]
        dataset = texts.write_rows(context.scratch / "dataset.jsonl", problems)
        verifier = AnswerVerifier(workers=1)
        index = DatasetIndex.load(dataset)
        scorer = Scorer({"default": index}, verifier=verifier, threads=1)
        work = cls(
            dataset, [Rollout(row["problem_id"], row["response"]) for row in rows], scorer, verifier
        )
        for row, score in zip(rows, work.score(count)[0], strict=True):
            found = list(score.matched), score.acc == 1.0
            if found != (row["expected"], row["correct"]):
                raise WrongAnswerError(f"in-process scoring is wrong for {row['rollout_id']}")
        return work

    def score(self, count: int) -> tuple[list[Score], Identity]:
        """Score the first ``count`` rollouts in this thread."""
        return self.scorer.score(self.rollouts[:count], ScoreOptions(REWARD))

    def close(self) -> None:
        """End the answer processes."""
        self.verifier.close()


def _reward_server(
    dataset: Path, scratch: Path, workers: int, threads: int
) -> contextlib.AbstractContextManager[tuple[str, int]]:
    """Start ``consensuspr serve`` with so many matching threads in each worker."""
    settings = {"CONSENSUSPR_THREADS": str(threads)}
    return serving(dataset, scratch, workers=workers, settings=settings)


def peer(name: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command that runs a peer in a process of its own."""
    return [interpreter, "-m", "benchmarks.children.peers", name, *arguments]


class Echo:
    """A client of the empty echo."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, channel_options())
        self._call = self._channel.unary_unary(
            ECHO_METHOD, request_serializer=None, response_deserializer=None
        )

    def contender(self, work: Work, count: int) -> Callable[[], object]:
        """Return a call with as many bytes, both ways, as scoring ``count`` rollouts has.

        Raises WrongAnswerError where the reply has another size.
        """
        rollouts = map(encode_rollout, work.rollouts[:count])
        options = ScoreOptions(reward=REWARD)
        size = encode_score_request(rollouts, options).ByteSize()
        reply = encode_score_response(*work.score(count)).ByteSize()
        head = reply.to_bytes(ECHO_SIZE_BYTES, "little")
        payload = head + bytes(max(0, size - len(head)))
        if len(self._call(payload)) != reply:
            raise WrongAnswerError(f"the echo does not reply with {reply} bytes")
        return lambda: self._call(payload)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class Server:
    """Both clients of one reward server."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = RewardClient(address)
        self._async_client = AsyncRewardClient(address)
        self._threads = ThreadPoolExecutor(UNDER_WAY)

    def contenders(self, work: Work, count: int, *names: str) -> Contenders:
        """Return the ways of that name to score the first ``count`` rollouts, each checked."""
        rollouts = work.rollouts[:count]
        expected = work.score(count)[0]

        def synchronous() -> list[Score]:
            return self._client.score(rollouts, REWARD)

        def overlapped() -> list[list[Score]]:
            return [*self._threads.map(lambda _: synchronous(), range(UNDER_WAY))]

        def asynchronous() -> list[Score]:
            return self._wait_for(self._async_client.score(rollouts, REWARD))

        async def one_by_one() -> list[Score]:
            calls = (self._async_client.score_one(rollout, REWARD) for rollout in rollouts)
            return await asyncio.gather(*calls)

        def singles() -> list[Score]:
            return self._wait_for(one_by_one())

        for scores in overlapped():
            check(OVERLAPPED, scores, expected)
        ways: dict[str, Callable[[], list[Score]]] = {
            SYNC: synchronous,
            ASYNC: asynchronous,
            SINGLES: singles,
        }
        for name, way in ways.items():
            check(name, way(), expected)
        every: Contenders = {**ways, OVERLAPPED: overlapped}
        return {name: every[name] for name in names}

    def close(self) -> None:
        """Close both clients."""
        self._client.close()
        self._wait_for(self._async_client.close())
        self._loop.close()
        self._threads.shutdown()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


class JsonServer:
    """A client of the FastAPI application, on one connection that stays open."""

    @staticmethod
    def missing() -> list[str]:
        """Return the packages that it needs and that are not installed."""
        return [name for name in ("fastapi", "uvicorn") if not importlib.util.find_spec(name)]

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._connection = http.client.HTTPConnection(host, int(port))

    def contender(self, work: Work, count: int) -> Callable[[], object]:
        """Return a call that scores the first ``count`` rollouts, checked."""
        rollouts = work.rollouts[:count]

        def score() -> list[dict[str, Any]]:
            items = [{"problem_id": r.problem_id, "response": r.response} for r in rollouts]
            headers = {"Content-Type": "application/json"}
            self._connection.request("POST", "/score", json.dumps({"rollouts": items}), headers)
            found: list[dict[str, Any]] = json.loads(self._connection.getresponse().read())
            return found

        for found, score_ in zip(score(), work.score(count)[0], strict=True):
            if (found["reward"], found["matched"]) != (score_.reward, list(score_.matched)):
                raise WrongAnswerError(f"{JSON} does not give the scores of in-process scoring")
        return score

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Field:
    """The servers that are measured against each other, running, and their clients.

    A context manager: what it starts is ended with it.
    """

    def __init__(self, work: Work, scratch: Path, *, workers: int = 1, threads: int = 1) -> None:
        self._stack = contextlib.ExitStack()
        with self._stack:  # ends what was started where a later one does not start
            start = self._stack.enter_context
            self.address, _ = start(_reward_server(work.dataset, scratch, workers, threads))
            self.server = start(contextlib.closing(Server(self.address)))
            address, _ = start(listening(peer("echo"), scratch))
            self.echo = start(contextlib.closing(Echo(address)))
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def json_server(work: Work, scratch: Path) -> Iterator[JsonServer]:
    """Start the FastAPI application and give a client of it."""
    command = peer("json", str(work.dataset))
    with (
        listening(command, scratch) as (address, _),
        contextlib.closing(JsonServer(address)) as client,
    ):
        yield client


def run(context: Context) -> SuiteResult:
    """Measure the service; quick: batches of 1, 64 and 256."""
    counts = ALL_COUNTS if context.full else (1, *COUNTS)
    result = SuiteResult(suite="service", title=TITLE)
    work = Work.make(context, max(counts))
    try:
        _one_core(context, work, counts, result)
        if len(os.sched_getaffinity(0)) > 1:
            _all_cores(context, work, counts, result)
        else:
            result.notes.append("one core: nothing can overlap, and it was not measured")
        found = overload(context, work)
        if found is None:
            result.notes.append("overload: not measured, other programs took the server's core")
        else:
            found.report(result)
        http_reading(context, result)
    finally:
        work.close()
    return result


def _one_core(context: Context, work: Work, counts: tuple[int, ...], result: SuiteResult) -> None:
    """Compare on one core: all that both processes of a call do counts."""
    with on_one_core(), Field(work, context.scratch) as field:
        timings: Timings = {}
        for count in counts:
            context.say(f"batches of {count} on one core")
            timings[count] = timed(context, field, work, count, SYNC)
    _table(result, timings, "1")
    ratios = _ratios(result, timings, SYNC, "1")
    for count in counts:
        num_bytes = encode_score_response(*work.score(count)).ByteSize()
        of: Parameters = {"rollouts": count, "cores": "1"}
        result.add("reply on the wire", num_bytes / count, "bytes a rollout", of)
    worst = max(COUNTS, key=lambda count: ratios[count])
    result.check(
        "server_vs_echo_plus_scoring",
        ratios[worst],
        f"batches of {worst}, client and server on the same core;"
        f" scoring alone {_us(timings[worst][SCORING], worst):.0f} µs a rollout,"
        f" echo {_us(timings[worst][ECHO], worst):.0f}; what comes on top is told in"
        " docs/design/server.md",
    )


def _all_cores(context: Context, work: Work, counts: tuple[int, ...], result: SuiteResult) -> None:
    """Compare on all cores: one worker with one thread, then two workers."""
    missing = JsonServer.missing()
    if missing:
        result.notes.append(f"{JSON}: not measured, {' and '.join(missing)} are not installed")
    timings: Timings = {}
    with Field(work, context.scratch) as field:
        for count in counts:
            context.say(f"batches of {count} on all cores")
            with contextlib.ExitStack() as stack:
                more: Contenders = {}
                if not missing:
                    peer = stack.enter_context(json_server(work, context.scratch))
                    more[JSON] = peer.contender(work, count)
                names = SYNC, ASYNC, SINGLES, OVERLAPPED
                timings[count] = timed(context, field, work, count, *names, more=more)
        _ray(context, work, field.address, counts, result)
    _table(result, timings, "all")
    ratios = {
        name: _ratios(result, timings, name, "all") for name in (SYNC, ASYNC, SINGLES, OVERLAPPED)
    }
    if not missing:
        against = {count: timings[count][JSON].best / timings[count][SYNC].best for count in counts}
        _ratio_rows(result, against, f"{JSON} / {SYNC}", "all")
    overlapped = ratios[OVERLAPPED]
    worst = max(COUNTS, key=lambda count: overlapped[count])
    result.check(
        "server_overlapped",
        overlapped[worst],
        f"batches of {worst}, {UNDER_WAY} under way, one worker with one thread",
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for count, name, value in _rows(timings):
        lines.setdefault(name, []).append((count, value))
    x_label = "rollouts of 10 KB in a batch"
    result.plot("Scoring a batch", x_label, "microseconds a rollout", lines)
    _two_workers(context, work, result)


def _two_workers(context: Context, work: Work, result: SuiteResult) -> None:
    """Measure a server of two workers: one client is one connection, and uses one of them."""
    timings: Timings = {}
    with Field(work, context.scratch, workers=2) as field:
        for count in COUNTS:
            timings[count] = timed(context, field, work, count, SYNC, ASYNC, OVERLAPPED)
    for name in (SYNC, ASYNC, OVERLAPPED):
        _ratios(result, timings, name, "all", ", two workers")


def timed(
    context: Context,
    field: Field,
    work: Work,
    count: int,
    *names: str,
    more: Contenders | None = None,
) -> dict[str, Timing]:
    """Time ways to score a batch in turn with the floor: an empty echo, and the scoring."""
    ways: Contenders = {
        SCORING: lambda: work.score(count),
        ECHO: field.echo.contender(work, count),
        **field.server.contenders(work, count, *names),
        **(more or {}),
    }
    return interleaved(ways, context.rounds)


def _ratios(
    result: SuiteResult, timings: Timings, name: str, cores: str, where: str = ""
) -> dict[int, float]:
    """Add, and return by size of the batch, what a way takes over the floor."""
    ratios = {count: over_floor(of_one, name) for count, of_one in timings.items()}
    _ratio_rows(result, ratios, f"{name} / (echo + scoring){where}", cores)
    return ratios


def over_floor(timings: Mapping[str, Timing], name: str) -> float:
    """Return a batch's time over that of an empty echo and the scoring, one after the other."""
    batches = UNDER_WAY if name == OVERLAPPED else 1
    return timings[name].best / batches / (timings[ECHO].best + timings[SCORING].best)


def _us(timing: Timing, count: int) -> float:
    return timing.best / count * 1e6


def _table(result: SuiteResult, timings: Timings, cores: str) -> None:
    for count, name, value in _rows(timings):
        parameters: Parameters = {"rollouts": count, "cores": cores}
        result.add(name, value, UNIT, parameters)


def _rows(timings: Timings) -> Iterator[tuple[int, str, float]]:
    for count, ways in timings.items():
        for name, timing in ways.items():
            yield count, name, _us(timing, count) / (UNDER_WAY if name == OVERLAPPED else 1)


def _ratio_rows(result: SuiteResult, ratios: Mapping[int, float], name: str, cores: str) -> None:
    for count, ratio in ratios.items():
        result.add(name, ratio, "x", {"rollouts": count, "cores": cores})


def _ray(
    context: Context, work: Work, address: str, counts: tuple[int, ...], result: SuiteResult
) -> None:
    """Measure a Ray actor, in the environment that has Ray."""
    if not RAY_PYTHON.exists():
        result.notes.append(
            f"Ray actor calls: not measured, there is no {RAY_PYTHON.relative_to(REPOSITORY)}"
            " (`make test-verl` makes it)"
        )
        return
    context.say("Ray actor calls")
    rows = Path(context.scratch / "rollouts.json")
    pairs = [(rollout.problem_id, rollout.response) for rollout in work.rollouts]
    rows.write_text(json.dumps(pairs), encoding="utf-8")
    command = peer(
        "ray",
        *(str(work.dataset), str(rows), address, str(context.rounds), *map(str, counts)),
        interpreter=str(RAY_PYTHON),
    )
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=RAY_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    for count, ways in json.loads(done.stdout.splitlines()[-1]).items():
        for name, value in ways.items():
            of: Parameters = {"rollouts": int(count), "cores": "all"}
            result.add(name, value, UNIT, of, "in Ray's interpreter, a run of its own")


@dataclass(frozen=True)
class Overload:
    """What was found: requests a second, 99th percentiles in seconds, shares of the requests.

    ``ratios`` are those of the percentiles, one for each pair of runs, ascending.
    """

    capacity: float
    low_p99_s: float
    high_p99_s: float
    served: float
    shed: float
    ratios: tuple[float, ...]

    def report(self, result: SuiteResult) -> None:
        """Add the rows of the table, and the ratio that the target is about."""
        of = {"rollouts in a request": BATCH}
        result.add("capacity", self.capacity, "requests/s", of)
        result.add("p99 at 80 %", self.low_p99_s * 1e3, "ms", of)
        result.add("p99 at 200 %", self.high_p99_s * 1e3, "ms", of)
        result.add("served at 200 %", self.served, "requests/s", of)
        result.add("refused at 200 %", 100 * self.shed, "%", of)
        result.check(
            "overload_p99",
            self.high_p99_s / self.low_p99_s,
            f"median of {', '.join(f'{ratio:.1f}' for ratio in self.ratios)};"
            f" {100 * self.shed:.0f} % refused, nothing lost, what was served is right",
        )


def overload(context: Context, work: Work) -> Overload | None:
    """Load a server of one worker beyond what it can do.

    None where other programs took so much of the server's core that it refused requests at 80 %
    of what it had done before, each time.

    Raises WrongAnswerError where a reply is lost or is not what in-process scoring gives.
    """
    seconds = 15.0 if context.full else 4.0
    with contextlib.ExitStack() as stack:
        with on_one_core():  # the server; what loads it has the others
            address, _ = stack.enter_context(_reward_server(work.dataset, context.scratch, 1, 1))
        closed = LoadSettings(
            batch=BATCH,
            concurrency=CONCURRENCY,
            duration=seconds,
            warmup=2.0,
            check=0.02,
            seed=context.seed,
            max_error_rate=1.0,
        )
        opened = closed.model_dump(exclude={"concurrency"}, exclude_unset=True)

        def run(rate: float | None = None) -> LoadTest:
            settings = closed if rate is None else LoadSettings(**opened, rate=rate)
            return _load(address, settings, work)

        # On a shared machine a core is not always ours: the most that was served is the
        # capacity, and both loads are compared next to each other, the median of the pairs counts.
        capacity = max(_served(run()) for _ in range(RUNS))
        context.say(f"capacity: {capacity:.0f} requests of {BATCH} rollouts a second")
        pairs: list[tuple[LoadTest, LoadTest]] = []
        for _ in range(MOST_RUNS):
            high = run(HIGH * capacity)
            if _served(high) > FITS * capacity:
                # It can do more than a closed loop asked of it: that was no overload.
                capacity = _served(high)
                context.say(f"capacity: rather {capacity:.0f}")
                pairs = []
                continue
            low = run(LOW * capacity)
            if low.tally.shed_rate > DISTURBED:
                context.say(f"{100 * low.tally.shed_rate:.0f} % were refused at 80 %: once more")
                continue
            pairs.append((low, high))
            context.say(
                f"99th percentile: {_p99(low) * 1e3:.0f} ms at 80 %,"
                f" {_p99(high) * 1e3:.0f} ms at 200 %"
            )
            if len(pairs) == RUNS:
                break
        if not pairs:
            return None
        pairs.sort(key=lambda pair: _p99(pair[1]) / _p99(pair[0]))
        low, high = pairs[len(pairs) // 2]
        ratios = tuple(_p99(high) / _p99(low) for low, high in pairs)
    return Overload(
        capacity,
        _p99(low),
        _p99(high),
        _served(high),
        high.tally.shed_rate,
        ratios,
    )


def _load(address: str, settings: LoadSettings, work: Work) -> LoadTest:
    """Load the server once, and check that what it accepted came back, and right."""
    pool = Pool(tuple(work.rollouts), "generated")
    with RewardClient(address) as client:
        server = client.server_info()
    target = Target(address, server, str(work.dataset), ScoreOptions(reward=REWARD))
    result = perform(target, settings, pool)
    tally = result.tally
    if tally.failed or tally.abandoned or set(tally.statuses) - {"OK"}:
        raise WrongAnswerError(
            f"requests were lost: {dict(tally.codes)}, {tally.abandoned} abandoned,"
            f" {dict(tally.statuses)}, {tally.examples}"
        )
    checked = result.checked
    if checked is None or checked.wrong or not checked.compared:
        raise WrongAnswerError(f"replies under load are wrong, or none was compared: {checked}")
    return result


def _served(result: LoadTest) -> float:
    return result.tally.answered / result.result.elapsed_s


def _p99(result: LoadTest) -> float:
    seconds = result.tally.latency.percentile(99.0)
    if seconds is None:
        raise WrongAnswerError("nothing was answered")
    return seconds


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

    def boundaries() -> list[Bounds]:
        return members(body, ["query"], count).lists["query"]

    found = boundaries()
    if [text(body, at, "query") for at in found] != json.loads(body)["query"]:
        raise WrongAnswerError("the endpoint reads other texts than json.loads")
    timings = interleaved(
        {
            "whole": lambda: json.loads(body),
            "boundaries": boundaries,
            "one": lambda: text(body, found[0], "query"),
        },
        rounds,
    )
    whole, places, one = (timings[name].best for name in ("whole", "boundaries", "one"))
    of = {"rollouts": count, "MB": round(len(body) / 1e6, 1)}
    for name, seconds in (
        ("json.loads", whole),
        ("boundaries, then one at a time", places + one * count),
        ("longest hold of json.loads", whole),
        ("longest hold of one rollout", one),
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
    spent = interleaved({"find": lambda: index.find(prompt)}, context.rounds)["find"].best
    of = {"problems": count, "characters": len(prompt)}
    result.add("naming a prompt's problem", spent * 1e3, "ms", of)
