"""Which of the correct rollouts state something, where, and in which words.

The matcher decides, the same that will score rollouts later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from consensusbench.extraction.statements import lonely_brackets, normal_form
from consensusbench.extraction.types import CorrectRollout
from consensuspr.core import Hit, Matcher, expression_keys

# Expressions and derived forms.  Only expressions reach equal equations.
Group: TypeAlias = tuple[Sequence[str], Sequence[str]]

# A wording that is longer in the rollout than in its normal form by more than this holds
# white space or typesetting that nobody wants to read in a dataset.
MAX_WORDING_GROWTH = 4

# Of the expressions of one matcher; the core's limit is 16 MiB of patterns.
MAX_MATCHER_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class Mention:
    """The first place where a rollout states something.

    Attributes:
        rollout: index among the rollouts that were looked at.
        position: place of its beginning, from 0 (start of the response) to 1 (end).
        wording: the words that stand there, or the expression that was searched for where the
            place alone reads badly (an open bracket, a page of white space).
    """

    rollout: int
    position: float
    wording: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What a node's mentions come to; the position is the median of the first ones, from 0 to 1."""

    support: int
    num_models: int
    position: float


def find_mentions(
    groups: Sequence[Group], rollouts: Sequence[CorrectRollout], statements: bool = True
) -> list[list[Mention]]:
    """Return the mentions of each group of expressions, at most one a rollout, in their order.

    Where an expression stands as written, that is the mention, and only else a statement of the
    same value and operands, or an equal equation.

    Args:
        groups: (n,) expressions and derived forms any of which will do, as of a node.
        rollouts: the correct rollouts of one problem.
        statements: whether such a statement is a mention at all.

    Returns:
        (n,) lists.
    """
    found: list[list[Mention]] = []
    for batch in _batches(groups):
        expressions, derived = zip(*batch, strict=True)
        written = Matcher(expressions, statements=False, derived=derived)
        # The rollouts are right, so that their programs did compute what they state.
        stated = None
        if statements:
            stated = Matcher(expressions, derived=derived, code="computed")
        mentions: list[list[Mention]] = [[] for _ in batch]
        for index, rollout in enumerate(rollouts):
            hits = written.hits(rollout.response)
            if stated is not None and None in hits:
                others = stated.hits(rollout.response)
                hits = [hit or other for hit, other in zip(hits, others, strict=True)]
            for own, hit in zip(mentions, hits, strict=True):
                if hit is not None:
                    position = hit.start / len(rollout.response)
                    own.append(Mention(index, position, _words(rollout.response, hit)))
        found.extend(mentions)
    return found


def reach_of(mentions: Sequence[Mention], rollouts: Sequence[CorrectRollout]) -> Reach:
    """Return support, models and median position; position 0 where there is no mention."""
    stated_by = {mention.rollout for mention in mentions}
    models = {rollouts[index].model for index in stated_by}
    place = median(mention.position for mention in mentions) if mentions else 0.0
    return Reach(len(stated_by), len(models), place)


def beyond(
    text: str, expressions: Sequence[str], derived: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the expressions, and the derived forms, that a text does not hold."""
    # Derived forms reach no node as equations: `2*x=6*L` of `2x = 6 L` would, whatever the numbers.
    nodes = [*([form] for form in expressions), *([] for _ in derived)]
    forms = [*([] for _ in expressions), *([form] for form in derived)]
    held = Matcher(nodes, derived=forms).match(text)
    own = zip(expressions, held, strict=False)
    rest = zip(derived, held[len(expressions) :], strict=True)
    return (
        tuple(form for form, is_held in own if not is_held),
        tuple(form for form, is_held in rest if not is_held),
    )


def _batches(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Yield the groups in order, as many together as one matcher holds with ease."""
    batch: list[Group] = []
    chars = 0
    for group in groups:
        size = sum(len(form) for forms in group for form in forms)
        if batch and chars + size > MAX_MATCHER_CHARS:
            yield batch
            batch, chars = [], 0
        batch.append(group)
        chars += size
    if batch:
        yield batch


def _words(response: str, hit: Hit) -> str:
    """Return what stands at a hit, if it says as much by itself as the expression does."""
    expression = hit.expression.strip()
    words = response[hit.start : hit.end]
    if len(words) > MAX_WORDING_GROWTH * max(16, len(expression)) or lonely_brackets(words):
        return expression
    stated = expression_keys(words)
    if normal_form(words) == normal_form(expression) or stated == expression_keys(expression) != []:
        return words
    return expression
