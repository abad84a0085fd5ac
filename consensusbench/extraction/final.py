"""Whether a node states the final answer.

Such nodes tell a right rollout from a wrong one by themselves, so that coverage is
reported with and without them.  Decided by value, with the comparison that scores answers;
what only computer algebra could decide counts as no.
"""

from __future__ import annotations

from consensuspr.core.expansion.forms import value_in_lowest_terms
from consensuspr.core.expansion.lexer import Kind, tokenize
from consensuspr.core.expansion.statement import parse_statement
from consensuspr.core.expansion.tree import Expression
from consensuspr.scoring.answers.compare import compare
from consensuspr.scoring.answers.extract import (
    MAX_ANSWER_CHARS,
    extract_boxed,
    extract_boxed_run,
    extract_gsm8k,
)
from consensuspr.scoring.answers.forms import Form, form_of
from consensuspr.scoring.answers.prose import answer_in_prose

_EQUALITIES = ("=", "≈", "≡")


def states_answer(expression: str, ground_truth: str | None) -> bool:
    """Tell whether an expression says what the ground truth says.

    An equation does so if the answer is one of its sides, other text if the answer is its
    last number or formula.

    Args:
        expression: plain text or LaTeX; read up to ``MAX_ANSWER_CHARS``.
        ground_truth: the answer as a dataset gives it; None where unknown.
    """
    if ground_truth is None:
        return False
    gold = form_of(_bare(ground_truth))
    text = expression.strip()[:MAX_ANSWER_CHARS]
    if not gold.text or not text:
        return False
    sides = _sides(text)
    if any(_equal(gold, side) for side in sides):
        return True
    statement = parse_statement(text)
    if statement is None:
        answer = answer_in_prose(text) if len(sides) == 1 else None
        return answer is not None and _equal(gold, answer)
    if set(statement.relations) <= set(_EQUALITIES):
        return any(_has_value(side, gold) for side in statement.sides)
    return False


def _equal(gold: Form, text: str) -> bool:
    return compare(gold, form_of(text))[0] is True


def _has_value(side: Expression, gold: Form) -> bool:
    """Tell whether a side, its units dropped, is the answer as a number."""
    value = value_in_lowest_terms(side)
    return value is not None and gold.value is not None and value == gold.value.number


def _sides(text: str) -> list[str]:
    """Return the whole and, where equalities alone join them, what stands between the signs."""
    sides = [text]
    start = depth = 0
    for token in tokenize(text):
        if token.kind is Kind.OPEN:
            depth += 1
        elif token.kind is Kind.CLOSE:
            depth -= 1
        elif token.kind is Kind.RELATION and depth == 0:
            if token.text not in _EQUALITIES:
                return [text]
            sides.append(text[start : token.start].strip())
            start = token.end
    if start:
        sides.append(text[start:].strip())
    return [side for side in sides if side]


def _bare(ground_truth: str) -> str:
    """Return the answer within what a dataset gives: bare, boxed, or behind ``####``."""
    found = None
    if "\\boxed" in ground_truth or "\\fbox" in ground_truth:
        found = extract_boxed_run(ground_truth) or extract_boxed(ground_truth)
    elif "####" in ground_truth:
        found = extract_gsm8k(ground_truth)
    text = ground_truth if found is None else found.answer
    return text.strip()[:MAX_ANSWER_CHARS]
