"""Derive the equal forms of a node expression.

A form says what the expression says: true exactly where the expression is.  Only
relations and expressions with an operation are derived from; a bare value or prose is
not.  Renaming a variable is no rewrite here, on purpose: ``n=12`` is not ``x=12``.

Three kinds of rewrite make forms.  An equation *loses one step*: ``5*100+700=1200`` is reached by
many as ``500+700=1200``; the step is exact, so the equation keeps its truth, and it is still an
equation with an operation and its result.  A tree is *written in another order or with other
brackets*, sums and products by templates.  A rational number gets *another spelling*, decimal,
fraction or percent; within a product it is worth more of them than alone, for ``12*0.5`` is also
``12/2``, ``12*1/2`` and ``50%*12``.

Every rewrite has a price, and the cheapest forms are kept.  The prices are set so that what
solutions really write comes first.  Of a true equation of numbers the statement channel finds most
of this by itself: such a form is kept only where it has a value or operands of its own, once
(:func:`novel_forms`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import lru_cache
from itertools import islice, permutations
from math import gcd
from operator import itemgetter
from typing import Final, NamedTuple

from consensuspr.core.expressions.evaluate import (
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
    evaluate,
    is_constant,
)
from consensuspr.core.expressions.sides import Statement, parse_statement
from consensuspr.core.patterns import boxed_content

# Raised whenever any expression can get other forms, or the same ones in another order; a
# dataset prepared with other forms is refused.
EXPANSION_VERSION: Final = "5"

# Sums and products of more operands keep their order: 5! orders would be 120 forms.
MAX_PERMUTED = 4

# Forms of one expression, the expression itself not counted.
MAX_FORMS = 64

# Rewrites that add up to more than this are not combined.
MAX_COST = 5


# Digits of an arithmetic statement in all, from which on it is unlikely to stand in the
# solutions of other problems: 18/3=6 is said in too many to stand for 9*2/3=6, and 8/2=4
# for 8*0.5=4.  Below it, half of what such forms find is found in wrong places.
MIN_DISTINCTIVE_DIGITS = 6

# Combinations of the forms of the parts that are looked at for one whole.
MAX_COMBINATIONS = 48

# A number has a spelling only where it is short.
MAX_DECIMAL_PLACES = 4
MAX_DENOMINATOR = 1000
MAX_NUMERATOR = 1_000_000
MAX_PERCENT = 1000

# What binds a text together, weakest first: it needs brackets inside something stronger.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)

_INTEGER = Spelling.INTEGER  # looked up once: a member of an enumeration is slow to get

# What a factor is to a template.
LITERAL, ONE, SYMBOLIC, BRACKETED, DIVISOR = "n", "1", "s", "b", "d"


class StatementScope(NamedTuple):
    """What holds for the whole statement that a tree is part of.

    Attributes:
        arithmetic: it holds numbers only.  Only then may a factor become a percentage: the
            normal form drops the sign, so that ``25%*x`` would be taken for ``25x``.
        quotients: a factor 1/2 may become a division by 2 and back.
    """

    arithmetic: bool
    quotients: bool


class Cost(IntEnum):
    """The price of one rewrite; prices add up."""

    ORDER = 1  # operands in another order
    SIDES = 4  # the relation read from the right
    NUMBER = 2  # 0.5 as 1/2
    HUNDREDTHS = 2  # 0.25 as 25/100 or 25%
    BRACKET = 3  # (a+b)-c, a*(b/c)
    STEP = 3  # one operation carried out
    PIECE = 1  # a part of a chain of equalities


_SIDES = int(Cost.SIDES)
_MIRRORED = {"=": "=", "≠": "≠", "≈": "≈", "≡": "≡", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class WrittenForm(NamedTuple):
    """One way of writing: its distance from the original, its text, and what binds it."""

    cost: int
    text: str
    level: int


def derive_forms(expression: str) -> list[str]:
    """Return forms that are equal to a node expression, nearest first.

    Args:
        expression: as written in the dataset: plain text or LaTeX, any string.

    Returns:
        At most ``MAX_FORMS`` raw expressions in a fixed order, which take the same way
        through the normal form as the expression itself, each of them novel.  Empty where
        nothing can be derived.
    """
    boxed = boxed_content(expression)
    statement = parse_statement(expression if boxed is None else boxed)
    if statement is None:
        return []
    forms = _candidates(statement)
    if boxed is not None and not statement.relations:
        forms = [f"\\boxed{{{form}}}" for form in forms]  # another way to write the answer
    return list(islice(novel_forms([expression], forms), MAX_FORMS))


def novel_forms(expressions: Iterable[str], forms: Iterable[str]) -> Iterator[str]:
    """Yield the forms that reach what the expressions, and the forms before them, do not.

    A form with keys of the statement channel is one where a key is new, since a text that states
    the form states what has the same keys; any other is one where its normal form is new.
    """
    from consensuspr.core import expression_keys, normalize  # the package imports this module

    expressions = tuple(expressions)
    normals = {"", *map(normalize, expressions)}
    known = {key for text in expressions for key in expression_keys(text)}
    for text in forms:
        keys = expression_keys(text)
        if keys and known.issuperset(keys):
            continue
        normal = normalize(text)
        if normal not in normals:
            known.update(keys)
            normals.add(normal)
            yield text


def _candidates(statement: Statement) -> list[str]:
    """Return the forms of a statement, duplicates included, nearest first."""
    if not statement.relations:
        return _expression_forms(statement.sides[0])
    values = [evaluate(side) for side in statement.sides]
    arithmetic = None not in values
    if arithmetic and statement.dropped_units and not _may_hold(statement, values):
        return []  # a word that was taken for a unit was none
    scope = StatementScope(
        arithmetic, not arithmetic or statement.num_digits >= MIN_DISTINCTIVE_DIGITS
    )
    written = [write(side, scope) for side in statement.sides]
    found: list[tuple[int, str]] = []
    for cost, places in _pieces(statement):
        constant = all(value_in_lowest_terms(statement.sides[i]) is not None for i in places)
        if constant and cost:
            continue  # "2=2" out of "6/3=2=2"
        if len(places) == 2 and statement.sides[places[0]] == statement.sides[places[1]]:
            continue  # A = A
        sides = [_constant(statement.sides[i], scope) if constant else written[i] for i in places]
        relations = statement.relations if len(places) > 2 else statement.relations[:1]
        found.extend(_joined(cost, sides, relations, statement.tail))
    if statement.relations == ["="]:
        found.extend(_stepped(statement, written, scope))
    found.sort(key=operator.itemgetter(0))
    return [text for _, text in found]


def _may_hold(statement: Statement, values: list[Fraction | None]) -> bool:
    """Tell whether an arithmetic statement is no false equation."""
    return set(statement.relations) != {"="} or len(set(values)) == 1


def _constant(tree: Expression, scope: StatementScope) -> list[WrittenForm]:
    """Write a side of 7/2=3.5; values keep their spelling, or it would become 3.5=3.5."""
    if isinstance(tree, Product):
        return _product(tree, scope)  # an operation rather than a value
    return write(tree, scope)[:1]


def _expression_forms(tree: Expression) -> list[str]:
    """Return the forms of an expression without a relation; a bare value has none."""
    if isinstance(tree, (Number, Symbol)) or value_in_lowest_terms(tree) is not None:
        return []
    return [form.text for form in write(tree, StatementScope(arithmetic=False, quotients=True))]


def _pieces(statement: Statement) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the statement itself and, of a chain of equalities, its parts, as places of sides.

    A part of a chain that ends in a constant must hold a constant too: of A=bh/2=24 the
    formula A=bh/2 alone does not say what the chain concludes.
    """
    last = len(statement.sides) - 1
    yield 0, tuple(range(last + 1))
    if last < 2 or set(statement.relations) != {"="}:
        return
    constant = [is_constant(side) for side in statement.sides]
    for pair in [(0, last), *((i, i + 1) for i in range(last))]:
        if not constant[last] or any(constant[i] for i in pair):
            yield Cost.PIECE, pair


def _stepped(
    statement: Statement, written: list[list[WrittenForm]], scope: StatementScope
) -> Iterator[tuple[int, str]]:
    """Yield the forms of an equation after one step on a side whose value is the other side."""
    for place in (0, 1):
        if value_in_lowest_terms(statement.sides[1 - place]) is None:
            continue
        for tree in steps(statement.sides[place]):
            sides = [write(tree, scope), written[1 - place]]
            digits = sum(map(str.isdecimal, sides[0][0].text + sides[1][0].text))
            if digits >= MIN_DISTINCTIVE_DIGITS:
                yield from _joined(Cost.STEP, sides if place == 0 else sides[::-1], ["="], "")


def _joined(
    base: int, sides: list[list[WrittenForm]], relations: list[str], tail: str
) -> Iterator[tuple[int, str]]:
    """Yield every choice of forms of the sides, as written and mirrored, within the cost."""
    mirrored = [_MIRRORED[relation] for relation in reversed(relations)]
    for extra, chosen in combine(sides):
        cost = base + extra
        if cost > MAX_COST:
            return
        texts = [form.text for form in chosen]
        if any(map(operator.eq, texts, texts[1:])):
            continue  # 2*3=2*3
        yield cost, _interleaved(texts, relations) + tail
        if cost + _SIDES <= MAX_COST:
            yield cost + _SIDES, _interleaved(texts[::-1], mirrored) + tail


def _interleaved(texts: list[str], relations: list[str]) -> str:
    text = texts[0]
    for relation, side in zip(relations, texts[1:], strict=True):
        # Apart, since 5!=240 would be read as an inequality.
        apart = " " if relation == "=" and text.endswith("!") else ""
        text += apart + relation + side
    return text


# One operation carried out.


def steps(tree: Expression) -> Iterator[Expression]:
    """Yield the trees that one step leads to: fewer operations, at least one.

    A step carries out everything that is nested; or, of a flat sum, its beginning up to
    some term or the sum of all that is taken away; or, of a flat product, one pair of
    factors.  Its results must be positive and have a short decimal.
    """
    if isinstance(tree, Sum):
        yield from _sum_steps(tree)
    elif isinstance(tree, Product):
        yield from _product_steps(tree)


def _sum_steps(tree: Sum) -> Iterator[Expression]:
    if any(not isinstance(term, Number) for _, term in tree.terms):
        terms = [(sign, number) for sign, term in tree.terms if (number := _result(term))]
        if len(terms) == len(tree.terms) > 1:
            yield Sum(list(terms))
        return
    for length in range(2, len(tree.terms)):
        beginning = _result(Sum(tree.terms[:length]))
        if beginning is not None:
            yield Sum([(1, beginning), *tree.terms[length:]])
    taken = [term for sign, term in tree.terms if sign < 0]
    if 1 < len(taken) < len(tree.terms):
        total = _result(Sum([(1, term) for term in taken]))
        if total is not None:
            yield Sum([*((sign, term) for sign, term in tree.terms if sign > 0), (-1, total)])


def _product_steps(tree: Product) -> Iterator[Expression]:
    factors = tree.factors
    if any(not isinstance(factor, Number) for _, factor in factors):
        results = [(divides, number) for divides, factor in factors if (number := _result(factor))]
        if len(results) == len(factors):
            yield Product(list(results))
        return
    for i in range(len(factors)):
        for j in range(i + 1, len(factors)):
            remaining = [factor for index, factor in enumerate(factors) if index not in (i, j)]
            pair, divides = _pair(factors[i], factors[j])
            number = _result(pair)
            if (
                number is None
                or not remaining
                or (divides and all(below for below, _ in remaining))
            ):
                continue
            place = sum(1 for index in range(i) if index != j)
            yield Product([*remaining[:place], (divides, number), *remaining[place:]])


def _pair(first: tuple[bool, Expression], second: tuple[bool, Expression]) -> tuple[Product, bool]:
    """Return the product of two factors and whether it divides as a whole."""
    if first[0] and second[0]:
        return Product([(False, first[1]), (False, second[1])]), True
    if first[0]:
        first, second = second, first
    return Product([first, second]), False


def _result(tree: Expression) -> Number | None:
    """Return the value as a literal, None unless it is positive and short."""
    if isinstance(tree, Number):
        return tree
    value = evaluate(tree)
    if value is None or value <= 0:
        return None
    if value.denominator == 1:
        return Number(value, str(value), _INTEGER)
    written = decimal(value)
    return None if written is None else Number(value, written, Spelling.DECIMAL)


# A tree as text.


def write(tree: Expression, scope: StatementScope) -> list[WrittenForm]:
    """Return the ways of writing a tree, at most ``MAX_FORMS``, nearest first: as it stands."""
    match tree:
        case Number():
            return _number(tree)
        case Symbol():
            return [WrittenForm(0, tree.text, _ATOM)]
        case Sum():
            return _sum(tree, scope)
        case Product():
            value = value_in_lowest_terms(tree)
            return _product(tree, scope) if value is None else _fraction(value)
        case Power():
            return _power(tree, scope)
        case Call():
            return _call(tree, scope)


def combine(parts: Sequence[list[WrittenForm]]) -> list[tuple[int, list[WrittenForm]]]:
    """Return choices of one form per part, cheapest first, within the limits."""
    choices: list[tuple[int, list[WrittenForm]]] = [(0, [])]
    for forms in parts:
        if len(forms) == 1 and not forms[0].cost:
            for _, chosen in choices:
                chosen.append(forms[0])
            continue
        choices = [
            (cost + form.cost, [*chosen, form])
            for cost, chosen in choices
            for form in forms
            if cost + form.cost <= MAX_COST
        ]
        choices.sort(key=_cost)
        del choices[MAX_COMBINATIONS:]
    return choices


_cost = itemgetter(0)


def _nearest(forms: list[WrittenForm]) -> list[WrittenForm]:
    first: dict[str, WrittenForm] = {}
    for form in sorted([form for form in forms if form.cost <= MAX_COST], key=_cost):
        first.setdefault(form.text, form)
    return list(first.values())[:MAX_FORMS]


def _wrapped(form: WrittenForm, level: int) -> str:
    return form.text if form.level >= level else f"({form.text})"


def _number(number: Number) -> list[WrittenForm]:
    """Spell a number that stands alone, in a sum or as a side."""
    forms = [WrittenForm(0, number.text, _ATOM)]
    if number.spelling is _INTEGER:
        return forms
    written = decimal(number.value)
    if written is not None and number.spelling is not Spelling.DECIMAL:
        forms.append(WrittenForm(Cost.NUMBER, written, _ATOM))
    parts = fraction(number.value)
    if parts is not None:
        forms.append(WrittenForm(Cost.NUMBER, f"{parts[0]}/{parts[1]}", _PRODUCT))
    return forms


def _sum(tree: Sum, scope: StatementScope) -> list[WrittenForm]:
    templates = sum_templates("".join("+" if sign > 0 else "-" for sign, _ in tree.terms))
    forms = []
    for cost, chosen in combine([write(term, scope) for _, term in tree.terms]):
        plain = [_wrapped(form, _PRODUCT) for form in chosen]
        for extra, template in templates:
            forms.append(WrittenForm(cost + extra, template.format(*plain), _SUM))
    return _nearest(forms)


def _fraction(value: Fraction) -> list[WrittenForm]:
    """Spell a fraction in lowest terms, which is a value like any other number."""
    forms = [WrittenForm(0, f"{value.numerator}/{value.denominator}", _PRODUCT)]
    written = decimal(value)
    if written is not None:
        forms.append(WrittenForm(Cost.NUMBER, written, _ATOM))
    return forms


def _product(tree: Product, scope: StatementScope) -> list[WrittenForm]:
    parts = [
        [WrittenForm(0, factor.text, _ATOM)] if isinstance(factor, Number) else write(factor, scope)
        for _, factor in tree.factors
    ]
    forms: list[WrittenForm] = []
    for cost, chosen in combine(parts):
        factors = [
            Factor(
                divides,
                _wrapped(form, _POWER),
                factor.value if isinstance(factor, Number) else None,
            )
            for (divides, factor), form in zip(tree.factors, chosen, strict=True)
        ]
        forms.extend(
            WrittenForm(cost + extra, text, _PRODUCT)
            for extra, text in write_product(factors, scope)
        )
    return _nearest(forms)


def value_in_lowest_terms(tree: Expression) -> Fraction | None:
    """Return the value of a number or of a fraction ``p/q`` in lowest terms, else None."""
    if isinstance(tree, Number):
        return tree.value
    if not isinstance(tree, Product) or len(tree.factors) != 2:
        return None
    (inverted, above), (divides, below) = tree.factors
    if inverted or not divides or not isinstance(above, Number) or not isinstance(below, Number):
        return None
    p, q = above.value, below.value
    if p.denominator != 1 or q.denominator != 1 or gcd(p.numerator, q.numerator) != 1:
        return None
    return Fraction(p.numerator, q.numerator)


def _power(tree: Power, scope: StatementScope) -> list[WrittenForm]:
    forms = []
    parts = [write(tree.base, scope), write(tree.exponent, scope)]
    for cost, (base, exponent) in combine(parts):
        raised = exponent.text if exponent.text.isalnum() else f"{{{exponent.text}}}"
        forms.append(WrittenForm(cost, f"{_wrapped(base, _ATOM)}^{raised}", _POWER))
    return _nearest(forms)


def _call(tree: Call, scope: StatementScope) -> list[WrittenForm]:
    forms = []
    for cost, chosen in combine([write(argument, scope) for argument in tree.arguments]):
        text = tree.pieces[0]
        for form, piece in zip(chosen, tree.pieces[1:], strict=True):
            text += form.text + piece
        forms.append(WrittenForm(cost, text, _ATOM))
    return _nearest(forms)


# Orders and brackets of a sum.


@lru_cache(maxsize=1024)
def sum_templates(signs: str) -> tuple[tuple[int, str], ...]:
    """Return ``(cost, template)`` pairs for terms with these signs, cheapest first.

    Field i takes term i.  No form begins with a minus sign unless all terms are negative.
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


# Orders, brackets and numbers of a product.


@dataclass(slots=True)
class Factor:
    """A factor as text, in brackets where it needs them; ``value`` only for a literal."""

    divides: bool
    text: str
    value: Fraction | None

    @property
    def is_integer(self) -> bool:
        return self.value is not None and self.value.denominator == 1

    @property
    def role(self) -> str:
        if self.divides:
            return DIVISOR
        if self.value is None:
            return BRACKETED if self.text.endswith(")") else SYMBOLIC
        return ONE if self.text == "1" else LITERAL


def write_product(factors: list[Factor], scope: StatementScope) -> list[tuple[int, str]]:
    """Return ``(cost, text)`` of every way to write the product, as it stands first."""
    forms = _arrange(0, factors)
    if len(factors) <= MAX_PERMUTED:
        for cost, respelled in _respell(factors, scope):
            forms.extend(_arrange(cost, respelled))
    return forms


def _arrange(base: int, factors: list[Factor]) -> list[tuple[int, str]]:
    texts = [factor.text for factor in factors]
    templates = product_templates("".join(factor.role for factor in factors))
    return [(base + cost, template.format(*texts)) for cost, template in templates]


@lru_cache(maxsize=4096)
def product_templates(roles: str) -> tuple[tuple[int, str], ...]:
    """Return ``(cost, template)`` pairs for factors of these roles; field i takes factor i."""
    identity = tuple(range(len(roles)))
    found: dict[str, int] = {_products_in_order(roles, identity): 0}
    if len(roles) <= MAX_PERMUTED:
        for order in permutations(identity):
            if _is_writable(roles, order):
                found.setdefault(_products_in_order(roles, order), Cost.ORDER)
        for template in _products_bracketed(roles):
            found.setdefault(template, Cost.BRACKET)
    return tuple((cost, text) for text, cost in found.items())


def _products_in_order(roles: str, order: tuple[int, ...]) -> str:
    text = "".join(f"{'/' if roles[i] == DIVISOR else '*'}{{{i}}}" for i in order)
    return text[1:] if text[0] == "*" else "1" + text


def _is_writable(roles: str, order: tuple[int, ...]) -> bool:
    """Tell whether an order of factors is one that people write.

    No divisor first, no number behind a symbol (``x3``), and a 1 that is divided only
    right before what divides it: ``a*1/b``, not ``1*a/b``.
    """
    if roles[order[0]] == DIVISOR:
        return False
    ordered = "".join(roles[index] for index in order)
    if SYMBOLIC + LITERAL in ordered or SYMBOLIC + ONE in ordered.replace(ONE + DIVISOR, ""):
        return False
    return DIVISOR not in ordered or ordered.count(ONE) == ordered.count(ONE + DIVISOR)


def _products_bracketed(roles: str) -> Iterator[str]:
    """Yield ``(a/d)*b``, ``b*(a/d)``, ``(a*b)/d`` and ``a/(d*e)``."""
    above = [index for index, role in enumerate(roles) if role != DIVISOR]
    below = [index for index, role in enumerate(roles) if role == DIVISOR]
    if not below or len(above) < 2:
        yield from _divided_at_once(roles, above, below)
        return
    ones = [index for index in above if roles[index] == ONE]
    for divisor in below:
        for numerator in ones or above:
            quotient = f"({{{numerator}}}/{{{divisor}}})"
            rest = [i for i in (*above, *below) if i not in (numerator, divisor)]
            written = _products_in_order(roles, tuple(rest))
            yield f"{written}*{quotient}"
            yield f"{quotient}*{written}"
    if ones:
        return
    for order in permutations(above):
        yield f"({_products_in_order(roles, order)})" + "".join(f"/{{{i}}}" for i in below)
    yield from _divided_at_once(roles, above, below)


def _divided_at_once(roles: str, above: list[int], below: list[int]) -> Iterator[str]:
    if len(below) < 2:
        return
    numerator = _products_in_order(roles, tuple(above)) if above else "1"
    for order in permutations(below):
        yield f"{numerator}/({'*'.join(f'{{{i}}}' for i in order)})"


def _respell(factors: list[Factor], scope: StatementScope) -> Iterator[tuple[int, list[Factor]]]:
    """Yield the product with one rational factor spelled in another way."""
    for taken, value in _rational_parts(factors, scope.quotients):
        remaining = [factor for index, factor in enumerate(factors) if index not in taken]
        before = [factor.text for index, factor in enumerate(factors) if index in taken]
        above = scope.quotients and any(not factor.divides for factor in remaining)
        if not remaining:
            continue
        place = sum(1 for index in range(min(taken)) if index not in taken)
        hundredths = len(taken) == 1 and not factors[taken[0]].divides
        for cost, spelling in _spellings(value, scope.arithmetic, above, hundredths):
            if [factor.text for factor in spelling] != before:
                yield cost, [*remaining[:place], *spelling, *remaining[place:]]


def _rational_parts(
    factors: list[Factor], quotients: bool
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Yield the indices and the value of each literal that is no integer: 0.5, 1/2, or /2."""
    literals = [(i, factor) for i, factor in enumerate(factors) if factor.value is not None]
    whole = [i for i, factor in literals if not factor.divides and factor.is_integer]
    ones = [i for i in whole if factors[i].text == "1"]
    for i, factor in literals:
        value = factor.value or Fraction(1)
        if not factor.is_integer:
            if not factor.divides:
                yield (i,), value
        elif factor.divides:
            if quotients and len(whole) < 2 and not ones:
                yield (i,), 1 / value
            for j in ones or whole:
                quotient = (factors[j].value or Fraction(1)) / value
                if quotient.denominator > 1:
                    yield (j, i), quotient


def _spellings(
    value: Fraction, arithmetic: bool, above: bool, hundredths: bool
) -> Iterator[tuple[int, list[Factor]]]:
    """Yield the factors that together have the value.

    Args:
        value: not an integer.
        arithmetic: whether it may be a percentage.
        above: whether 1/2 may be ``/2``, because another factor stands above the line.
        hundredths: whether it may be so many hundredths; few write 50/100 for 1/2.
    """
    written = decimal(value)
    if written is not None:
        yield Cost.NUMBER, [Factor(False, written, value)]
    parts = fraction(value)
    if parts is not None:
        yield Cost.NUMBER, [_integer(False, parts[0]), _integer(True, parts[1])]
        if parts[0] == "1" and above:
            yield Cost.NUMBER, [_integer(True, parts[1])]
    count = percentage(value) if hundredths else None
    if count is not None:
        if arithmetic:
            yield Cost.HUNDREDTHS, [Factor(False, count + "%", value)]
        if "." not in count:
            yield Cost.HUNDREDTHS, [_integer(False, count), _integer(True, "100")]


def _integer(divides: bool, text: str) -> Factor:
    return Factor(divides, text, Fraction(int(text)))


# The spellings of a rational number.


@lru_cache(maxsize=4096)
def decimal(value: Fraction) -> str | None:
    """Return the decimal of a value, None for an integer or where there is no short one."""
    if value.denominator == 1 or value.denominator > 10**MAX_DECIMAL_PLACES:
        return None
    for places in range(1, MAX_DECIMAL_PLACES + 1):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(scaled.numerator).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}"
    return None


@lru_cache(maxsize=4096)
def fraction(value: Fraction) -> tuple[str, str] | None:
    """Return numerator and denominator in lowest terms, None for an integer or a large one."""
    if value.denominator == 1 or value.denominator > MAX_DENOMINATOR:
        return None
    if value.numerator > MAX_NUMERATOR:
        return None
    return str(value.numerator), str(value.denominator)


@lru_cache(maxsize=4096)
def percentage(value: Fraction) -> str | None:
    """Return the number of percent without its sign, None where it is not short."""
    scaled = value * 100
    if value.denominator == 1 or scaled > MAX_PERCENT:
        return None
    if scaled.denominator == 1:
        return str(scaled.numerator)
    return decimal(scaled) if scaled.denominator in (2, 5, 10) else None
