"""The files of a load test: one page, all figures, or the run over time; by suffix.

The page loads nothing and runs nothing: its charts are inline SVG, and its
Content-Security-Policy allows the one style sheet, by its digest, and nothing else, so that a
hole in the escaping could neither load nor run anything.  Every text passes :func:`safe`.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from consensuspr.console import count_of
from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.loadtest.result import LoadTest
from consensuspr.loadtest.saturation import Search
from consensuspr.loadtest.settings import Arrivals
from consensuspr.loadtest.stats import ENDS, ms

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 34, 14, 44
MAX_TICKS = 7
# More points than pixels would only make the page larger.
MAX_MARKED = 40
# Of a line over time: more would be a fringe that hides the course.
MAX_POINTS = 100

_CURVE_RANKS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99)

_ARRIVALS = {Arrivals.CONSTANT: "evenly spaced", Arrivals.POISSON: "Poisson arrivals"}

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #16191d; --quiet: #565d66; --line: #d4d8dd;
  --loud: #a33b00; --good: #00643f; --c0: #0072b2; --c1: #b86a00; --c2: #b8346f; --c3: #6b7280;
  --c4: #00643f; }
@media screen and (prefers-color-scheme: dark) {
  :root { --back: #14171b; --ink: #e8eaed; --quiet: #a7aeb8; --line: #3a4048; --loud: #ff9d5c;
    --good: #5fd6a5; --c0: #56b4e9; --c1: #e6a23c; --c2: #e57fb0; --c3: #9aa3ad;
    --c4: #5fd6a5; } }
body { margin: 0 auto; padding: 1rem; max-width: 64rem; background: var(--back);
  color: var(--ink); overflow-wrap: anywhere; font: 16px/1.5 system-ui, sans-serif; }
h2 { margin-top: 2.2rem; border-top: 1px solid var(--line); }
.quiet, th, dt, .figures span { color: var(--quiet); }
.box { border-left: .5rem solid; padding: 0 .9rem; margin: .9rem 0; }
.bad { border-color: var(--loud); }
.good { border-color: var(--good); }
ul.figures, ul.legend { display: flex; flex-wrap: wrap; gap: .4rem 2rem; padding: 0;
  list-style: none; }
.figures b { display: block; font-size: 1.45rem; }
.wide { overflow-x: auto; }
table, dl { font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; vertical-align: baseline; }
th:first-child, td:first-child, .text { text-align: left; }
:is(th, td):not(.text) { white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dd { margin: 0; }
figure { margin: 1.2rem 0; }
figcaption { font-weight: 600; }
figure svg { width: 100%; display: block; }
figure svg.key { width: 22px; height: 8px; display: inline-block; margin-right: .4rem; }
.grid { stroke: var(--line); }
.axis { stroke: var(--quiet); }
.tick, .label { fill: var(--quiet); font-size: 12px; }
.mid { text-anchor: middle; }
.end { text-anchor: end; }
.line, .dot { fill: none; stroke-width: 2; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); }
.dot.c0 { fill: var(--c0); } .dot.c1 { fill: var(--c1); } .dot.c2 { fill: var(--c2); }
.dot.c3 { fill: var(--c3); } .dot.c4 { fill: var(--c4); } .dot.hollow { fill: var(--back); }
"""


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
    """Return the page of a load test."""
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"Load test of {test.target.address}"
    body = "".join(
        (
            f"<h1>{safe(title)}</h1>",
            f"<p class='quiet'>{safe(_about(test))}</p>",
            _verdict(test),
            _headline(test),
            *(_figure(chart) for chart in _charts(test)),
            _search_table(test),
            _latency_table(test),
            _ends_table(test),
            _facts(test),
        )
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{safe(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
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


def _verdict(test: LoadTest) -> str:
    faults, limits, checked = test.faults(), test.client_limits(), test.checked
    passed = [str(checked) if checked and checked.compared else "no limit was exceeded"]
    parts = [_box("bad", "Failed", faults) if faults else _box("good", "Passed", passed)]
    if limits:
        parts.append(_box("bad", "The load generator was the limit", limits))
    if test.notes():
        parts.append(f"<ul class='quiet'>{_items(test.notes())}</ul>")
    return "".join(parts)


def _box(look: str, heading: str, sentences: Iterable[str]) -> str:
    return f"<div class='box {look}'><b>{safe(heading)}</b><ul>{_items(sentences)}</ul></div>"


def _items(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{safe(sentence)}</li>" for sentence in sentences)


def _headline(test: LoadTest) -> str:
    figures: list[tuple[str, str]] = []
    best = None if test.search is None else test.search.best
    if test.search is not None:
        if best is not None:
            figures += [
                (f"{best.rate:,.1f}", "requests/s sustained"),
                (f"{best.rollout_rate:,.0f}", "rollouts/s at that rate"),
                (ms(best.p50_s), "ms p50 at that rate"),
                (ms(best.p99_s), "ms p99 at that rate"),
            ]
    else:
        p50, p99 = test.tally.latency.resolved((50, 99))
        figures += [
            (f"{test.rollout_rate:,.0f}", "rollouts/s"),
            (f"{test.byte_rate / 1e6:,.1f}", "MB/s of responses"),
            (f"{test.request_rate:,.1f}", "requests/s answered"),
            (ms(p50), "ms p50"),
            (ms(p99), "ms p99"),
            (f"{test.tally.error_rate:.2%}", "errors"),
            (f"{test.tally.shed_rate:.2%}", "shed"),
        ]
    cells = "".join(f"<li><b>{safe(v)}</b><span>{safe(n)}</span></li>" for v, n in figures)
    return f"<ul class='figures'>{cells}</ul>"


def _charts(test: LoadTest) -> list[LineChart]:
    if test.search is not None:
        return [_load_curve(test.search)]
    timeline = test.tally.timeline.at_most(MAX_POINTS)
    bins, width_s = [its for _, its in timeline.bins()], timeline.width_s
    middles = [start_s + width_s / 2 for start_s, _ in timeline.bins()]
    quantiles = [
        (*its.latency.percentiles((50, 90, 99)), its.latency.max_s or None) for its in bins
    ]

    def rates(name: str, field: str) -> ChartLine:
        values = (getattr(its, field) / width_s for its in bins)
        return ChartLine(name, list(zip(middles, values, strict=True)))

    latency = [
        ChartLine(
            name, [(x, _in_ms(its[place])) for x, its in zip(middles, quantiles, strict=True)]
        )
        for place, name in enumerate(("p50", "p90", "p99", "maximum"))
    ]
    ranked = zip(_CURVE_RANKS, test.tally.latency.resolved(_CURVE_RANKS), strict=True)
    curve = [(_stretch(r), v * 1e3) for r, v in ranked if v is not None]
    ticks = tuple((_stretch(r), f"{r:g} %") for r in (1, 50, 90, 99, 99.9, 99.99))
    return [
        LineChart(
            "Latency over time",
            "seconds since the start, when a request was due",
            "milliseconds",
            tuple(latency),
            x_from=0.0,
            log_y=True,
            note="Counted from when a request was due, whenever it could be sent. Where fewer than"
            " 100 were due at a point, its p99 is its maximum.",
        ),
        LineChart(
            "Latency by percentile",
            "share of requests that took no longer",
            "milliseconds",
            (ChartLine("latency", curve),),
            x_ticks=ticks,
        ),
        LineChart(
            "Throughput over time",
            "seconds since the start",
            "rollouts a second",
            (rates("scored", "rollouts"),),
            x_from=0.0,
        ),
        LineChart(
            "Requests over time",
            "seconds since the start",
            "requests a second",
            (
                *(rates(ENDS[name], name) for name in ("answered", "shed", "timed_out", "failed")),
                rates("due", "due"),
            ),
            x_from=0.0,
            note="When a request ended; due: when it was to be sent.",
        ),
    ]


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _stretch(rank: float) -> float:
    """Return the place of a percentile: the tail takes as much room as the rest."""
    return -math.log10(1 - rank / 100)


def _load_curve(search: Search) -> LineChart:
    steps = search.last_tries
    broken = frozenset(n for n, step in enumerate(steps) if not step.sustained)
    return LineChart(
        "Latency against load",
        "requests a second offered",
        "milliseconds",
        (
            ChartLine("p50", [(step.rate, _in_ms(step.p50_s)) for step in steps], broken),
            ChartLine("p99", [(step.rate, _in_ms(step.p99_s)) for step in steps], broken),
        ),
        log_y=True,
        note="A hollow point is a rate that was not sustained, or stayed undecided. Of a rate that"
        " was offered twice, the last try is drawn.",
    )


def _figure(chart: LineChart) -> str:
    note = f"<p class='quiet'>{safe(chart.note)}</p>" if chart.note else ""
    names = legend(chart) if len(chart.lines) > 1 else ""
    return (
        f"<figure><figcaption>{safe(chart.title)}</figcaption>{names}{draw(chart)}{note}</figure>"
    )


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], text: tuple[int, ...] = ()
) -> str:
    looks = [" class='text'" if place in text else "" for place in range(len(headings))]
    head = "".join(
        f"<th{look}>{safe(name)}</th>" for look, name in zip(looks, headings, strict=True)
    )
    body = ""
    for row in rows:
        cells = (f"<td{look}>{safe(cell)}</td>" for look, cell in zip(looks, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _search_table(test: LoadTest) -> str:
    if test.search is None or not test.search.steps:
        return ""
    steps = test.search.steps
    rows, counts = [step.cells() for step in steps], [step.counts() for step in steps]
    return (
        "<h2>Steps of the search</h2>"
        + _table([*rows[0]], [[*row.values()] for row in rows], (7,))
        + "<h2>What became of the requests of each step</h2>"
        "<p class='quiet'>All that were sent; the rates and times above are of the last windows of"
        " a step. Cut off: in flight, or waiting to be sent, when the step was over.</p>"
        + _table([*counts[0]], [[*row.values()] for row in counts])
    )


def _latency_table(test: LoadTest) -> str:
    if test.search is not None or not test.tally.latency.count:
        return ""
    names, cells = test.latency_row()
    return "<h2>Latency in milliseconds</h2>" + _table(names, [cells])


def _ends_table(test: LoadTest) -> str:
    rows = [(what, status, f"{count:,}", example) for what, status, count, example in test.ends()]
    if not rows:
        return ""
    tally = test.tally
    ends = ", ".join(f"{count:,} {ENDS[name]}" for name, count in tally.ends.items())
    counted = (
        f"{tally.sent:,} requests were sent: {ends}. {tally.retries:,} attempts were repetitions."
    )
    return f"<h2>How requests and rollouts ended</h2><p>{safe(counted)}</p>" + _table(
        ("What", "Status", "Count", "The first"), rows, text=(1, 3)
    )


def _facts(test: LoadTest) -> str:
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
    cells = "".join(f"<dt>{safe(name)}</dt><dd>{safe(v)}</dd>" for name, v in facts.items() if v)
    return f"<h2>Server, settings and the machine that sent</h2><dl>{cells}</dl>"


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart: x ascending, a gap where y is None, points drawn hollow by place."""

    name: str
    points: Sequence[tuple[float, float | None]]
    hollow: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart with one or more lines over one pair of axes, the first line on top.

    Attributes:
        x_from: where the x axis begins; None: at the smallest x.
        log_y: whether the y axis is logarithmic; what is not above 0 is then a gap.
        x_ticks: places and names on the x axis; None: round numbers.
        note: a sentence below.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[ChartLine, ...]
    x_from: float | None = None
    log_y: bool = False
    x_ticks: tuple[tuple[float, str], ...] | None = None
    note: str = ""


def safe(text: str) -> str:
    """Return text as it may stand in the page: markup escaped, control characters shown."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return html.escape(shown, quote=True)


def round_ticks(low: float, high: float, most: int = MAX_TICKS) -> list[float]:
    """Return round numbers from ``low`` to ``high``, about ``most`` of them, evenly spaced."""
    if high <= low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks in [low, high], both above 0, for a logarithmic axis.

    1, 2 and 5 times powers of ten; powers of ten alone where those would be many; round numbers
    where they would be fewer than three.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        ticks = [k * 10.0**power for power in powers for k in factors]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= MAX_TICKS + 2:
            break
    return ticks if len(ticks) > 2 else round_ticks(low, high)


def draw(chart: LineChart) -> str:
    """Return a chart as an SVG element; a sentence where there is nothing to draw."""
    points = [
        (x, y)
        for line in chart.lines
        for x, y in line.points
        if y is not None and (y > 0 or not chart.log_y)
    ]
    if not points:
        return "<p class='quiet'>Nothing was answered, so that there is nothing to draw.</p>"
    xs = [x for x, _ in points] + [place for place, _ in chart.x_ticks or ()]
    ys = [y for _, y in points]
    x_low, x_high = min(xs) if chart.x_from is None else chart.x_from, max(xs)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    y_low, y_high = 0.0, max(ys) * 1.08 or 1.0
    if chart.log_y:
        y_low, y_high = min(ys) / 1.25, max(ys) * 1.25
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def at_x(value: float) -> float:
        return LEFT + (value - x_low) / (x_high - x_low) * (right - LEFT)

    def at_y(value: float) -> float:
        share = (value - y_low) / (y_high - y_low)
        if chart.log_y:
            share = math.log(value / y_low) / math.log(y_high / y_low)
        return bottom - share * (bottom - TOP)

    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{safe(chart.title)}'>"]
    for tick in (log_ticks if chart.log_y else round_ticks)(y_low, y_high):
        y = at_y(tick)
        parts.append(f"<line x1='{LEFT}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}' class='grid'/>")
        parts.append(f"<text x='{LEFT - 7}' y='{y + 4:.1f}' class='tick end'>{tick:,g}</text>")
    for place, name in chart.x_ticks or [(t, f"{t:,g}") for t in round_ticks(x_low, x_high, 9)]:
        x = at_x(place)
        parts.append(f"<path d='M{x:.1f} {bottom}v5' class='axis'/>")
        parts.append(f"<text x='{x:.1f}' y='{bottom + 18}' class='tick mid'>{safe(name)}</text>")
    middle_y = (TOP + bottom) // 2
    parts += [
        f"<path d='M{LEFT} {bottom}H{right}' class='axis'/>",
        f"<text x='{(LEFT + right) // 2}' y='{HEIGHT - 6}' class='label mid'>"
        f"{safe(chart.x_label)}</text>",
        f"<text x='14' y='{middle_y}' class='label mid' transform='rotate(-90 14 {middle_y})'>"
        f"{safe(chart.y_label)}</text>",
    ]
    for number, line in reversed(tuple(enumerate(chart.lines))):
        # Broken where there is no value; its points tell theirs.
        pieces: list[list[str]] = [[]]
        marks = []
        for place, (value, y_or_none) in enumerate(line.points):
            if y_or_none is None or (chart.log_y and y_or_none <= 0):
                pieces.append([])
                continue
            x, y = at_x(value), at_y(y_or_none)
            pieces[-1].append(f"{x:.1f},{y:.1f}")
            look = " hollow" if place in line.hollow else ""
            told = safe(f"{line.name}: {y_or_none:,.4g} at {value:,.4g}")
            marks.append(
                f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' class='dot c{number}{look}'>"
                f"<title>{told}</title></circle>"
            )
        parts += [
            f"<polyline points='{' '.join(piece)}' class='line c{number}'/>"
            for piece in pieces
            if len(piece) > 1
        ]
        if len(line.points) <= MAX_MARKED:
            parts += marks
    return "".join(parts) + "</svg>"


def legend(chart: LineChart) -> str:
    """Return the names of a chart's lines with their colours."""
    keys = "".join(
        f"<li><svg viewBox='0 0 22 8' class='key' aria-hidden='true'>"
        f"<line x1='0' y1='4' x2='22' y2='4' class='line c{number}'/></svg>{safe(line.name)}</li>"
        for number, line in enumerate(chart.lines)
    )
    return f"<ul class='legend'>{keys}</ul>"


_WRITERS: dict[str, Callable[[LoadTest], str]] = {
    ".html": render_page,
    ".json": _json,
    ".csv": _csv,
}
