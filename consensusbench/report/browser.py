"""The rollouts of the page, with their texts, their hits and their nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from markupsafe import Markup

from consensusbench.report.charts.svg import element
from consensusbench.report.excerpt import Block, Hit, Kind, cut
from consensusbench.report.selection import Label, Place
from consensusbench.report.sides import Side, side_of
from consensuspr.data import Node, OnError, ReadReport, read_problems
from consensuspr.scoring.types import Status

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout, ScoredSet

# Of a node that was missed, so that a reader sees what was looked for.
SHOWN_EXPRESSIONS = 3
MAX_EXPRESSION_CHARS = 120
MAX_PROBLEM_CHARS = 4000
MAX_ANSWER_CHARS = 1000

# The style sheet has so many colours for nodes; from there on they come again, underlined.
NODE_COLORS = 14


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node beside a rollout: ``found`` is the hit's text, ``sought`` what would have been one."""

    number: int
    look: str
    label: str
    is_final: bool
    matched: bool
    found: str
    sought: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout as it stands in the page.

    Attributes:
        anchor: element id; the same for the same rollout in every report.
        side: right, wrong or unknown.
        diagnosis: its class, empty where there is none.
        reason: what decided the class.
        problem: text of the problem, cut where it is very long; so are both answers.
        ground_truth: empty where the dataset does not say it.
        without_final: NCR without final nodes, None where there are no others or no final ones.
        answer: None where none was found.
        blocks: the response.
        left_out: code points of the response that are not in the page.
    """

    anchor: str
    rollout: ScoredRollout
    side: Side
    diagnosis: str
    reason: str
    problem: str
    ground_truth: str
    without_final: float | None
    answer: str | None
    nodes: tuple[NodeView, ...]
    blocks: tuple[Block, ...]
    left_out: int

    @property
    def kind(self) -> str:
        """What the rollout is an example of: a status other than OK, its diagnosis, its side."""
        if self.failed:
            return self.rollout.status.value
        return self.diagnosis or self.side.value

    @property
    def failed(self) -> bool:
        """Whether its status is another than OK."""
        return self.rollout.status is not Status.OK

    @property
    def reached(self) -> str:
        """How many of its nodes it reached."""
        matched = self.rollout.matched
        return f"{sum(matched)} of {len(matched)} nodes" if matched else "no nodes"

    @property
    def coverage(self) -> str:
        """Its NCR with and, where that is another thing, without final nodes; empty without one."""
        if self.rollout.ncr is None:
            return ""
        told = f"NCR: {self.rollout.ncr:.2f} ({self.reached})"
        if self.without_final is not None:
            told += f", {self.without_final:.2f} without final nodes"
        return f"{told}."

    @property
    def truth(self) -> Markup:
        """What is known of the right answer, one sentence or two."""
        if self.ground_truth:
            return element("span", "Ground truth: ", element("strong", self.ground_truth), ".")
        if self.side is Side.UNKNOWN:
            return element("span", "Nothing says which answer is right.")
        return element(
            "span",
            "The dataset has no ground truth for it; by its own row the answer is ",
            element("strong", self.side.value),
            ".",
        )

    @property
    def embedded(self) -> int:
        """Code points of the response in the page."""
        return self.rollout.num_chars - self.left_out


def node_look(number: int) -> str:
    """Return the class of the style sheet for a node, counted from 1."""
    return f"n{(number - 1) % NODE_COLORS + 1}"


def anchor_of(rollout: ScoredRollout) -> str:
    """Return a name for a rollout that does not depend on the others in the page."""
    told = repr((rollout.problem_id, rollout.model, rollout.rollout_id))
    return f"rollout-{sha256(told.encode()).hexdigest()[:12]}"


def view_rollouts(
    scored: ScoredSet,
    chosen: Sequence[ScoredRollout],
    dataset: str | os.PathLike[str],
    diagnoses: Mapping[Place, Label],
    *,
    on_error: OnError,
    max_chars: int,
    max_page_chars: int,
) -> list[RolloutView]:
    """Read the chosen rollouts again and cut their texts.

    Args:
        scored: the set that they are of.
        chosen: those to show, in order.
        dataset: where their nodes' expressions stand.
        diagnoses: class by place.
        on_error: what a bad row of the dataset does.
        max_chars: code points of one response in the page.
        max_page_chars: code points of all responses in the page; the last ones get less.
    """
    responses = scored.responses(chosen)
    nodes = _nodes_of(dataset, {rollout.problem_id for rollout in chosen}, on_error)
    views = []
    used: set[str] = set()
    left = max_page_chars
    for rollout in chosen:
        view = _view(
            scored,
            rollout,
            responses[rollout.file, rollout.row],
            nodes.get(rollout.problem_id, ()),
            diagnoses.get((rollout.file, rollout.row)),
            _unused(anchor_of(rollout), used),
            min(max_chars, left),
        )
        left -= view.embedded
        views.append(view)
    return views


def _unused(anchor: str, used: set[str]) -> str:
    """Return the anchor, numbered where a file names two rollouts alike."""
    name, count = anchor, 1
    while name in used:
        count += 1
        name = f"{anchor}-{count}"
    used.add(name)
    return name


def _nodes_of(
    dataset: str | os.PathLike[str], wanted: set[str], on_error: OnError
) -> dict[str, tuple[Node, ...]]:
    problems = read_problems(dataset, on_error, ReadReport())
    return {p.problem_id: p.nodes for p in problems if p.problem_id in wanted}


def _view(
    scored: ScoredSet,
    rollout: ScoredRollout,
    response: str,
    nodes: Sequence[Node],
    label: Label | None,
    anchor: str,
    max_chars: int,
) -> RolloutView:
    spans = rollout.spans or ()
    hits = [Hit(*span, number) for number, span in enumerate(spans, start=1) if span is not None]
    blocks = tuple(cut(response, hits, max_chars))
    facts = scored.facts(rollout)
    text = "" if facts is None else facts.problem
    return RolloutView(
        anchor=anchor,
        rollout=rollout,
        side=side_of(rollout),
        diagnosis="" if label is None else label.name,
        reason="" if label is None else label.reason,
        problem=_short(text, MAX_PROBLEM_CHARS),
        without_final=_without_final(rollout, facts),
        ground_truth=_short((facts and facts.ground_truth) or "", MAX_ANSWER_CHARS),
        answer=None if rollout.answer is None else _short(rollout.answer, MAX_ANSWER_CHARS),
        nodes=tuple(
            _node_view(number, node, matched, span, response)
            for number, (node, matched, span) in enumerate(
                zip(nodes, rollout.matched, spans or (None,) * len(rollout.matched), strict=False),
                start=1,
            )
        ),
        blocks=blocks,
        left_out=sum(block.chars for block in blocks if block.kind is Kind.LEFT_OUT),
    )


def _without_final(rollout: ScoredRollout, facts: ProblemFacts | None) -> float | None:
    if facts is None or not any(facts.is_final):
        return None
    return rollout.ncr_without_final(facts)


def _node_view(
    number: int, node: Node, matched: bool, span: tuple[int, int] | None, response: str
) -> NodeView:
    sought = tuple(_short(e, MAX_EXPRESSION_CHARS) for e in node.expressions[:SHOWN_EXPRESSIONS])
    found = "" if span is None else _short(response[span[0] : span[1]], MAX_EXPRESSION_CHARS)
    return NodeView(
        number=number,
        look=node_look(number),
        label=_short(node.label or node.expressions[0], MAX_EXPRESSION_CHARS),
        is_final=node.is_final,
        matched=matched,
        found=found,
        sought=sought,
    )


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
