"""Claimed nodes to candidates: support is counted, never believed.

What a reply says is a list of suggestions.  A candidate comes out of one only if

1. one statement of it, its anchor, is stated by ``min_support`` of the correct rollouts,
   in wordings that are provably the same statement;
2. every further wording that the model puts beside the anchor is stated by a correct
   rollout, is no mere part of the anchor, and either gives the anchor's value or is
   itself stated by ``min_support`` rollouts without giving another one;
3. a wording that no rollout has (a rewritten form) is provably equal to one that is kept.

The expressions of a candidate are the rollouts' own words, so that not even the spelling is
the model's.  Deviation from the paper (section 3.2), which keeps a model's rewritten forms:
one that is wrong would give reward for a wrong statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consensusbench.extraction.final import states_answer
from consensusbench.extraction.llm.reply import ClaimedNode
from consensusbench.extraction.llm.settings import LlmSettings
from consensusbench.extraction.llm.wording_check import (
    Reason,
    SortedWordings,
    Stated,
    sort_wordings,
)
from consensusbench.extraction.same import (
    Wording,
    forms_beyond,
    group_same,
    normal_form,
    say_the_same,
)
from consensusbench.extraction.support import (
    Mention,
    common_wordings,
    find_mentions,
    reach_of,
)
from consensusbench.extraction.types import (
    Candidate,
    CorrectRollout,
    Dropped,
    Extraction,
    NodeType,
)
from consensusbench.extraction.values import stated_values
from consensuspr.core import Matcher
from consensuspr.core.expansion.statement import parse_statement
from consensuspr.core.expansion.tree import Number
from consensuspr.data import Problem
from consensuspr.scoring.limits import Limits

# Why a wording that got past :mod:`.wording_check` is out of a node that is kept.
_PARTIAL = "partial wording"
_FOREIGN = "foreign wording"
_UNVERIFIED = "unverified wording"
_EXPLAINED = {
    _PARTIAL: "a part of the conclusion, found also where the conclusion is not",
    _FOREIGN: "in a correct rollout, but with nothing to show that it says the same",
    _UNVERIFIED: "in no correct rollout, and not provably equal to a wording that is",
}

# Why a node is out, which reason is told where there are several, and how it is called where
# it holds for single wordings of a node that is kept.
_TOLD = {
    Reason.FALSE: ("false wording", "arithmetic that does not hold"),
    Reason.RESTATEMENT: ("restated wording", "the problem says it"),
    Reason.OVER_LIMIT: ("overlong wording", "longer, or more of one node, than the limits allow"),
    Reason.NO_STATEMENT: ("empty wording", "a single sign, or words that state nothing"),
}
# Of a node, as written and derived: what may be sent with a rollout (docs/datasets.md).
_MAX_FORMS = Limits().max_expressions_per_node
# Of what a reply may hold, in one entry of the audit.
_MAX_SHOWN = 64
_MAX_SHOWN_CHARS = 512


def check_nodes(
    claims: Sequence[ClaimedNode],
    problem: Problem,
    rollouts: Sequence[CorrectRollout],
    settings: LlmSettings,
) -> Extraction:
    """Return the candidates that claimed nodes come to, and all that is dropped.

    Pure: the same arguments give the same extraction.  Takes milliseconds.

    Args:
        claims: as a reply lists them.
        problem: the problem, with its ground truth for ``is_final``.
        rollouts: all correct rollouts, those included that the model was not shown.
        settings: thresholds.
    """
    dropped = [
        _dropped(claim, Reason.OVER_LIMIT.value, f"beyond {settings.max_nodes} nodes in one reply")
        for claim in claims[settings.max_nodes :]
    ]
    claims = claims[: settings.max_nodes]
    made: list[tuple[ClaimedNode, _Node]] = []
    for claim, node in zip(claims, sort_wordings(claims, problem, rollouts, settings), strict=True):
        built = _build(claim, node, rollouts, settings, dropped)
        if built is not None:
            made.append((claim, built))
    kept = _without_duplicates(made, dropped)
    candidates = [_candidate(claim, node, problem, rollouts) for claim, node in kept]
    candidates.sort(key=lambda candidate: candidate.position)
    return Extraction(tuple(candidates), tuple(dropped))


@dataclass(frozen=True, slots=True)
class _Node:
    """A supported node.

    Attributes:
        anchor: the wordings of its anchor, provably one statement.
        label: the anchor's most common original wording.
        expressions: the rollouts' wordings, most common first.
        derived: equal forms that they do not have.
    """

    anchor: Wording
    label: str
    expressions: tuple[str, ...]
    derived: tuple[str, ...]


def _build(
    claim: ClaimedNode,
    node: SortedWordings,
    rollouts: Sequence[CorrectRollout],
    settings: LlmSettings,
    dropped: list[Dropped],
) -> _Node | None:
    """Return the node, or None; what is left out is added to ``dropped`` either way."""
    classes = [
        [node.stated[index] for index in members]
        for members in group_same([stated.wording for stated in node.stated])
    ]
    anchor = _anchor(classes, settings.min_support)
    if anchor is None:
        dropped.append(_nothing_left(claim, node, classes, rollouts, settings))
        return None
    kept = list(anchor)
    out: dict[str, list[str]] = {}
    for members in classes:
        if members is not anchor:
            fault = _fault(members, anchor, settings.min_support)
            if fault is None:
                kept.extend(members)
            else:
                out.setdefault(fault, []).extend(one.wording.text for one in members)
    rewritten, unverified = _proved(node.unseen, kept)
    if unverified:
        out[_UNVERIFIED] = unverified
    for reason, texts in out.items():
        dropped.append(_dropped(claim, reason, _EXPLAINED[reason], texts))
    for early, texts in node.out.items():
        dropped.append(_dropped(claim, *_TOLD[early], texts))
    expressions = _own_words(anchor, kept, settings.max_wordings)
    return _Node(
        anchor[0].wording,
        common_wordings(_mentions(anchor))[0],
        expressions,
        forms_beyond(expressions, rewritten, max(0, _MAX_FORMS - len(expressions))),
    )


def _anchor(classes: Sequence[list[Stated]], min_support: int) -> list[Stated] | None:
    """Return the best supported class; a relation is worth more than any support.

    ``180`` is found wherever ``15*12=180`` is, and in other places.
    """
    supported = [members for members in classes if _support(members) >= min_support]
    return max(
        supported,
        key=lambda members: (_has_relation(members[0].wording), _support(members)),
        default=None,
    )


def _fault(members: Sequence[Stated], anchor: Sequence[Stated], min_support: int) -> str | None:
    """Return why a class does not belong beside the anchor, None where it does."""
    wording = members[0].wording
    if _has_relation(anchor[0].wording) and _is_bare(wording.text):
        return _PARTIAL
    pieces = Matcher([[one.wording.text] for one in members])
    if any(any(pieces.match(one.wording.text)) for one in anchor):
        return _PARTIAL
    values = stated_values(wording.text)
    wanted = stated_values(anchor[0].wording.text)
    if values & wanted:
        return None
    contradicts = bool(values and wanted)
    return _FOREIGN if contradicts or _support(members) < min_support else None


def _proved(unseen: Sequence[Wording], kept: Sequence[Stated]) -> tuple[list[str], list[str]]:
    """Return the wordings in nobody's words that equal a stated one, and the unproved ones."""
    implied = {normal_form(form) for one in kept for form in one.wording.derived}
    # Those that are stated by way of a derived form are in nobody's words either.
    proved = [one.wording.text for one in kept if not one.literal]
    unverified = []
    for wording in unseen:
        if any(say_the_same(wording, one.wording) for one in kept):
            proved.append(wording.text)
        elif wording.normal not in implied:
            unverified.append(wording.text)
    return proved, unverified


def _own_words(anchor: Sequence[Stated], kept: Sequence[Stated], limit: int) -> tuple[str, ...]:
    """Return the rollouts' wordings, most common first; the anchor's are never cut off."""
    ranked = common_wordings(_mentions(kept))
    first = common_wordings(_mentions(anchor))
    within = list(dict.fromkeys(map(normal_form, [*first, *ranked])))[:limit]
    return tuple(text for text in ranked if normal_form(text) in within)


def _without_duplicates(
    made: Sequence[tuple[ClaimedNode, _Node]], dropped: list[Dropped]
) -> list[tuple[ClaimedNode, _Node]]:
    """Keep the first of the nodes that say the same."""
    kept = []
    for members in group_same([node.anchor for _, node in made]):
        first = made[members[0]]
        kept.append(first)
        for index in members[1:]:
            claim, node = made[index]
            detail = f"says the same as {first[1].label!r}"
            dropped.append(_dropped(claim, "duplicate", detail, node.expressions))
    return kept


def _candidate(
    claim: ClaimedNode, node: _Node, problem: Problem, rollouts: Sequence[CorrectRollout]
) -> Candidate:
    """Return the candidate, its support counted as the dataset will show it."""
    mentions = find_mentions([[*node.expressions, *node.derived]], rollouts)[0]
    reach = reach_of(mentions, rollouts)
    return Candidate(
        label=node.label,
        type=_type(node.anchor, claim.type),
        expressions=node.expressions,
        derived=node.derived,
        support=reach.support,
        num_models=reach.num_models,
        position=reach.position,
        is_final=any(states_answer(text, problem.ground_truth) for text in node.expressions),
    )


def _type(wording: Wording, claimed: NodeType) -> NodeType:
    """Return the kind that the form shows; the model's word counts for prose alone."""
    if _has_relation(wording):
        is_equation = any(sign in wording.normal for sign in "=≈")
        return "equation" if is_equation else "proposition"
    statement = parse_statement(wording.text)
    if statement is None:
        return "expression" if claimed == "expression" else "proposition"
    return "value" if isinstance(statement.sides[0], Number) else "expression"


def _has_relation(wording: Wording) -> bool:
    return any(sign in wording.normal for sign in "=<>≤≥≠≈≡")


def _is_bare(text: str) -> bool:
    """Tell whether a text is a value or an operation without a relation."""
    statement = parse_statement(text)
    return statement is not None and not statement.relations


def _support(members: Sequence[Stated]) -> int:
    return len({mention.rollout for one in members for mention in one.reached})


def _mentions(members: Sequence[Stated]) -> list[Mention]:
    """Return all mentions, each once, in the order of the rollouts."""
    found = {mention for one in members for mention in (*one.literal, *one.reached)}
    return sorted(found, key=lambda mention: (mention.rollout, mention.position, mention.wording))


def _nothing_left(
    claim: ClaimedNode,
    node: SortedWordings,
    classes: Sequence[list[Stated]],
    rollouts: Sequence[CorrectRollout],
    settings: LlmSettings,
) -> Dropped:
    """Return why a claimed node has no supported statement."""
    texts = [*claim.expressions, *claim.rewritten]
    if not node.stated and not node.unseen:
        for reason, (_, detail) in _TOLD.items():
            if reason in node.out:
                return _dropped(claim, reason.value, detail, node.out[reason])
    support = max(map(_support, classes), default=0)
    detail = (
        f"{support} of {len(rollouts)} correct rollouts state it, the limit is "
        f"{settings.min_support}"
    )
    if claim.claimed_support is not None:
        detail += f"; the model counted {claim.claimed_support}"
    return _dropped(claim, "unsupported", detail, texts, support)


def _dropped(
    claim: ClaimedNode,
    reason: str,
    detail: str,
    texts: Sequence[str] | None = None,
    support: int | None = None,
) -> Dropped:
    """Return the audit's entry; what the model wrote is cut to a readable length."""
    shown = [*claim.expressions] if texts is None else texts
    return Dropped(
        stage="extract",
        reason=reason,
        detail=detail,
        label=(claim.label.strip() or claim.expressions[0])[:_MAX_SHOWN_CHARS],
        expressions=tuple(text[:_MAX_SHOWN_CHARS] for text in shown[:_MAX_SHOWN]),
        support=support,
    )
