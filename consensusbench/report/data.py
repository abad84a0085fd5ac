"""What the report says, computed from scored rollouts: figures for its charts, and its rollouts.

Right and wrong rollouts are the two that most charts compare; where they reach their nodes, how
each problem fared, and what rewards would tell a trainer (:class:`RewardStudy`).  Of the rollouts
themselves, :func:`choose` takes some of every kind, and :func:`view_rollouts` reads their texts
again and cuts them at their hits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from markupsafe import Markup

from consensusbench.report import ReportSettings
from consensusbench.report.markup import element
from consensuspr.data import Node, OnError, ReadReport, read_problems
from consensuspr.scoring.marks import Mark, Piece, cut_at_marks, parts_to_show
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Status

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import Floats, ProblemFacts, ScoredRollout, ScoredSet
    from consensusbench.quality.diagnose import Diagnosed

# A rollout's place among the files that were read: (file, row).
Place: TypeAlias = tuple[int, int]

# Fifths of a problem's nodes: problems have between 2 and 12 of them.
ORDER_BINS = 5
TEXT_STEPS = 20

ALPHAS = tuple(i / 20 for i in range(21))
# Rewards are sums of quotients of small numbers: closer than this is equal.
_EQUAL = 1e-9

# Of rollouts that could not be scored, and of one status and model, one is much like another.
OF_A_STATUS = 10
# Part of the page that rollouts without nodes may take from those that have some.
_KEPT_FOR_NODELESS = 10

# Of a node that was missed, so that a reader sees what was looked for.
SHOWN_EXPRESSIONS = 3
MAX_EXPRESSION_CHARS = 120
MAX_PROBLEM_CHARS = 4000
MAX_ANSWER_CHARS = 1000
# The style sheet has so many colours for nodes; from there on they come again, underlined.
NODE_COLORS = 14


class Correctness(StrEnum):
    """Whether the final answer is right; the value is also a class of the style sheet."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


# What most charts compare.
COMPARED = (Correctness.RIGHT, Correctness.WRONG)


def correctness_of(rollout: ScoredRollout) -> Correctness:
    """Return the side of a rollout; without an accuracy it is unknown, never wrong."""
    if rollout.acc is None:
        return Correctness.UNKNOWN
    return Correctness.RIGHT if rollout.acc >= 0.5 else Correctness.WRONG


def by_correctness(rollouts: Iterable[ScoredRollout]) -> dict[Correctness, list[ScoredRollout]]:
    """Return the rollouts of each side, all sides present."""
    sides: dict[Correctness, list[ScoredRollout]] = {side: [] for side in Correctness}
    for rollout in rollouts:
        sides[correctness_of(rollout)].append(rollout)
    return sides


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over relative positions: (position, share of nodes), both in [0, 1]."""

    points: tuple[tuple[float, float], ...]
    rollouts: int


def reached_by_order(rollouts: Iterable[ScoredRollout], bins: int = ORDER_BINS) -> Curve:
    """Return which share of the nodes is reached, by their place in the problem's order.

    Node i of k (from 1) stands at (i - 0.5) / k.  All nodes of all rollouts count alike.
    """
    met, seen = [0] * bins, [0] * bins
    used = 0
    for rollout in rollouts:
        nodes = len(rollout.matched)
        used += nodes > 0
        for at, matched in enumerate(rollout.matched):
            slot = (2 * at + 1) * bins // (2 * nodes)
            seen[slot] += 1
            met[slot] += matched
    points = tuple(((i + 0.5) / bins, met[i] / seen[i]) for i in range(bins) if seen[i])
    return Curve(points, used)


def coverage_by_position(rollouts: Iterable[ScoredRollout], steps: int = TEXT_STEPS) -> Curve:
    """Return mean coverage after reading the first share of the text, from 0 to all of it.

    A node counts from the end of its first hit on.  Rollouts without spans, without nodes or
    without text are left out.  The curve ends at their mean NCR.
    """
    arrived = [0.0] * (steps + 1)
    used = 0
    for rollout in rollouts:
        if rollout.spans is None or not rollout.spans or not rollout.num_chars:
            continue
        used += 1
        for span in rollout.spans:
            if span is not None:
                slot = -(-span[1] * steps // rollout.num_chars)
                arrived[min(slot, steps)] += 1 / len(rollout.spans)
    if not used:
        return Curve((), 0)
    points, total = [], 0.0
    for slot, share in enumerate(arrived):
        total += share
        points.append((slot / steps, total / used))
    return Curve(tuple(points), used)


@dataclass(frozen=True, slots=True)
class ProblemSummary:
    """How the rollouts of one problem fared; None where no rollout says it.

    ``acc`` is over rollouts that have one; ``node_rates`` are (k,) shares of rollouts that reached
    each node, empty where none was matched.
    """

    problem_id: str
    data_source: str
    difficulty: str
    rollouts: int
    acc: float | None
    ncr: float | None
    ncr_right: float | None
    ncr_wrong: float | None
    labels: tuple[str, ...]
    is_final: tuple[bool, ...]
    node_rates: tuple[float, ...]

    @property
    def surprise(self) -> float:
        """How far accuracy and coverage disagree, in [0, 1]; -1 where either is unknown."""
        return -1.0 if self.acc is None or self.ncr is None else abs(self.acc - self.ncr)


def summarize_problems(
    rollouts: Iterable[ScoredRollout], problems: Mapping[str, ProblemFacts]
) -> list[ProblemSummary]:
    """Return one summary for each problem that has rollouts, in order of first appearance."""
    groups: dict[str, list[ScoredRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    return [_summarize(key, group, problems.get(key)) for key, group in groups.items()]


def _summarize(
    problem_id: str, rollouts: Sequence[ScoredRollout], facts: ProblemFacts | None
) -> ProblemSummary:
    scored = [(r.acc, r.ncr) for r in rollouts if r.ncr is not None]
    return ProblemSummary(
        problem_id=problem_id,
        data_source=rollouts[0].data_source if facts is None else facts.data_source,
        difficulty="" if facts is None else facts.difficulty or "",
        rollouts=len(rollouts),
        acc=_mean([r.acc for r in rollouts if r.acc is not None]),
        ncr=_mean([ncr for _, ncr in scored]),
        ncr_right=_mean([ncr for acc, ncr in scored if acc == 1.0]),
        ncr_wrong=_mean([ncr for acc, ncr in scored if acc == 0.0]),
        labels=() if facts is None else facts.labels,
        is_final=() if facts is None else facts.is_final,
        node_rates=tuple(
            sum(hits) / len(hits)
            for hits in zip(*(r.matched for r in rollouts if r.matched), strict=True)
        ),
    )


def _mean(values: Sequence[float] | Floats) -> float | None:
    return float(np.mean(values)) if len(values) else None


@dataclass(frozen=True, slots=True)
class RewardFigures:
    """What one reward does to rollouts that exist; nothing is trained.

    Attributes:
        signal: share of groups (rollouts of one model for one problem) whose rewards differ:
            GRPO takes its gradient from differences inside a group, and a group of equal rewards
            gives none; None without a group of two.
        misordered: share of pairs of a right and a wrong rollout in one group in which the wrong
            one gets as much or more, which is what the process part costs in honesty; None
            without such a pair.
    """

    name: str
    alpha: float | None
    right: float | None
    wrong: float | None
    signal: float | None
    misordered: float | None

    @property
    def gap(self) -> float | None:
        """How much more a right rollout gets than a wrong one, on average."""
        return None if self.right is None or self.wrong is None else self.right - self.wrong


class RewardStudy:
    """Acc and NCR of rollouts in their groups, ready for any reward.

    Rollouts whose Acc or NCR is unknown are left out; a group needs two that are left.
    """

    def __init__(self, rollouts: Iterable[ScoredRollout]) -> None:
        """Take the rollouts; only numbers are kept."""
        groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for rollout in rollouts:
            if rollout.acc is not None and rollout.ncr is not None:
                key = (rollout.model, rollout.problem_id)
                groups.setdefault(key, []).append((rollout.acc, rollout.ncr))
        self.groups = sum(len(group) > 1 for group in groups.values())
        self.rollouts = sum(len(group) for group in groups.values())
        flat = np.array([pair for g in groups.values() for pair in g], dtype=np.float64)
        self._acc, self._ncr = flat.reshape(-1, 2).T
        sizes = np.array([len(group) for group in groups.values()], dtype=np.int64)
        self._starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        self._several = sizes > 1
        self._counts = _pair_counts(groups.values())

    def figures(self, name: str, spec: RewardSpec, alpha: float | None = None) -> RewardFigures:
        """Return what a reward does; O(rollouts)."""
        rewards = spec.compute(self._acc, self._ncr)
        right = self._acc >= 0.5
        return RewardFigures(
            name,
            alpha,
            _mean(rewards[right]),
            _mean(rewards[~right]),
            self._signal(rewards),
            self._misordered(spec),
        )

    def _signal(self, rewards: Floats) -> float | None:
        if not self.groups:
            return None
        spread = np.maximum.reduceat(rewards, self._starts) - np.minimum.reduceat(
            rewards, self._starts
        )
        return float(np.mean(spread[self._several] > _EQUAL))

    def _misordered(self, spec: RewardSpec) -> float | None:
        """Count pairs by their two NCRs, of which there are few distinct ones."""
        if not self._counts:
            return None
        pairs = np.array([(*key, n) for key, n in self._counts.items()], dtype=np.float64)
        of_right = spec.compute(np.ones(len(pairs)), pairs[:, 0])
        of_wrong = spec.compute(np.zeros(len(pairs)), pairs[:, 1])
        weights = pairs[:, 2]
        return float(weights[of_wrong >= of_right - _EQUAL].sum() / weights.sum())


def _pair_counts(
    groups: Iterable[Sequence[tuple[float, float]]],
) -> Counter[tuple[float, float]]:
    """Return how many pairs of (NCR of a right, NCR of a wrong rollout of its group) there are."""
    counts: Counter[tuple[float, float]] = Counter()
    for group in groups:
        right = Counter(ncr for acc, ncr in group if acc >= 0.5)
        wrong = Counter(ncr for acc, ncr in group if acc < 0.5)
        for of_right, n in right.items():
            for of_wrong, m in wrong.items():
                counts[of_right, of_wrong] += n * m
    return counts


def alpha_sweep(study: RewardStudy, alphas: Sequence[float] = ALPHAS) -> list[RewardFigures]:
    """Return the figures of the linear reward (equation 3 of the paper) for each alpha."""
    return [study.figures(f"linear, α = {a:g}", RewardSpec.linear(a), a) for a in alphas]


def fixed_rewards(study: RewardStudy) -> list[RewardFigures]:
    """Return the figures of the rewards without alpha: max (equation 4) and the outcome."""
    return [
        study.figures("max(Acc, NCR)", RewardSpec.maximum()),
        study.figures("outcome (Acc alone)", RewardSpec.outcome()),
    ]


def choose(
    rollouts: Sequence[ScoredRollout], diagnoses: Mapping[Place, Diagnosed], limit: int
) -> list[ScoredRollout]:
    """Return at most ``limit`` rollouts in the order of the files, those with nodes first.

    Rollouts are sorted into strata by model and by kind (their diagnosis where there is one, else
    right or wrong; a status other than OK is a kind of its own), and the strata take turns.
    Inside a stratum the first are those in which accuracy and coverage disagree most, and after
    them, one for one, rollouts that a digest of their names picks: the typical beside the extreme.
    Equal input gives an equal choice.

    Of rollouts without nodes, which show no hits, a tenth of the page is kept for a few of each
    status, or what the others leave free.
    """
    chosen = list(rollouts)
    if len(rollouts) > limit:
        nodeless = _in_turns([r for r in rollouts if not r.matched], diagnoses, limit)
        kept = min(len(nodeless), limit // _KEPT_FOR_NODELESS)
        chosen = _in_turns([r for r in rollouts if r.matched], diagnoses, limit - kept)
        chosen += nodeless[: limit - len(chosen)]
    return sorted(chosen, key=lambda r: (not r.matched, r.file, r.row))


def _in_turns(
    rollouts: Sequence[ScoredRollout], diagnoses: Mapping[Place, Diagnosed], limit: int
) -> list[ScoredRollout]:
    """Return at most ``limit`` rollouts, one of each stratum in turn."""
    strata: dict[tuple[str, str], list[ScoredRollout]] = {}
    for rollout in rollouts:
        strata.setdefault((kind_of(rollout, diagnoses), rollout.model), []).append(rollout)
    ordered = [
        _telling_first(strata[kind, model])[: OF_A_STATUS if kind in Status.__members__ else None]
        for kind, model in sorted(strata)
    ]
    turns = chain.from_iterable(zip_longest(*ordered))
    return [rollout for rollout in turns if rollout is not None][:limit]


def kind_of(rollout: ScoredRollout, diagnoses: Mapping[Place, Diagnosed]) -> str:
    """Return what a rollout is an example of."""
    if rollout.status is not Status.OK:
        return rollout.status.value
    found = diagnoses.get((rollout.file, rollout.row))
    return correctness_of(rollout).value if found is None else found.diagnosis.words


def _telling_first(rollouts: Sequence[ScoredRollout]) -> list[ScoredRollout]:
    extreme = sorted(rollouts, key=lambda r: (-_disagreement(r), r.file, r.row))
    typical = sorted(rollouts, key=_shuffled)
    woven = (each for pair in zip(extreme, typical, strict=True) for each in pair)
    return list({(rollout.file, rollout.row): rollout for rollout in woven}.values())


def _disagreement(rollout: ScoredRollout) -> float:
    known = rollout.acc is not None and rollout.ncr is not None
    return abs((rollout.acc or 0.0) - (rollout.ncr or 0.0)) if known else -1.0


def _shuffled(rollout: ScoredRollout) -> bytes:
    return sha256(f"{rollout.file}:{rollout.row}:{rollout.rollout_id!r}".encode()).digest()


class BlockKind(StrEnum):
    """What the page does with a block."""

    SHOWN = "shown"
    FOLDED = "folded"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the response: ``pieces`` are empty where it is left out."""

    kind: BlockKind
    chars: int
    pieces: tuple[Piece, ...] = ()


def cut(response: str, marks: Sequence[Mark], max_chars: int) -> list[Block]:
    """Return the blocks of a response in order; together they are as long as it is.

    Short responses are whole.  Of a long one the beginning, the end and the neighbourhood of every
    hit are shown; what lies between is folded away, and beyond the bound it is left out.

    Args:
        max_chars: code points that may stand in the page, shown or folded.
    """
    marks = [mark for mark in marks if 0 <= mark.start < mark.end <= len(response)]
    wanted: list[tuple[int, int, BlockKind]] = []
    at = 0
    for start, end in parts_to_show(response, marks):
        wanted += [(at, start, BlockKind.FOLDED), (start, end, BlockKind.SHOWN)]
        at = end
    wanted = [part for part in wanted if part[0] < part[1]]
    # What is shown goes before what is folded away.
    fits: set[int] = set()
    for kind in (BlockKind.SHOWN, BlockKind.FOLDED):
        for start, end, of in wanted:
            if of is kind and end - start <= max_chars:
                max_chars -= end - start
                fits.add(start)
    blocks: list[Block] = []
    for start, end, kind in wanted:
        if start in fits:
            blocks.append(Block(kind, end - start, cut_at_marks(response, marks, start, end)))
        elif blocks and blocks[-1].kind is BlockKind.LEFT_OUT:
            blocks[-1] = Block(BlockKind.LEFT_OUT, blocks[-1].chars + end - start)
        else:
            blocks.append(Block(BlockKind.LEFT_OUT, end - start))
    return blocks


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
        without_final: NCR without final nodes, None where there are no others or no final ones.
    """

    anchor: str
    rollout: ScoredRollout
    side: Correctness
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
        if self.side is Correctness.UNKNOWN:
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
    diagnoses: Mapping[Place, Diagnosed],
    settings: ReportSettings,
) -> list[RolloutView]:
    """Read the chosen rollouts again and cut their texts.

    The last ones get less where ``max_page_chars`` code points are in the page.
    """
    responses = scored.responses(chosen)
    nodes = _nodes_of(dataset, {rollout.problem_id for rollout in chosen}, scored.on_error)
    views = []
    used: set[str] = set()
    left = settings.max_page_chars
    for rollout in chosen:
        view = _view(
            scored,
            rollout,
            responses[rollout.file, rollout.row],
            nodes.get(rollout.problem_id, ()),
            diagnoses.get((rollout.file, rollout.row)),
            _unused(anchor_of(rollout), used),
            min(settings.max_chars, left),
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
    found: Diagnosed | None,
    anchor: str,
    max_chars: int,
) -> RolloutView:
    spans = rollout.spans or ()
    marks = [Mark(*span, number) for number, span in enumerate(spans, start=1) if span is not None]
    blocks = tuple(cut(response, marks, max_chars))
    facts = scored.facts(rollout)
    text = "" if facts is None else facts.problem
    return RolloutView(
        anchor=anchor,
        rollout=rollout,
        side=correctness_of(rollout),
        diagnosis="" if found is None else found.diagnosis.words,
        reason="" if found is None else found.reason,
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
        left_out=sum(block.chars for block in blocks if block.kind is BlockKind.LEFT_OUT),
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
