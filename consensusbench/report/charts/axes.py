"""Axes: from values to places in the picture, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from consensusbench.report.charts.svg import element

# Of every picture, in its own units; the style sheet scales it to its column.
WIDTH, HEIGHT = 480.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 456.0, 12.0, 242.0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: what it measures, with its unit.
        low: value at its beginning.
        high: value at its end, above ``low``.
        ticks: values that are marked, and their texts.
        log: whether it is logarithmic; ``low`` is above 0 then.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value stands, 0 at the beginning and 1 at the end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def percent_axis(label: str, high: float = 1.0) -> Axis:
    """Return an axis for fractions, written in percent.

    Args:
        label: what is measured.
        high: largest value; the axis ends at the next round one.
    """
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if s == 0.2 or high / s <= 5)
    steps = max(1, math.ceil(high / step - 1e-9))
    ticks = tuple((i * step, f"{100 * i * step:.0f} %") for i in range(steps + 1))
    return Axis(label, 0.0, steps * step, ticks)


def log_axis(label: str, low: float, high: float) -> Axis:
    """Return a logarithmic axis that holds ``low`` and ``high``, both above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1
    candidates = [f * 10.0**e for e in range(first, last + 1) for f in (1, 2, 5)]
    start = max(value for value in candidates if value <= low * (1 + 1e-9))
    end = min(value for value in candidates if value >= high * (1 - 1e-9) and value > start)
    inside = [value for value in candidates if start <= value <= end]
    if len(inside) > 9:
        inside = [value for value in inside if f"{value:e}".startswith("1.0")]
    return Axis(label, start, end, tuple((v, f"{v:,g}") for v in inside), log=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """The rectangle between two axes."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        return (
            LEFT + self.x.share(x) * (RIGHT - LEFT),
            BOTTOM - self.y.share(y) * (BOTTOM - TOP),
        )

    def draw(self, title: str, marks: Sequence[Markup]) -> Markup:
        """Return the picture: grid, ticks and labels below the marks.

        Args:
            title: what a screen reader says of the picture.
            marks: what is drawn, the first lowest.
        """
        middle = (TOP + BOTTOM) / 2
        labels = (
            element("text", self.x.label, class_="label", x=(LEFT + RIGHT) / 2, y=HEIGHT - 8.0),
            element(
                "text",
                self.y.label,
                class_="label",
                x=0.0,
                y=0.0,
                transform=f"translate(14 {middle:g}) rotate(-90)",
            ),
        )
        return element(
            "svg",
            *(self._tick_x(value, text) for value, text in self.x.ticks),
            *(self._tick_y(value, text) for value, text in self.y.ticks),
            *marks,
            *labels,
            viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
            role="img",
            aria_label=title,
        )

    def _tick_x(self, value: float, text: str) -> Markup:
        x, _ = self.at(value, self.y.low)
        line = element("line", class_="grid", x1=x, y1=TOP, x2=x, y2=BOTTOM)
        return line + element("text", text, class_="tick middle", x=x, y=BOTTOM + 17.0)

    def _tick_y(self, value: float, text: str) -> Markup:
        _, y = self.at(self.x.low, value)
        line = element("line", class_="grid", x1=LEFT, y1=y, x2=RIGHT, y2=y)
        return line + element("text", text, class_="tick end", x=LEFT - 6.0, y=y + 4.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: its points in order, how it looks, and what a point is called."""

    look: str
    points: tuple[tuple[float, float], ...]
    tip: Callable[[float, float], str]
    dots: bool = True

    def draw(self, frame: Frame) -> list[Markup]:
        """Return the curve and, where wanted, a dot for each of its points."""
        places = [frame.at(x, y) for x, y in self.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks = [element("polyline", points=path, class_=f"curve {self.look}")]
        for (x, y), (cx, cy) in zip(self.points, places, strict=True):
            marks.append(
                element(
                    "circle",
                    class_=f"dot {self.look}" + ("" if self.dots else " quiet"),
                    cx=cx,
                    cy=cy,
                    r=3.5,
                    data_tip=self.tip(x, y),
                )
            )
        return marks
