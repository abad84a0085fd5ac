"""The page as values, and the values as one HTML file that runs nothing but its own script.

Everything in the page that came from a model or a file passes :func:`safe`, once, at the
template's edge: control characters are written out, markup is escaped, and nothing is put into a
script.  A Content-Security-Policy names the digests of the one style sheet and the one script, so
that even a hole in the escaping could load and run nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from consensusbench.evaluation.columns import UNKNOWN, label_order
from consensusbench.report.browser import RolloutView, node_look
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.svg import safe
from consensusbench.report.table import Table

# Longer tables scroll in a box of their own; shorter ones stand whole.
WHOLE_ROWS = 60


@dataclass(frozen=True, slots=True)
class Scope:
    """The same charts for all rollouts, or for those of one model; a note is a line below them."""

    name: str
    title: str
    charts: tuple[Chart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading.

    Attributes:
        name: its anchor.
        title: its heading.
        about: paragraphs below the heading.
        scopes: charts; where there are several scopes, one is shown at a time.
        tables: below the charts.
        notes: small print below the tables.
    """

    name: str
    title: str
    about: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page says.

    Attributes:
        title: of the page.
        facts: what was evaluated, name and value.
        warnings: what a reader must know before any number; shown loudly.
        sections: in order.
        views: the rollouts, last.
        choice: which rollouts are there and which are not.
        footer: how the page was made.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    views: tuple[RolloutView, ...]
    choice: str
    footer: tuple[str, ...]

    @property
    def first_scoped(self) -> str:
        """Name of the section that carries the choice of the scope, empty if none does."""
        return next((s.name for s in self.sections if len(s.scopes) > 1), "")

    def values(self, name: str) -> Sequence[str]:
        """Return the distinct values that the rollouts can be filtered by, in the tables' order."""
        match name:
            case "model":
                found = {view.rollout.model for view in self.views}
            case "source":
                found = {view.rollout.data_source for view in self.views}
            case "side":
                found = {view.side.value for view in self.views}
            case "kind":
                found = {view.kind for view in self.views}
            case _:
                raise ValueError(f"rollouts are not filtered by {name!r}")
        return sorted(found, key=lambda value: label_order(value or UNKNOWN))


def render(page: Page) -> bytes:
    """Return the page as UTF-8."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = _template().render(
        page=page,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        look=node_look,
        whole_rows=WHOLE_ROWS,
    )
    return text.encode("utf-8")


def _asset(name: str) -> str:
    return files("consensusbench.report.assets").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, finalize=safe, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(_asset("page.html.j2"))
