"""The ways of writing one sum: order of the terms, and brackets around some of them."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from consensuspr.core.expansion.cost import MAX_PERMUTED, Cost


@lru_cache(maxsize=1024)
def sum_templates(signs: str) -> tuple[tuple[int, str], ...]:
    """Return ``(cost, template)`` pairs for terms with these signs, cheapest first.

    Args:
        signs: one ``+`` or ``-`` per term.

    Returns:
        Format strings whose field i takes term i.  A form never begins with a minus
        sign unless all terms are negative.
    """
    identity = tuple(range(len(signs)))
    found: dict[str, int] = {_in_order(signs, identity): 0}
    if len(signs) <= MAX_PERMUTED and "+" in signs:
        for order in permutations(identity):
            if signs[order[0]] == "+":
                found.setdefault(_in_order(signs, order), Cost.ORDER)
        for template in _bracketed(signs):
            found.setdefault(template, Cost.BRACKET)
    return tuple(sorted(((cost, text) for text, cost in found.items()), key=lambda form: form[0]))


def _in_order(signs: str, order: tuple[int, ...]) -> str:
    text = "".join(f"{signs[index]}{{{index}}}" for index in order)
    return text[1:] if text[0] == "+" else text


def _bracketed(signs: str) -> list[str]:
    """Return ``a-(b+c)`` and ``(a+b)-c`` for what is taken away and what it is taken from."""
    added = [index for index, sign in enumerate(signs) if sign == "+"]
    taken = [index for index, sign in enumerate(signs) if sign == "-"]
    if not taken:
        return []
    forms = []
    plus = _in_order(signs, tuple(added))
    if len(taken) > 1:
        for order in permutations(taken):
            forms.append(f"{plus}-({'+'.join(f'{{{index}}}' for index in order)})")
    if len(added) > 1:
        for order in permutations(added):
            forms.append(f"({_in_order(signs, order)}){_in_order(signs, tuple(taken))}")
    return forms
