"""The wordings of one claimed node, sorted: which a rollout states, which are out and why.

A model's wording counts for nothing by itself.  It must say something, must not be false,
must not be in the problem already, and must occur in a correct rollout: literally, or in a
form that is provably equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from consensusbench.extraction.llm.reply import ClaimedNode
from consensusbench.extraction.llm.settings import LlmSettings
from consensusbench.extraction.same import Wording, normal_form, read_wording
from consensusbench.extraction.support import Mention, find_mentions
from consensusbench.extraction.truth import Truth, truth_of
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem

# Words of a proposition without a number or a sign; fewer say nothing ("so", "the answer").
MIN_WORDS = 3

_SIGNIFICANT = re.compile(r"[\d=<>≤≥≠≈≡+*/^√∈⊂⊥∥]")
_WORD = re.compile(r"[^\W\d_]+")


class Reason(StrEnum):
    """Why a wording, or a node all of whose wordings it holds for, is out."""

    OVER_LIMIT = "over the limit"
    NO_STATEMENT = "no statement"
    FALSE = "false"
    RESTATEMENT = "in the problem"


@dataclass(slots=True)
class Stated:
    """A wording that correct rollouts state.

    Attributes:
        wording: what can be proved about it.
        literal: mentions of just this wording.
        reached: mentions of it and of its derived forms.
    """

    wording: Wording
    literal: list[Mention]
    reached: list[Mention]


@dataclass(slots=True)
class SortedWordings:
    """The wordings of one claimed node.

    Attributes:
        stated: those that some correct rollout states.
        unseen: those that none does; good only if equal to one that is stated.
        out: the others, by reason.
    """

    stated: list[Stated] = field(default_factory=list)
    unseen: list[Wording] = field(default_factory=list)
    out: dict[Reason, list[str]] = field(default_factory=dict)


def sort_wordings(
    claims: Sequence[ClaimedNode],
    problem: Problem,
    rollouts: Sequence[CorrectRollout],
    settings: LlmSettings,
) -> list[SortedWordings]:
    """Look for the wordings of all claimed nodes in the problem and in the rollouts.

    Returns:
        (n_claims,) in their order.
    """
    sorted_nodes = [SortedWordings() for _ in claims]
    wordings: dict[str, Wording] = {}
    wanted: list[list[str]] = []
    for claim, node in zip(claims, sorted_nodes, strict=True):
        texts = list(_sound(claim, node, settings))
        wordings |= {text: read_wording(text) for text in texts if text not in wordings}
        wanted.append(texts)
    alone = [(text,) for text in wordings]
    with_forms = [(text, *_equal_forms(wording)) for text, wording in wordings.items()]
    found = find_mentions([*alone, *with_forms], rollouts)
    literal = dict(zip(wordings, found[: len(wordings)], strict=True))
    reached = dict(zip(wordings, found[len(wordings) :], strict=True))
    in_problem = set(_in_text(problem.problem, list(wordings), with_forms))
    for node, texts in zip(sorted_nodes, wanted, strict=True):
        for text in texts:
            wording = wordings[text]
            if text in in_problem:
                _leave_out(node, Reason.RESTATEMENT, text)
            elif not reached[text]:
                node.unseen.append(wording)
            elif not (reached_truly := _true_ones(reached[text])):
                _leave_out(node, Reason.FALSE, text)
            else:
                node.stated.append(Stated(wording, _true_ones(literal[text]), reached_truly))
    return sorted_nodes


def _true_ones(mentions: Iterable[Mention]) -> list[Mention]:
    """Drop what is false in the words of the rollout.

    It may have the normal form of something true: ``12*50=6`` has that of ``12*50%=6``.
    """
    return [mention for mention in mentions if truth_of(mention.wording) is not Truth.FALSE]


def _sound(claim: ClaimedNode, node: SortedWordings, settings: LlmSettings) -> Iterator[str]:
    """Yield the wordings that are worth looking for, each normal form once."""
    seen: set[str] = set()
    looked_at = 0
    for raw in (*claim.expressions, *claim.rewritten):
        text = raw.strip()
        if len(text) > settings.max_wording_chars:
            _leave_out(node, Reason.OVER_LIMIT, text[: settings.max_wording_chars])
            continue
        normal = normal_form(text)
        if normal in seen:
            continue
        seen.add(normal)
        if looked_at == settings.max_wordings:
            _leave_out(node, Reason.OVER_LIMIT, text)
        elif not _says_something(normal):
            _leave_out(node, Reason.NO_STATEMENT, text)
        elif truth_of(text) is Truth.FALSE:
            _leave_out(node, Reason.FALSE, text)
        else:
            looked_at += 1
            yield text


def _leave_out(node: SortedWordings, reason: Reason, text: str) -> None:
    node.out.setdefault(reason, []).append(text)


def _says_something(normal: str) -> bool:
    if _SIGNIFICANT.search(normal):
        return len(normal) > 1  # a digit stands everywhere
    return len(_WORD.findall(normal)) >= MIN_WORDS


def _equal_forms(wording: Wording) -> tuple[str, ...]:
    """Return the derived forms that say as much as the wording.

    A chain's forms are its parts.  That rollouts state a part of a chain does not make
    anybody state the chain, which a model may have put together.
    """
    return () if wording.is_chain else wording.derived


def _in_text(text: str, names: Sequence[str], groups: Sequence[Sequence[str]]) -> Iterable[str]:
    """Return the names of the groups that a text states."""
    found = find_mentions(groups, [CorrectRollout("", "", text)])
    return (name for name, mentions in zip(names, found, strict=True) if mentions)
