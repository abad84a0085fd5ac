"""Draws a flame graph as a small SVG without script: width is time, callers are below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, TOP, BOTTOM = 1200, 17, 34, 10
_LETTER = 6.3
# Narrower ones could not be seen, and are most of the file.
_NARROWEST = 1.0
# Of what a frame belongs to, by parts of its name; the first that fits.
_COLOURS = (
    ("garbage collection", "#b0a8b9"),
    ("core/", "#e4572e"),
    ("scoring/", "#f08a4b"),
    ("wire/", "#f6c667"),
    ("client/", "#f2a65a"),
    ("server/", "#f2a65a"),
    ("verl/", "#76b7b2"),
    ("grpc", "#8cb4e8"),
    ("", "#d9d9d9"),
)


@dataclass
class _Node:
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def svg(counts: Counter[tuple[str, ...]], title: str) -> str:
    """Return the drawing of stacks, each with how often it was seen."""
    root = _Node()
    for stack, count in counts.items():
        node = root
        node.count += count
        for frame in stack:
            node = node.children.setdefault(frame, _Node())
            node.count += count
    scale = WIDTH / max(1, root.count)
    boxes = list(_boxes(root, 0.0, 0, scale))
    rows = 1 + max((level for _, _, level, _, _ in boxes), default=0)
    height = TOP + rows * ROW + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="14" fill="#222222">{escape(title)}</text>',
    ]
    for x, width, level, name, count in boxes:
        y = height - BOTTOM - (level + 1) * ROW
        share = f"{count / root.count:.1%}"
        fill = next(colour for part, colour in _COLOURS if part in name)
        lines.append(
            f"<g><title>{escape(name)}: {share}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(0.4, width - 0.4):.1f}" height="{ROW - 1}"'
            f' fill="{fill}"/>{_label(name, share, x, y, width)}</g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _boxes(
    node: _Node, x: float, level: int, scale: float
) -> Iterator[tuple[float, float, int, str, int]]:
    for name, child in sorted(node.children.items()):
        width = child.count * scale
        if width >= _NARROWEST:
            yield x, width, level, name, child.count
            yield from _boxes(child, x, level + 1, scale)
        x += width


def _label(name: str, share: str, x: float, y: int, width: float) -> str:
    letters = int((width - 6) / _LETTER)
    if letters < 4:
        return ""
    text = f"{name} {share}"
    if len(text) > letters:
        text = name if len(name) <= letters else name[: letters - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 12}" fill="#222222">{escape(text)}</text>'
