"""Line charts as inline SVG, without a script and without a style of their own.

Colours come from classes of the page's style sheet.  Every text passes :func:`safe`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 34, 14, 44
MAX_TICKS = 7
# More points than pixels would only make the page larger.
MAX_MARKED = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        name: in the legend.
        points: x ascending; a gap where y is None.
        hollow: places of the points that are drawn hollow.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    hollow: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one or more lines over one pair of axes.

    Attributes:
        title: above it.
        x_label: with its unit.
        y_label: with its unit.
        lines: to draw, the first on top.
        x_from: where the x axis begins; None: at the smallest x.
        log_y: whether the y axis is logarithmic; then every y is above 0.
        x_ticks: places and names on the x axis; None: round numbers.
        note: a sentence below.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
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


def draw(chart: Chart) -> str:
    """Return a chart as an SVG element; a sentence where there is nothing to draw."""
    points = [(x, y) for line in chart.lines for x, y in line.points if y is not None]
    if chart.log_y:
        points = [(x, y) for x, y in points if y > 0]
    if not points:
        return "<p class='quiet'>Nothing was answered, so that there is nothing to draw.</p>"
    scale = _Scale.around(points, chart)
    parts = [
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{safe(chart.title)}'>",
        *_axes(chart, scale),
    ]
    for number, line in reversed(tuple(enumerate(chart.lines))):
        parts += _line(line, number, scale, chart)
    parts.append("</svg>")
    return "".join(parts)


def legend(chart: Chart) -> str:
    """Return the names of a chart's lines with their colours."""
    keys = "".join(
        f"<li><svg viewBox='0 0 22 8' class='key' aria-hidden='true'>"
        f"<line x1='0' y1='4' x2='22' y2='4' class='line c{number}'/></svg>{safe(line.name)}</li>"
        for number, line in enumerate(chart.lines)
    )
    return f"<ul class='legend'>{keys}</ul>"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where values stand in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_y: bool

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]], chart: Chart) -> _Scale:
        xs = [x for x, _ in points] + [place for place, _ in chart.x_ticks or ()]
        ys = [y for _, y in points]
        x_low, x_high = min(xs) if chart.x_from is None else chart.x_from, max(xs)
        if x_low == x_high:
            x_low, x_high = x_low - 0.5, x_high + 0.5
        if chart.log_y:
            return cls(x_low, x_high, min(ys) / 1.25, max(ys) * 1.25, log_y=True)
        return cls(x_low, x_high, 0.0, max(ys) * 1.08 or 1.0, log_y=False)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        if self.log_y:
            share = math.log(value / self.y_low) / math.log(self.y_high / self.y_low)
        else:
            share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(chart: Chart, scale: _Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    if scale.log_y:
        y_ticks = log_ticks(scale.y_low, scale.y_high)
    else:
        y_ticks = round_ticks(scale.y_low, scale.y_high)
    parts = []
    for tick in y_ticks:
        y = scale.y(tick)
        parts.append(f"<line x1='{LEFT}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}' class='grid'/>")
        parts.append(f"<text x='{LEFT - 7}' y='{y + 4:.1f}' class='tick end'>{tick:,g}</text>")
    x_ticks = chart.x_ticks
    if x_ticks is None:
        x_ticks = tuple((t, f"{t:,g}") for t in round_ticks(scale.x_low, scale.x_high, 9))
    for place, name in x_ticks:
        x = scale.x(place)
        parts.append(
            f"<line x1='{x:.1f}' y1='{bottom}' x2='{x:.1f}' y2='{bottom + 5}' class='axis'/>"
        )
        parts.append(f"<text x='{x:.1f}' y='{bottom + 18}' class='tick mid'>{safe(name)}</text>")
    middle_y = (TOP + bottom) / 2
    parts += [
        f"<line x1='{LEFT}' y1='{bottom}' x2='{right}' y2='{bottom}' class='axis'/>",
        f"<text x='{(LEFT + right) / 2:.0f}' y='{HEIGHT - 6}' class='label mid'>"
        f"{safe(chart.x_label)}</text>",
        f"<text x='14' y='{middle_y:.0f}' class='label mid'"
        f" transform='rotate(-90 14 {middle_y:.0f})'>{safe(chart.y_label)}</text>",
    ]
    return parts


def _line(line: Line, number: int, scale: _Scale, chart: Chart) -> list[str]:
    """Return a line, broken where there is no value, and its points with their values."""
    pieces: list[list[str]] = [[]]
    marks = []
    marked = len(line.points) <= MAX_MARKED
    for place, (x, y) in enumerate(line.points):
        if y is None or (scale.log_y and y <= 0):
            pieces.append([])
            continue
        at_x, at_y = f"{scale.x(x):.1f}", f"{scale.y(y):.1f}"
        pieces[-1].append(f"{at_x},{at_y}")
        if marked:
            look = " hollow" if place in line.hollow else ""
            told = safe(f"{line.name}: {y:,.4g} at {x:,.4g}")
            marks.append(
                f"<circle cx='{at_x}' cy='{at_y}' r='3' class='dot c{number}{look}'>"
                f"<title>{told}</title></circle>"
            )
    drawn = [
        f"<polyline points='{' '.join(piece)}' class='line c{number}'/>"
        for piece in pieces
        if len(piece) > 1
    ]
    return drawn + marks
