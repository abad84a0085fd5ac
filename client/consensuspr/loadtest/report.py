"""The files of a load test: one page, all figures, or the run over time; by suffix."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from consensuspr.console import count_of
from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.loadtest.result import LoadTest
from consensuspr.loadtest.saturation import Search
from consensuspr.loadtest.settings import Arrivals
from consensuspr.loadtest.stats import ENDS, ms
from consensuspr.web.figures import (
    Axis,
    Box,
    Chart,
    ChartScope,
    DataTable,
    PageReport,
    Section,
    Series,
    TableColumn,
)
from consensuspr.web.snapshot import render_report

# Of a line over time: more would be a fringe that hides the course.
MAX_POINTS = 100

_CURVE_RANKS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99)

_ARRIVALS = {Arrivals.CONSTANT: "evenly spaced", Arrivals.POISSON: "Poisson arrivals"}


def check_outputs(paths: Iterable[Path]) -> None:
    """Refuse, before any work, files that could not be written in the end.

    Raises:
        InputError: a suffix is unknown, a file is named twice, or its folder does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if path.suffix.lower() not in _WRITERS:
            known = ", ".join(_WRITERS)
            raise InputError(f"--output must end in one of {known}, got {str(path)!r}")
        if path in seen:
            raise InputError(f"--output names {str(path)!r} twice")
        if not path.parent.is_dir():
            raise InputError(f"--output {str(path)!r}: there is no folder {str(path.parent)!r}")
        seen.add(path)


def write_output(path: Path, test: LoadTest) -> None:
    """Write a load test; the file appears complete or not at all.

    Args:
        path: .html for one page with plots, .json for all figures, .csv for the run over time
            (the steps, of a search).
        test: to write.

    Raises:
        InputError: the file cannot be written.
    """
    text = _WRITERS[path.suffix.lower()](test)
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8"))


def _json(test: LoadTest) -> str:
    return json.dumps(test.to_json(), indent=1) + "\n"


def _csv(test: LoadTest) -> str:
    rows = test.series()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["start_s"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def render_page(test: LoadTest) -> str:
    """Return the page of a load test, complete in itself."""
    return render_report(report_of(test))


def report_of(test: LoadTest) -> PageReport:
    """Return what the page says."""
    charts = _charts(test)
    nothing = "Nothing was answered, so that there is nothing to draw."
    drawn = [chart for chart in charts if chart.series]
    scope = ChartScope("all", "", drawn, () if drawn else (nothing,))
    return PageReport(
        f"Load test of {test.target.address}",
        _about(test),
        boxes=_boxes(test),
        figures=_headline(test),
        sections=(
            Section("course", "Course", notes=test.notes(), scopes=(scope,)),
            *_search_sections(test),
            *_latency_sections(test),
            *_ends_sections(test),
        ),
        facts=_facts(test),
    )


def _about(test: LoadTest) -> str:
    settings = test.settings
    what = (
        f"batches of {count_of(settings.batch, 'rollout')}"
        if settings.profile == "batch"
        else "single samples through the client of verl's reward loop"
    )
    if test.search is not None:
        how = "a search for the highest sustained rate"
    elif settings.rate is None:
        how = f"a closed loop of {settings.concurrency:,} at a time"
    else:
        end = "" if settings.rate_end is None else f" to {settings.rate_end:g}"
        how = (
            f"an open loop of {settings.rate:g}{end} requests a second"
            f" ({settings.load} load, {_ARRIVALS[settings.arrivals]})"
        )
    return (
        f"{test.began_at}; {what} in {how}; {test.pool.source};"
        f" sent by {count_of(len(test.result.cpu_shares), 'process', 'processes')}"
        f" on {count_of(settings.connections, 'connection')}."
    )


def _boxes(test: LoadTest) -> list[Box]:
    faults, limits, checked = test.faults(), test.client_limits(), test.checked
    passed = [str(checked) if checked and checked.compared else "no limit was exceeded"]
    boxes = [Box("bad", "Failed", faults) if faults else Box("good", "Passed", passed)]
    if limits:
        boxes.append(Box("bad", "The load generator was the limit", limits))
    return boxes


def _headline(test: LoadTest) -> list[tuple[str, str]]:
    if test.search is not None:
        best = test.search.best
        if best is None:
            return []
        return [
            (f"{best.rate:,.1f}", "requests/s sustained"),
            (f"{best.rollout_rate:,.0f}", "rollouts/s at that rate"),
            (ms(best.p50_s), "ms p50 at that rate"),
            (ms(best.p99_s), "ms p99 at that rate"),
        ]
    p50, p99 = test.tally.latency.resolved((50, 99))
    return [
        (f"{test.rollout_rate:,.0f}", "rollouts/s"),
        (f"{test.byte_rate / 1e6:,.1f}", "MB/s of responses"),
        (f"{test.request_rate:,.1f}", "requests/s answered"),
        (ms(p50), "ms p50"),
        (ms(p99), "ms p99"),
        (f"{test.tally.error_rate:.2%}", "errors"),
        (f"{test.tally.shed_rate:.2%}", "shed"),
    ]


def _charts(test: LoadTest) -> list[Chart]:
    if test.search is not None:
        return [_load_curve(test.search)]
    timeline = test.tally.timeline.at_most(MAX_POINTS)
    bins, width_s = [its for _, its in timeline.bins()], timeline.width_s
    middles = [start_s + width_s / 2 for start_s, _ in timeline.bins()]
    quantiles = [
        (*its.latency.percentiles((50, 90, 99)), its.latency.max_s or None) for its in bins
    ]
    seconds = Axis("seconds since the start", low=0.0)

    def rates(name: str, field: str) -> Series:
        return Series(name, middles, [getattr(its, field) / width_s for its in bins])

    latency = [
        Series(name, middles, [_in_ms(its[place]) for its in quantiles])
        for place, name in enumerate(("p50", "p90", "p99", "maximum"))
    ]
    ranked = zip(_CURVE_RANKS, test.tally.latency.resolved(_CURVE_RANKS), strict=True)
    curve = [(rank, value) for rank, value in ranked if value is not None]
    by_rank = Series(
        "latency",
        [_stretch(rank) for rank, _ in curve],
        [value * 1e3 for _, value in curve],
        tips=[f"{rank:g} % took no longer than {ms(value)} ms" for rank, value in curve],
    )
    return [
        Chart(
            "line",
            "latency",
            "Latency over time",
            Axis("seconds since the start, when a request was due", low=0.0),
            Axis("milliseconds", log=True),
            _with_points(latency),
            notes=(
                "Counted from when a request was due, whenever it could be sent. Where fewer than"
                " 100 were due at a point, its p99 is its maximum.",
            ),
        ),
        Chart(
            "line",
            "percentiles",
            "Latency by percentile",
            Axis(
                "share of requests that took no longer",
                ticks=[(_stretch(r), f"{r:g} %") for r in (1, 50, 90, 99, 99.9, 99.99)],
            ),
            Axis("milliseconds", low=0.0),
            _with_points([by_rank]),
        ),
        Chart(
            "line",
            "throughput",
            "Throughput over time",
            seconds,
            Axis("rollouts a second", low=0.0),
            _with_points([rates("scored", "rollouts")]),
        ),
        Chart(
            "line",
            "requests",
            "Requests over time",
            seconds,
            Axis("requests a second", low=0.0),
            _with_points(
                [
                    *(rates(ENDS[n], n) for n in ("answered", "shed", "timed_out", "failed")),
                    rates("due", "due"),
                ]
            ),
            notes=("When a request ended; due: when it was to be sent.",),
        ),
    ]


def _with_points(series: Sequence[Series]) -> list[Series]:
    """Return the series, none where nothing in any of them can be drawn."""
    return list(series) if any(y is not None for one in series for y in one.y) else []


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _stretch(rank: float) -> float:
    """Return the place of a percentile: the tail takes as much room as the rest."""
    return -math.log10(1 - rank / 100)


def _load_curve(search: Search) -> Chart:
    steps = search.last_tries
    rates = [step.rate for step in steps]
    broken = [at for at, step in enumerate(steps) if not step.sustained]
    return Chart(
        "line",
        "load",
        "Latency against load",
        Axis("requests a second offered"),
        Axis("milliseconds", log=True),
        _with_points(
            [
                Series("p50", rates, [_in_ms(step.p50_s) for step in steps], hollow=broken),
                Series("p99", rates, [_in_ms(step.p99_s) for step in steps], hollow=broken),
            ]
        ),
        notes=(
            "A hollow point is a rate that was not sustained, or stayed undecided. Of a rate that"
            " was offered twice, the last try is drawn.",
        ),
    )


def _table(
    caption: str,
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    text: Sequence[int] = (),
) -> DataTable:
    columns = [TableColumn(name, at not in text) for at, name in enumerate(headings)]
    return DataTable(caption, columns, [[list(row) for row in rows]])


def _search_sections(test: LoadTest) -> list[Section]:
    if test.search is None or not test.search.steps:
        return []
    steps = test.search.steps
    rows, counts = [step.cells() for step in steps], [step.counts() for step in steps]
    return [
        Section(
            "steps",
            "Steps of the search",
            tables=(
                _table("Steps", rows[0], (row.values() for row in rows), (7,)),
                _table(
                    "What became of the requests of each step",
                    counts[0],
                    (row.values() for row in counts),
                ),
            ),
            notes=(
                "Requests are all that were sent; the rates and times are of the last windows of a"
                " step. Cut off: in flight, or waiting to be sent, when the step was over.",
            ),
        )
    ]


def _latency_sections(test: LoadTest) -> list[Section]:
    if test.search is not None or not test.tally.latency.count:
        return []
    names, cells = test.latency_row()
    table = _table("Latency in milliseconds", names, [cells])
    return [Section("latency", "Latency", tables=(table,))]


def _ends_sections(test: LoadTest) -> list[Section]:
    rows = [(what, status, f"{count:,}", example) for what, status, count, example in test.ends()]
    if not rows:
        return []
    tally = test.tally
    ends = ", ".join(f"{count:,} {ENDS[name]}" for name, count in tally.ends.items())
    counted = (
        f"{tally.sent:,} requests were sent: {ends}. {tally.retries:,} attempts were repetitions."
    )
    table = _table("Ends", ("What", "Status", "Count", "The first"), rows, text=(0, 1, 3))
    return [Section("ends", "How requests and rollouts ended", (counted,), tables=(table,))]


def _facts(test: LoadTest) -> list[tuple[str, str]]:
    server = test.target.info
    late = test.tally.lag.percentile(99)
    facts = {
        "server": f"consensuspr {server.server_version}, {server.core_backend} core",
        "dataset": test.target.options.dataset or "",
        "digest": test.target.digest,
        "seed": str(test.settings.seed),
        "timeout": f"{test.settings.timeout:g} s",
        "load processes": ", ".join(f"{share:.0%} of a core" for share in test.result.cpu_shares),
        "left late (p99)": f"{ms(late)} ms" if late is not None else "",
        **{name.replace("_", " "): str(value) for name, value in test.machine.items()},
    }
    return [(name, value) for name, value in facts.items() if value]


_WRITERS: dict[str, Callable[[LoadTest], str]] = {
    ".html": render_page,
    ".json": _json,
    ".csv": _csv,
}
