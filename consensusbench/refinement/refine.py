"""Choose the nodes of one problem among its candidates (paper section 3.2, Stage 3).

What restates the problem, is trivial, says too little, is reached too rarely or is implied by
another candidate goes; of what is left the most informative and best supported stay.  Each
step names what it drops, so that the audit file accounts for every candidate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from consensusbench.extraction.support import find_mentions
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction
from consensusbench.refinement.information import gives_number, information_of, is_identity
from consensusbench.refinement.settings import RefineSettings
from consensuspr.core import Matcher
from consensuspr.data import Problem

# Information beyond this makes a node no better: a page of algebra is nothing to look for.
ENOUGH_INFORMATION = 12.0


def refine(
    problem: Problem, extraction: Extraction, rollouts: int, settings: RefineSettings
) -> Extraction:
    """Return the nodes of a problem in order of position, and everything dropped so far.

    Args:
        problem: without nodes; its text is what a restatement restates.
        extraction: of stage 2.
        rollouts: correct rollouts that stage 2 looked at.
        settings: the thresholds.
    """
    dropped: list[Dropped] = []

    def keep(
        candidates: Sequence[Candidate],
        reason: str,
        fault: Callable[[Candidate], str | None],
    ) -> list[Candidate]:
        kept = []
        for candidate in candidates:
            detail = fault(candidate)
            if detail is None:
                kept.append(candidate)
            else:
                dropped.append(_dropped(candidate, reason, detail))
        return kept

    left = _without_echo(problem, extraction.candidates, dropped)
    left = keep(left, "support", lambda one: _too_rare(one, rollouts, settings))
    left = keep(left, "trivial", _trivial)
    left = keep(left, "not distinctive", lambda one: _too_little(one, settings.min_information))
    ranked = sorted(left, key=lambda one: (-_worth(one, rollouts), one.position, one.label))
    ranked = _without_pieces(ranked, dropped)
    ranked = _few_finals(ranked, settings.max_finals, dropped)
    for one in ranked[settings.max_nodes :]:
        detail = f"{settings.max_nodes} others say more or are reached more often"
        dropped.append(_dropped(one, "beyond the maximum", detail))
    chosen = sorted(ranked[: settings.max_nodes], key=lambda one: (one.position, one.label))
    return Extraction(tuple(chosen), (*extraction.dropped, *dropped))


def _dropped(one: Candidate, reason: str, detail: str) -> Dropped:
    return Dropped("refine", reason, detail, one.label, one.expressions, one.support)


def _without_echo(
    problem: Problem, candidates: Sequence[Candidate], dropped: list[Dropped]
) -> list[Candidate]:
    """Take away what the problem's own text states; a candidate keeps its other wordings."""
    kept: list[Candidate] = []
    for one in candidates:
        forms = (*one.expressions, *one.derived)
        echoed = Matcher([[form] for form in forms]).match(problem.problem)
        split = len(one.expressions)
        expressions = tuple(
            form
            for form, is_echo in zip(one.expressions, echoed[:split], strict=True)
            if not is_echo
        )
        derived = tuple(
            form for form, is_echo in zip(one.derived, echoed[split:], strict=True) if not is_echo
        )
        if not any(echoed):
            kept.append(one)
        elif expressions and one.label in expressions:
            kept.append(replace(one, expressions=expressions, derived=derived))
        else:
            detail = "it stands in the text of the problem"
            dropped.append(_dropped(one, "restates the problem", detail))
    return kept


def _too_rare(one: Candidate, rollouts: int, settings: RefineSettings) -> str | None:
    share = settings.min_share if gives_number(one.label) else settings.min_formula_share
    needed = max(settings.min_support, math.ceil(share * rollouts - 1e-9))
    if one.support >= needed:
        return None
    return f"reached by {one.support} of {rollouts} rollouts, {needed} are needed"


def _trivial(one: Candidate) -> str | None:
    return "an operation that changes nothing" if all(map(is_identity, one.expressions)) else None


def _too_little(one: Candidate, least: float) -> str | None:
    information = information_of(one.label)
    if information >= least:
        return None
    return f"information {information:g}, {least:g} are needed"


def _without_pieces(candidates: Sequence[Candidate], dropped: list[Dropped]) -> list[Candidate]:
    """Of two candidates one of which implies the other, keep the one that comes first.

    A candidate implies another that stands in all of its wordings: whoever reaches it gets both.

    Args:
        candidates: best first.
        dropped: taken-away candidates are added.
    """
    implied = _implied(candidates)
    kept: list[int] = []
    for index, one in enumerate(candidates):
        whole = next(
            (other for other in kept if other in implied[index] or index in implied[other]), None
        )
        if whole is None:
            kept.append(index)
        else:
            detail = f"implies or is implied by {candidates[whole].label!r}"
            dropped.append(_dropped(one, "implied", detail))
    return [candidates[index] for index in kept]


def _implied(candidates: Sequence[Candidate]) -> list[set[int]]:
    """Return for each candidate the indices of those that stand in all of its wordings.

    Every wording is read once, for all candidates together: a matcher for each pair of several
    hundred candidates would take a minute.
    """
    owners = [index for index, one in enumerate(candidates) for _ in one.expressions]
    wordings = [CorrectRollout("", "", text) for one in candidates for text in one.expressions]
    found = find_mentions([(*one.expressions, *one.derived) for one in candidates], wordings)
    implied: list[set[int]] = [set() for _ in candidates]
    for part, mentions in enumerate(found):
        holding = Counter(owners[mention.rollout] for mention in mentions)
        for index, count in holding.items():
            if count == len(candidates[index].expressions):
                implied[index].add(part)
    return implied


def _few_finals(ranked: Sequence[Candidate], limit: int, dropped: list[Dropped]) -> list[Candidate]:
    """Keep the best nodes that state the final answer; the rest restate it."""
    kept: list[Candidate] = []
    finals = 0
    for one in ranked:
        finals += one.is_final
        if one.is_final and finals > limit:
            detail = f"{limit} others state the final answer"
            dropped.append(_dropped(one, "restates the answer", detail))
        else:
            kept.append(one)
    return kept


def _worth(one: Candidate, rollouts: int) -> float:
    """Return how much a node is worth: the share of rollouts that reach it, by what it says."""
    return one.support / max(1, rollouts) * min(information_of(one.label), ENOUGH_INFORMATION)
