"""The service: a real server and its clients, against what cannot be had for less.

The floor is an empty gRPC echo of as many bytes plus the scoring itself, in this process; the
peers are HTTP with JSON and a Ray actor.  First everything stands on one core, so that the
server's own cost shows; then on all, where sending, scoring and reading overlap.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.harness.measure import REPOSITORY, Context, Timing, interleaved
from benchmarks.harness.results import Check, Figure, Series, SuiteResult
from benchmarks.suites.service import http_reading, overload
from benchmarks.suites.service.contenders import (
    ASYNC,
    ECHO,
    JSON,
    OVERLAPPED,
    SCORING,
    SINGLES,
    SYNC,
    UNDER_WAY,
    Contenders,
    Field,
    JsonServer,
    json_server,
)
from benchmarks.suites.service.processes import module, on_one_core
from benchmarks.suites.service.work import Work
from consensuspr.wire.codec import encode_score_response

COUNTS = (64, 256)
ALL_COUNTS = (1, 8, 64, 256, 2048)
TITLE = "Service: server and clients"
# The environment of `make test-verl`, which has Ray.
RAY_PYTHON = REPOSITORY / ".venv-verl-0.9.1" / "bin" / "python"
RAY_TIMEOUT_S = 300
UNIT = "µs a rollout"

Timings = dict[int, dict[str, Timing]]


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
        found = overload.measure(context, work)
        if found is None:
            result.notes.append("overload: not measured, other programs took the server's core")
        else:
            result.figures += found.figures()
            result.checks.append(found.check())
        result.figures += http_reading.figures(context)
    finally:
        work.close()
    return result


def _one_core(context: Context, work: Work, counts: tuple[int, ...], result: SuiteResult) -> None:
    """Compare on one core: all that both processes of a call do counts."""
    with on_one_core(), Field(work, context.scratch) as field:
        timings: Timings = {}
        for count in counts:
            context.say(f"batches of {count} on one core")
            ways = {
                **_floor(field, work, count),
                **field.server.contenders(work, count, SYNC),
            }
            timings[count] = interleaved(ways, context.rounds)
    _table(result, timings, "1")
    ratios = {count: _ratio(timings[count], SYNC) for count in counts}
    result.figures += _ratio_rows(ratios, f"{SYNC} / (echo + scoring)", "1")
    result.figures += [
        Figure(
            name="reply on the wire",
            value=encode_score_response(*work.score(count)).ByteSize() / count,
            unit="bytes a rollout",
            parameters={"rollouts": count, "cores": "1"},
        )
        for count in counts
    ]
    worst = max(COUNTS, key=lambda count: ratios[count])
    result.checks.append(
        Check(
            target="server_vs_echo_plus_scoring",
            value=ratios[worst],
            note=f"batches of {worst}, client and server on the same core;"
            f" scoring alone {_us(timings[worst][SCORING], worst):.0f} µs a rollout,"
            f" echo {_us(timings[worst][ECHO], worst):.0f}; what comes on top is told in"
            " docs/design/server.md",
        )
    )


def _all_cores(context: Context, work: Work, counts: tuple[int, ...], result: SuiteResult) -> None:
    """Compare on all cores: one worker with one thread, then two workers."""
    missing = JsonServer.missing()
    if missing:
        result.notes.append(f"{JSON}: not measured, {' and '.join(missing)} are not installed")
    timings = {}
    with Field(work, context.scratch) as field:
        for count in counts:
            context.say(f"batches of {count} on all cores")
            ways = {
                **_floor(field, work, count),
                **field.server.contenders(work, count, SYNC, ASYNC, SINGLES, OVERLAPPED),
            }
            if missing:
                timings[count] = interleaved(ways, context.rounds)
            else:
                with json_server(work, context.scratch) as peer:
                    ways[JSON] = peer.contender(work, count)
                    timings[count] = interleaved(ways, context.rounds)
        result.figures += _ray(context, work, field.address, counts, result)
    _table(result, timings, "all")
    for name in (SYNC, ASYNC, SINGLES, OVERLAPPED):
        ratios = {count: _ratio(timings[count], name) for count in counts}
        result.figures += _ratio_rows(ratios, f"{name} / (echo + scoring)", "all")
    if not missing:
        against = {count: timings[count][JSON].best / timings[count][SYNC].best for count in counts}
        result.figures += _ratio_rows(against, f"{JSON} / {SYNC}", "all")
    overlapped = {count: _ratio(timings[count], OVERLAPPED) for count in COUNTS}
    worst = max(COUNTS, key=lambda count: overlapped[count])
    result.checks.append(
        Check(
            target="server_overlapped",
            value=overlapped[worst],
            note=f"batches of {worst}, {UNDER_WAY} under way, one worker with one thread",
        )
    )
    result.series.append(_plot(timings))
    _two_workers(context, work, result)


def _two_workers(context: Context, work: Work, result: SuiteResult) -> None:
    """Measure a server of two workers: one client is one connection, and uses one of them."""
    timings: Timings = {}
    with Field(work, context.scratch, workers=2) as field:
        for count in COUNTS:
            ways = {
                **_floor(field, work, count),
                **field.server.contenders(work, count, SYNC, ASYNC, OVERLAPPED),
            }
            timings[count] = interleaved(ways, context.rounds)
    for name in (SYNC, ASYNC, OVERLAPPED):
        ratios = {count: _ratio(timings[count], name) for count in COUNTS}
        result.figures += _ratio_rows(ratios, f"{name} / (echo + scoring), two workers", "all")


def _floor(field: Field, work: Work, count: int) -> Contenders:
    return {
        SCORING: lambda: work.score(count),
        ECHO: field.echo.contender(work, count),
    }


def _ratio(timings: Mapping[str, Timing], name: str) -> float:
    """Return a batch's time over that of an empty echo and the scoring, one after the other."""
    batches = UNDER_WAY if name == OVERLAPPED else 1
    return timings[name].best / batches / (timings[ECHO].best + timings[SCORING].best)


def _us(timing: Timing, count: int) -> float:
    return timing.best / count * 1e6


def _table(result: SuiteResult, timings: Timings, cores: str) -> None:
    for count, name, value in _rows(timings):
        parameters: dict[str, str | int | float] = {"rollouts": count, "cores": cores}
        result.figures.append(Figure(name=name, value=value, unit=UNIT, parameters=parameters))


def _rows(timings: Timings) -> Iterator[tuple[int, str, float]]:
    for count, ways in timings.items():
        for name, timing in ways.items():
            yield count, name, _us(timing, count) / (UNDER_WAY if name == OVERLAPPED else 1)


def _ratio_rows(ratios: Mapping[int, float], name: str, cores: str) -> list[Figure]:
    return [
        Figure(name=name, value=ratio, unit="x", parameters={"rollouts": count, "cores": cores})
        for count, ratio in ratios.items()
    ]


def _plot(timings: Timings) -> Series:
    lines: dict[str, list[tuple[float, float]]] = {}
    for count, name, value in _rows(timings):
        lines.setdefault(name, []).append((count, value))
    return Series(
        name="Scoring a batch",
        x_label="rollouts of 10 KB in a batch",
        y_label="microseconds a rollout",
        log_x=True,
        log_y=True,
        lines=lines,
    )


def _ray(
    context: Context, work: Work, address: str, counts: tuple[int, ...], result: SuiteResult
) -> list[Figure]:
    """Measure a Ray actor, in the environment that has Ray."""
    if not RAY_PYTHON.exists():
        result.notes.append(
            f"Ray actor calls: not measured, there is no {RAY_PYTHON.relative_to(REPOSITORY)}"
            " (`make test-verl` makes it)"
        )
        return []
    context.say("Ray actor calls")
    rows = Path(context.scratch / "rollouts.json")
    pairs = [(rollout.problem_id, rollout.response) for rollout in work.rollouts]
    rows.write_text(json.dumps(pairs), encoding="utf-8")
    command = module(
        "ray_actor",
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
    return [
        Figure(
            name=name,
            value=value,
            unit=UNIT,
            parameters={"rollouts": int(count), "cores": "all"},
            note="in Ray's interpreter, a run of its own",
        )
        for count, ways in json.loads(done.stdout.splitlines()[-1]).items()
        for name, value in ways.items()
    ]
