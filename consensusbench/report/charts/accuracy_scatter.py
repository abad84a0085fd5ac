"""NCR against Acc: one dot for each problem."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from markupsafe import Markup

from consensusbench.report.charts.axes import Axis, Frame
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.svg import element
from consensusbench.report.problems import ProblemSummary

# More dots hide each other and make the page heavy; a share that spreads over all is shown.
MAX_DOTS = 1500

# Problems with few rollouts share a handful of places: dots are moved by up to this much so
# that they can be told apart. Tips and tables carry the exact figures.
_JITTER = 0.012


def accuracy_scatter(problems: Sequence[ProblemSummary]) -> Chart:
    """Return mean NCR against mean accuracy by problem."""
    title = "NCR against Acc, by problem"
    about = (
        "Each dot is a problem: how many of its rollouts are right, and how much of its nodes "
        "they cover. Far below the diagonal: right without the nodes, so that the nodes may be "
        "poor. Far above it: the nodes are reached and the answer is missed."
    )
    known = [p for p in problems if p.acc is not None and p.ncr is not None]
    if not known:
        return Chart("scatter", title, about, empty="No problem has both an accuracy and an NCR.")
    shown = sorted(known, key=_shuffled)[:MAX_DOTS]
    notes = (
        (f"{len(shown):,} of {len(known):,} problems are drawn, chosen evenly.",)
        if len(shown) < len(known)
        else ()
    )
    ticks = tuple((i / 5, f"{20 * i} %") for i in range(6))
    frame = Frame(Axis("Acc", -0.04, 1.04, ticks), Axis("NCR", -0.04, 1.04, ticks))
    (x1, y1), (x2, y2) = frame.at(0.0, 0.0), frame.at(1.0, 1.0)
    diagonal = element("line", class_="reference", x1=x1, y1=y1, x2=x2, y2=y2)
    marks = [diagonal, *(_dot(frame, problem) for problem in shown)]
    return Chart("scatter", title, about, frame.draw(title, marks), notes=notes)


def _shuffled(problem: ProblemSummary) -> bytes:
    return sha256(problem.problem_id.encode("utf-8", "surrogatepass")).digest()


def _dot(frame: Frame, problem: ProblemSummary) -> Markup:
    assert problem.acc is not None and problem.ncr is not None
    noise = _shuffled(problem)
    dx, dy = (_JITTER * (byte / 127.5 - 1) for byte in noise[:2])
    x, y = frame.at(problem.acc + dx, problem.ncr + dy)
    return element(
        "circle",
        class_="dot plain",
        cx=x,
        cy=y,
        r=4,
        data_tip=f"{problem.problem_id}: Acc {100 * problem.acc:.1f} %, "
        f"NCR {100 * problem.ncr:.1f} % over {problem.rollouts:,} rollouts",
    )
