"""Stage 2 by rules: equations and distinctive values that correct rollouts share (section 3.2).

**Statements** are read from the normal form, in which a formula is a run of characters without
blanks; :mod:`consensusbench.extraction.programs` reads code.  **Conclusions** are statements with
their words, value and structure, without false arithmetic.  **Phrases** ("that leaves 30
minutes") are further wordings of a conclusion that a formula gives.

**Clusters** are statements that conclude the same: those of one structure, and equal equations
(:mod:`consensuspr.core.algebra`).  Computations of one value are too if they are alternatives:
``300-100-50=150`` in one solution and ``200-50=150`` in another.  A rollout that states both, in
two places, shows that they are two steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from fractions import Fraction
from itertools import islice
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import Field

from consensusbench.extraction.corpus import equation_of
from consensusbench.extraction.programs import read_equations
from consensusbench.extraction.statements import (
    cut_outside_brackets,
    forms_beyond,
    lonely_brackets,
    normal_form,
    statement_structure,
    states_answer,
)
from consensusbench.extraction.support import beyond, find_mentions, reach_of
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction, NodeType
from consensusbench.extraction.wordings import STOP_WORDS, fault_of
from consensuspr.core import normalize, read_expression_facts
from consensuspr.core.algebra import MAX_SPAN, MIN_RENAMED_SIZE, MIN_WORD, FactKind
from consensuspr.core.expressions import (
    Call,
    Expression,
    Number,
    Statement,
    Symbol,
    TokenKind,
    evaluate,
    is_constant,
    parse_statement,
    tokenize,
    value_in_lowest_terms,
)
from consensuspr.data import Problem, Row
from consensuspr.settings import check_fields

# Increase it whenever the same rollouts may give other candidates.
RULES_VERSION = "5"


AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """What extraction by rules looks at and keeps.

    Attributes:
        min_support: rollouts that must state a conclusion, at least 1.
        min_models: models whose rollouts must state it; fewer if there are fewer models.
        phrases: also match a conclusion by its number with the word beside it ("30 minutes").
        values: also use distinctive numbers as conclusions, or as a form of one.
        code: also use steps of program code as conclusions.
        max_statements: most statements to read of a rollout, and most phrases of each kind.
        max_statement_chars: characters of the longest statement to read, in normal form.
        max_candidates: most candidates of a problem, best supported first.
        max_wordings: most formulas of a conclusion.
        max_phrases: most phrases of a conclusion.
        max_forms: most formulas and equal forms of a conclusion.

    Raises:
        InputError: a limit is below 1.
    """

    min_support: AtLeastOne = 2
    min_models: AtLeastOne = 2
    phrases: bool = True
    values: bool = True
    code: bool = True
    max_statements: AtLeastOne = 2000
    max_statement_chars: AtLeastOne = 120
    max_candidates: AtLeastOne = 400
    max_wordings: AtLeastOne = 12
    max_phrases: AtLeastOne = 12
    max_forms: AtLeastOne = 128

    def __post_init__(self) -> None:
        check_fields(self)

    def provenance(self) -> Row:
        """Return name, version and thresholds."""
        return {"extractor": "rules", "version": RULES_VERSION, **asdict(self)}


# Statements: chains of sides joined by relations, in the normal form of a rollout.

RELATIONS = "=<>≤≥≈≡"
_SEPARATORS = ",;:"
_RELATION = re.compile(f"[{RELATIONS}≠]")

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z_][\w-]{0,32}>")
_FACTOR = re.compile(r"[\d.]+|[A-Za-z]|\S*\)")
_FRACTION = re.compile(r"\d{1,3}/\d")

# Longer chains write out an algorithm step by step.
MAX_SIDES = 16


class Link(NamedTuple):
    """Two different sides, neither empty, with one of :data:`RELATIONS` between them."""

    left: str
    relation: str
    right: str

    @property
    def text(self) -> str:
        """The statement as it stands in the normal form."""
        return self.left + self.relation + self.right


def prose_of(response: str) -> str:
    """Return a response without its program code and its markup tags."""
    return _TAG.sub("\n", _FENCE.sub("\n", response))


# The links of ``a=b=c`` are ``a=b`` and ``b=c``; at least one.
Chain: TypeAlias = tuple[Link, ...]


def read_chains(response: str) -> Iterator[Chain]:
    """Yield the chains of a response in order, repetitions included."""
    tokens = normalize(prose_of(response)).split()
    for index, token in enumerate(tokens):
        if _RELATION.search(token):
            run = _completed(tokens, index)
            for piece, _ in cut_outside_brackets(run, _SEPARATORS, lonely_brackets(run)):
                yield from _chains(piece)


def _completed(tokens: list[str], index: int) -> str:
    """Return a token with neighbours that belong to it in spite of a blank."""
    token = tokens[index]
    if "≡" in token and tokens[index + 1 : index + 2] == ["mod"] and index + 2 < len(tokens):
        token = " ".join(tokens[index : index + 3])
    if _FRACTION.match(token) and index and tokens[index - 1].isdecimal():
        token = f"{tokens[index - 1]} {token}"  # a mixed number
    if token[0] == "(" and index and _FACTOR.fullmatch(tokens[index - 1]):
        token = tokens[index - 1] + token
    return token


def _chains(piece: str) -> Iterator[Chain]:
    """Yield the chains of a piece: more than one if a side is missing or ``≠`` joins two."""
    sides: list[str] = []
    relations: list[str] = []
    for side, relation in cut_outside_brackets(piece, RELATIONS + "≠"):
        side = side.strip(".?! ")
        if not side or side[0] in "*/^" or side[-1] in "+-*/^":  # an operand is missing
            yield from _chain(sides, relations)
            sides, relations = [], []
            continue
        if sides and side == sides[-1]:
            relations[-1:] = [relation]
            continue
        sides.append(side)
        relations.append(relation)
        if relation == "≠":
            yield from _chain(sides, relations)
            sides, relations = [], []
    yield from _chain(sides, relations)


def _chain(sides: list[str], relations: list[str]) -> Iterator[Chain]:
    if len(sides) > 1:
        # The last relation is the one that follows the last side.
        yield tuple(map(Link, sides, relations, sides[1:MAX_SIDES]))


def joined(chain: Chain) -> Iterator[tuple[Link, Link, Link]]:
    """Yield the equations of sides of a chain that are not neighbours: a=c of a=b=c.

    Yields:
        The equation and the links that contain its sides: a=b and b=c.
    """
    for start in range(len(chain)):
        for end in range(start + 1, min(len(chain), start + MAX_SPAN - 1)):
            if any(link.relation != "=" for link in chain[start : end + 1]):
                break
            if chain[start].left != chain[end].right:
                link = Link(chain[start].left, "=", chain[end].right)
                yield link, chain[start], chain[end]


# Conclusions: statements with value and structure.


class ConclusionKind(Enum):
    """How a statement relates to its value."""

    COMPUTED = "computed"  # 3*10=30
    ASSIGNED = "assigned"  # x=30, P(A)=1/4
    FORMULA = "formula"  # a+b=c, 2x=66, x<5


class Conclusion(NamedTuple):
    """A statement of one rollout.

    Attributes:
        structure: key of an equation, or the tree without the order of operands and sides; equal
            for statements that are one conclusion.
        renamed: key of a large equation with any names; 0 for all others.
        value: result of the statement, by which different computations are one conclusion; None if
            the result says too little for that.
        is_worded: whether a word names a quantity, as in ``total = 18``; such a statement is a
            wording and no conclusion.
        chain: number of the chain that it stands in, counted through the rollout.
        position: of its first mention in the response, from 0 to 1.
        operands: numbers that stand in it beside its value.
    """

    kind: ConclusionKind
    structure: Hashable
    value: Hashable | None
    is_worded: bool
    chain: int
    wording: str
    position: float
    renamed: int = 0
    operands: frozenset[Fraction] = frozenset()


def read_conclusions(rollout: CorrectRollout, settings: RulesSettings) -> list[Conclusion]:
    """Return the distinct statements of a rollout in order of their first chain."""
    links, skipping = _distinct_links(rollout.response, settings)
    found: list[Conclusion] = []
    words: dict[Link, str] = {}
    mentioned = find_mentions([([link.text], ()) for link in links], [rollout], statements=False)
    for (link, chain), mentions in zip(links.items(), mentioned, strict=True):
        for mention in mentions:
            words[link] = mention.wording
            found.extend(_conclusions(link, chain, mention.wording, mention.position))
    stated = _stated(rollout.response)
    for link, (chain, first, last) in skipping.items():
        fact = equation_of(link.text)
        place = None if fact is None else stated.get(fact.keys)
        if fact is None or place is None or fact.kind is FactKind.CLOSED:
            continue
        wording = f"{_outer(words.get(first), 0)} = {_outer(words.get(last), -1)}"
        same = equation_of(wording)
        if same is None or same.keys != fact.keys:
            wording = link.text
        found.extend(_conclusions(link, chain, wording, place))
    if not settings.code:
        return found
    # Chains that only repeat others have numbers, too.
    numbers = (*links.values(), *(number for number, _, _ in skipping.values()))
    return [*found, *_coded(rollout, max(numbers, default=-1) + 1, settings)]


def _coded(rollout: CorrectRollout, first: int, settings: RulesSettings) -> Iterator[Conclusion]:
    """Yield the conclusions of the code of a rollout; each step is one chain.

    Args:
        first: number of the first of these chains.
    """
    equations = read_equations(rollout.response)[: settings.max_statements]
    reached = find_mentions([([equation.text], ()) for equation in equations], [rollout])
    for number, (equation, mentions) in enumerate(zip(equations, reached, strict=True), first):
        left, _, right = equation.text.rpartition("=")
        if mentions and len(equation.text) <= settings.max_statement_chars:
            place = equation.start / len(rollout.response)
            yield from _conclusions(Link(left, "=", right), number, equation.text, place)


# At the ends of a side: dollars, alignment and line breaks, and no commands.
_LAYOUT = re.compile(r"\A(?:[&$\s]|\\\\)+|(?:[&$\s]|\\\\)+\Z")


def _outer(wording: str | None, side: int) -> str:
    """Return the first or the last side of an equation as it is written."""
    return _LAYOUT.sub("", (wording or "").split("=")[side])


def _stated(response: str) -> dict[tuple[int, ...], float]:
    """Return the keys of all equations of a response with their first places, from 0 to 1."""
    form, runs = read_expression_facts(prose_of(response))
    places: dict[tuple[int, ...], float] = {}
    for run in runs:
        for fact in run.facts:
            places.setdefault(fact.keys, fact.start / len(form))
    return places


def _distinct_links(
    response: str, settings: RulesSettings
) -> tuple[dict[Link, int], dict[Link, tuple[int, Link, Link]]]:
    """Return each link with the number of its first chain; joined links separately."""
    links: dict[Link, int] = {}
    skipping: dict[Link, tuple[int, Link, Link]] = {}
    for number, chain in enumerate(read_chains(response)):
        for link in chain:
            if len(link.text) <= settings.max_statement_chars:
                links.setdefault(link, number)
        for link, first, last in joined(chain):
            if len(link.text) <= settings.max_statement_chars:
                skipping.setdefault(link, (number, first, last))
        if max(len(links), len(skipping)) >= settings.max_statements:
            break
    return links, skipping


def _conclusions(link: Link, chain: int, wording: str, position: float) -> Iterator[Conclusion]:
    """Yield the conclusion of a link, if it is a true statement that says something."""
    if (link.relation == "≡" and "mod" not in link.right) or _GLUED.search(link.text):
        return
    if fault_of(wording) is not None:
        if fault_of(link.text) is not None:
            return
        wording = link.text
    # Words around a formula can keep it from being parsed; the normal form is without them.
    statement = _two_sided(wording) or _two_sided(link.text)
    structure: Hashable = statement_structure(statement)
    kind, number, renamed = ConclusionKind.FORMULA, None, 0
    if statement is not None:
        if _says_nothing(statement):
            return
        kind, number = _judge(statement)
    fact = None if kind is ConclusionKind.COMPUTED else equation_of(link.text)
    is_relation = fact is not None and fact.kind in (FactKind.EQUATION, FactKind.LINEAR)
    if is_relation and not any(map(_WORD_ALONE.fullmatch, (link.left, link.right))):
        kind, number = ConclusionKind.FORMULA, None
    # Letters side by side are a product in a formula, and a name where they have a value.
    letters = MIN_WORD if kind is ConclusionKind.FORMULA else 2
    is_worded = kind is not ConclusionKind.COMPUTED and _names_in_words(wording, letters)
    value: Hashable = number
    if fact is not None:
        if fact.keys == _IMAGINARY:
            return
        structure = fact.kind, *fact.keys
        renamed = fact.renamed if fact.size >= MIN_RENAMED_SIZE else 0
        if number is None:
            value = _root_of(link)
    if kind is ConclusionKind.ASSIGNED and number is not None:
        value = number if is_worded or is_telling(number) else None
    if structure is None:
        return
    if kind is ConclusionKind.FORMULA and is_worded:
        return
    operands = _numbers_in(link.text) - {value}
    yield Conclusion(kind, structure, value, is_worded, chain, wording, position, renamed, operands)


# A line break was lost: 10x=8.4444…now.
_GLUED = re.compile(r"…\w")
_WORD_ALONE = re.compile(r"[^\W\d]\w*'*")
# Every identity of complex numbers says this: 65^2-(64i)^2=65^2+64^2.
_IMAGINARY = getattr(equation_of("i^2=-1"), "keys", None)


def _root_of(link: Link) -> Hashable | None:
    """Return a key for the value of a side with roots, None if no side has one."""
    for side in (link.right, link.left):
        if "√" in side:
            fact = equation_of(f"q={side}")
            if fact is not None and fact.kind is FactKind.SOLVED:
                return fact.keys
    return None


def is_telling(value: Fraction) -> bool:
    """Return whether a value has at least three digits, without zeros at its end."""
    digits = str(abs(value.numerator)).rstrip("0")
    return len(digits) + (len(str(value.denominator)) if value.denominator > 1 else 0) >= 3


def _names_in_words(wording: str, letters: int) -> bool:
    """Return whether a word names a quantity, as in ``total = price * count``.

    Each solution chooses other words, so such a formula is hardly ever found in another one.

    Args:
        letters: letters of the shortest word that counts.
    """
    return any(
        token.kind is TokenKind.WORD and len(token.text) >= letters and not token.text.isupper()
        for token in tokenize(wording)
    )


def _two_sided(text: str) -> Statement | None:
    statement = parse_statement(text)
    return statement if statement is not None and len(statement.sides) == 2 else None


def _says_nothing(statement: Statement) -> bool:
    """Return whether it is arithmetic without a result (30+40=35*2) or without a step (5=5.0)."""
    if None in [evaluate(side) for side in statement.sides]:
        return False
    literals = sum(isinstance(side, Number) for side in statement.sides)
    fractions = sum(value_in_lowest_terms(side) is not None for side in statement.sides)
    return literals == 2 or (not literals and fractions != 1)


def _judge(statement: Statement) -> tuple[ConclusionKind, Fraction | None]:
    left, right = statement.sides
    if statement.relations[0] not in ("=", "≈") or statement.tail:
        return ConclusionKind.FORMULA, None
    # 10/3=3.33 gives what is written, not what it should be.
    results = sorted(
        ((left, right), (right, left)), key=lambda pair: not isinstance(pair[1], Number)
    )
    for side, result in results:
        # A number, not something to compute: "total = 12+6" does not say 18.
        value = value_in_lowest_terms(result)
        if value is not None and _is_name(side):
            return ConclusionKind.ASSIGNED, value
        if value is not None and is_constant(side):
            return ConclusionKind.COMPUTED, value
    return ConclusionKind.FORMULA, None


def _is_name(side: Expression) -> bool:
    if isinstance(side, Call):
        return side.pieces[0][:1].isalpha()
    return isinstance(side, Symbol) and not is_constant(side)


# Phrases: numbers in prose.

_NUMBER = r"\d{1,18}(?:\.\d{1,9})?"
_WORD = r"[a-z][a-z'-]{1,31}"
# A word before a relation is the name of what follows, and no unit: 14 xy=45.
_AFTER = re.compile(rf"(?<![\w.,/*+^√-])({_NUMBER}) ({_WORD})(?: ({_WORD}))?(?![\w'=<>≤≥≈≡≠-])")
_BEFORE = re.compile(rf"(?<![\w'-])({_WORD}) ({_NUMBER})(?![\w/*+^=√-]|\.\d|,\d)")
_BARE = re.compile(rf"(?<![\w.])({_NUMBER})(?!\w|\.\d)")
# Also that of a row in LaTeX, and of the cell of a table.
_LINE_END = re.compile(r"\n|\r|\\\\|\|")

# Any text may contain "1 use" or "2 possibilities".
MIN_COUNTED = 3

# Digits from which on a number is unlikely by chance.  Counting to 300 prints 125, so a whole
# number needs one digit more.
MIN_SIGNIFICANT_DIGITS = 3
MIN_DISTINCTIVE_WHOLE = 1000


class Phrase(NamedTuple):
    """A number of a response, alone or with the words that make it a quantity.

    Attributes:
        words: the phrase in normal form.
    """

    value: Fraction
    words: str
    is_bare: bool


def read_phrases(response: str, limit: int) -> list[Phrase]:
    """Return the distinct phrases and distinctive numbers of a response.

    Args:
        limit: numbers that are read of each kind: with a word behind, with a word before, alone.
    """
    # No phrase goes on behind the end of a line, which is a blank in the normal form.
    normal = "\n".join(map(normalize, _LINE_END.split(prose_of(response))))
    found: dict[str, Phrase] = {}

    def add(number: str, words: str, is_bare: bool = False) -> None:
        value = Fraction(number)
        if words not in found and (value.denominator > 1 or value >= MIN_COUNTED):
            found[words] = Phrase(value, words, is_bare)

    counted: set[int] = set()  # places of numbers with a noun: of "sells 72 loaves" only 72 loaves
    for match in islice(_AFTER.finditer(normal), limit):
        number, noun, second = match.groups()
        if noun not in STOP_WORDS and not noun.endswith("ly"):  # 36 equally
            add(number, f"{number} {noun}")
            counted.add(match.start())
        elif noun == "per" and second is not None:
            add(number, f"{number} {noun} {second}")
    for match in islice(_BEFORE.finditer(normal), limit):
        names_value = match[1] not in STOP_WORDS and not is_small(Fraction(match[2]))
        if names_value and match.start(2) not in counted:
            add(match[2], match[0])
    for match in islice(_BARE.finditer(normal), limit):
        if is_distinctive(match[1]):
            add(match[1], match[1], is_bare=True)
    return list(found.values())


def is_small(value: Fraction) -> bool:
    """Return whether a number is a digit, which stands beside many words by chance."""
    return value.denominator == 1 and value < 10


def is_distinctive(number: str) -> bool:
    """Return whether a number is unlikely by chance or by counting."""
    digits = number.replace(".", "").lstrip("0")
    if "." not in number:
        digits = digits.rstrip("0")
        return len(digits) >= MIN_SIGNIFICANT_DIGITS and int(number) >= MIN_DISTINCTIVE_WHOLE
    return len(digits) >= MIN_SIGNIFICANT_DIGITS


def numbers_of(text: str) -> frozenset[Fraction]:
    """Return the numbers of the normal form of a text."""
    return _numbers_in(normalize(text))


def _numbers_in(normal: str) -> frozenset[Fraction]:
    return frozenset(map(Fraction, re.findall(_NUMBER, normal)))


# Clusters: statements of several rollouts that conclude the same.

# Two statements are two steps if a larger share of the rollouts with the rarer one has both.
MAX_TOGETHER = 0.25

# Rollouts that must write a digit with a word.
MIN_WRITTEN = 2

# Ways to one value that are compared with each other; tool output contains hundreds.
MAX_ALTERNATIVES = 64


@dataclass(slots=True)
class Cluster:
    """Statements that conclude the same.

    Attributes:
        value: result of the statements, None for a formula.
        wordings: formulas, and how often each was written.
        names: the same for "x=30" beside "3*10=30", which says more.
        phrases: numbers with words, and how many rollouts wrote each.
        rollouts: indices of the rollouts that state it, phrases aside.
        chains: rollout and number of each chain that states it.
    """

    value: Hashable | None
    wordings: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    phrases: Counter[str] = field(default_factory=Counter)
    rollouts: set[int] = field(default_factory=set)
    chains: set[tuple[int, int]] = field(default_factory=set)


@dataclass(slots=True)
class _Statement:
    """All conclusions of one structure."""

    kind: ConclusionKind
    value: Hashable | None
    is_worded: bool
    operands: frozenset[Fraction]
    wordings: Counter[str] = field(default_factory=Counter)
    places: dict[int, set[int]] = field(default_factory=dict)  # rollout -> its chains
    uses: Counter[Hashable] = field(default_factory=Counter)  # see _uses; how often


def cluster(read: Sequence[Sequence[Conclusion]]) -> list[Cluster]:
    """Return the clusters of the conclusions of all rollouts, best supported first."""
    by_value: dict[Hashable, list[_Statement]] = {}
    clusters: list[Cluster] = []
    for statement in _statements(read):
        if statement.value is None:
            clusters.append(_as_cluster([statement]))
        else:
            by_value.setdefault(statement.value, []).append(statement)
    for statements in by_value.values():
        for group in _alternatives(statements):
            if not all(statement.is_worded for statement in group):
                clusters.append(_as_cluster(group))
    return sorted(clusters, key=_by_support)


def add_phrases(clusters: Iterable[Cluster], read: Sequence[Sequence[Phrase]]) -> list[Cluster]:
    """Give the phrases of each rollout to the cluster of their value.

    If several clusters give a value, a phrase belongs to the one that most of its writers state,
    and of equals to the best supported.  A digit with a word needs two rollouts: "7 days" may be
    any week.

    Args:
        clusters: result of :func:`cluster`, best supported first; changed in place.

    Returns:
        Clusters of bare numbers that no formula gives.
    """
    owners: dict[Fraction, list[Cluster]] = {}
    for known in clusters:
        if isinstance(known.value, Fraction):
            owners.setdefault(known.value, []).append(known)
    alone: dict[Fraction, Cluster] = {}
    writers: dict[Phrase, list[int]] = {}
    for index, phrases in enumerate(read):
        for phrase in phrases:
            writers.setdefault(phrase, []).append(index)
    for phrase, indices in writers.items():
        if is_small(phrase.value) and len(indices) < MIN_WRITTEN:
            continue
        if ways := owners.get(phrase.value):
            owner = max(ways, key=lambda one: len(one.rollouts.intersection(indices)))
            owner.phrases[phrase.words] += len(indices)
        elif phrase.is_bare:
            own = alone.setdefault(phrase.value, Cluster(phrase.value))
            own.wordings[phrase.words] += len(indices)
            own.rollouts.update(indices)
    return sorted(alone.values(), key=_by_support)


def _statements(read: Sequence[Sequence[Conclusion]]) -> list[_Statement]:
    found: list[_Statement] = []
    statements: dict[Hashable, _Statement] = {}
    for index, conclusions in enumerate(read):
        for conclusion in conclusions:
            names = [conclusion.structure, *([conclusion.renamed] if conclusion.renamed else [])]
            known = next((statements[name] for name in names if name in statements), None)
            if known is None:
                known = _Statement(
                    conclusion.kind, conclusion.value, conclusion.is_worded, conclusion.operands
                )
                found.append(known)
            for name in names:
                statements.setdefault(name, known)
            known.wordings[conclusion.wording] += 1
            known.places.setdefault(index, set()).add(conclusion.chain)
        uses = _uses(conclusions)
        for conclusion in conclusions:
            if conclusion.kind is ConclusionKind.COMPUTED and conclusion.value in uses:
                statements[conclusion.structure].uses.update(uses[conclusion.value])
    return found


def _uses(conclusions: Sequence[Conclusion]) -> dict[Hashable, set[Hashable]]:
    """Return for each number the statements of a rollout that use it, and their other numbers."""
    uses: dict[Hashable, set[Hashable]] = {}
    for one in conclusions:
        for number in one.operands:
            uses.setdefault(number, set()).update([one.structure], one.operands - {number})
    return uses


def _alternatives(statements: list[_Statement]) -> list[list[_Statement]]:
    """Return groups of alternative ways to one value; the rarest statements stay alone."""
    ranked = sorted(statements, key=lambda one: (-len(one.places), -one.wordings.total()))
    groups: list[list[_Statement]] = []
    for statement in ranked[:MAX_ALTERNATIVES]:
        fitting = [
            group for group in groups if all(_may_be_one(statement, other) for other in group)
        ]
        if fitting:
            # The best supported way, but for a name that stands in the chain of another one.
            nearest = max(
                fitting, key=lambda group: any(_share_chain(statement, one) for one in group)
            )
            nearest.append(statement)
        else:
            groups.append([statement])
    return groups + [[statement] for statement in ranked[MAX_ALTERNATIVES:]]


def _may_be_one(statement: _Statement, other: _Statement) -> bool:
    if statement.kind is not other.kind:
        return True  # x=30 behind 60/2=30
    shared = statement.places.keys() & other.places.keys()
    apart = sum(not statement.places[index] & other.places[index] for index in shared)
    if apart > MAX_TOGETHER * min(len(statement.places), len(other.places)):
        return False
    # 48+24=72 muffins, and 24*3=72 dollars: what follows a small value tells which it is.
    rarer, usual = sorted((statement, other), key=lambda one: len(one.places))
    is_small = isinstance(statement.value, Fraction) and not is_telling(statement.value)
    if not (is_small and rarer.uses and usual.uses):
        return True
    if rarer.operands <= usual.operands or usual.operands <= rarer.operands:  # 4+4+4=12, 3*4=12
        return True
    most = max(rarer.uses.values())
    likely = (use for use, count in rarer.uses.items() if count == most)
    return any(use in usual.uses for use in likely) or _share_chain(statement, other)


def _share_chain(statement: _Statement, other: _Statement) -> bool:
    shared = statement.places.keys() & other.places.keys()
    return any(statement.places[index] & other.places[index] for index in shared)


def _as_cluster(statements: Sequence[_Statement]) -> Cluster:
    merged = Cluster(statements[0].value)
    computes = any(statement.kind is ConclusionKind.COMPUTED for statement in statements)
    for statement in statements:
        is_name = computes and statement.kind is ConclusionKind.ASSIGNED
        (merged.names if is_name else merged.wordings).update(statement.wordings)
        merged.rollouts.update(statement.places)
        merged.chains.update(
            (index, chain) for index, chains in statement.places.items() for chain in chains
        )
    return merged


def _by_support(cluster: Cluster) -> tuple[int, int, str]:
    # The wording last, so that equal counts have one order on every machine.
    return -len(cluster.rollouts), -cluster.wordings.total(), min(cluster.wordings)


@dataclass(frozen=True, slots=True)
class RulesExtractor:
    """Finds conclusions that correct rollouts share, offline and deterministically."""

    settings: RulesSettings = field(default_factory=RulesSettings)
    name: str = "rules"

    def provenance(self) -> Row:
        return self.settings.provenance()

    def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the conclusions that enough rollouts state, in order of their position."""
        clusters = cluster([read_conclusions(one, self.settings) for one in rollouts])
        clusters += self._phrased(clusters, problem, rollouts)
        # A conclusion of one rollout may be found in others by an equal form.
        clusters.sort(key=lambda one: -len(one.rollouts))
        limit = self.settings.max_candidates
        counted, rare = clusters[:limit], clusters[limit:]
        drafts = [self._draft(problem, one) for one in counted]
        num_models = len({one.model for one in rollouts})
        candidates: list[Candidate] = []
        dropped = [self._unsupported(one, len(one.rollouts)) for one in rare]
        for known, (written, derived), mentions in zip(
            counted, drafts, find_mentions(drafts, rollouts), strict=True
        ):
            reach = reach_of(mentions, rollouts)
            if reach.support < self.settings.min_support:
                dropped.append(self._unsupported(known, reach.support))
                continue
            if reach.num_models < min(self.settings.min_models, num_models):
                detail = f"stated by {reach.num_models} of the {num_models} models"
                dropped.append(
                    Dropped("extract", "few models", detail, written[0], written, reach.support)
                )
                continue
            candidates.append(
                Candidate(
                    label=written[0],
                    type=_type_of(known),
                    expressions=written,
                    derived=derived,
                    support=reach.support,
                    num_models=reach.num_models,
                    position=round(reach.position, 4),
                    is_final=_is_final(known, written, problem.ground_truth),
                    chains=tuple(sorted(known.chains)),
                )
            )
        candidates.sort(key=lambda one: (one.position, one.label))
        return Extraction(tuple(candidates), tuple(dropped))

    def _phrased(
        self, clusters: list[Cluster], problem: Problem, rollouts: Sequence[CorrectRollout]
    ) -> list[Cluster]:
        """Add phrases to the clusters and return the clusters of bare numbers."""
        given = numbers_of(problem.problem)
        limit = self.settings.max_statements
        kept = [
            [phrase for phrase in read_phrases(one.response, limit) if self._counts(phrase, given)]
            for one in rollouts
        ]
        return add_phrases(clusters, kept)

    def _counts(self, phrase: Phrase, given: frozenset[object]) -> bool:
        wanted = self.settings.values if phrase.is_bare else self.settings.phrases
        return wanted and phrase.value not in given

    def _draft(self, problem: Problem, known: Cluster) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the wordings of a conclusion, and equal forms that were not seen.

        Wordings that the problem's text states are left out, so that none counts as support.  If
        the label is one of them, all are returned: refinement drops the candidate with a reason.
        """
        formulas = (*known.wordings.most_common(), *known.names.most_common())
        written = _distinct(formulas, self.settings.max_wordings)
        phrases = _distinct(known.phrases.most_common(), self.settings.max_phrases)
        written = (*written, *phrases)[: self.settings.max_forms]
        derived = forms_beyond(written, limit=self.settings.max_forms - len(written))
        own, rest = beyond(problem.problem, written, derived)
        return (own, rest) if written[0] in own else (written, derived)

    def _unsupported(self, known: Cluster, support: int) -> Dropped:
        written = _distinct(known.wordings.most_common(), self.settings.max_wordings)
        return Dropped(
            "extract",
            "unsupported",
            f"stated by {support} of the rollouts, {self.settings.min_support} are needed",
            written[0],
            written,
            support,
        )


def _distinct(wordings: Iterable[tuple[str, int]], limit: int) -> tuple[str, ...]:
    """Return the first wordings whose normal forms differ."""
    kept: dict[str, str] = {}
    for wording, _ in wordings:
        if len(kept) == limit:
            break
        kept.setdefault(normal_form(wording), wording)
    return tuple(kept.values())


def _type_of(known: Cluster) -> NodeType:
    if known.value is None and not any("=" in wording for wording in known.wordings):
        return "proposition"  # an inequality, a congruence
    return "value" if normal_form(min(known.wordings)).replace(".", "").isdecimal() else "equation"


def _is_final(known: Cluster, written: Sequence[str], ground_truth: str | None) -> bool:
    return any(states_answer(text, ground_truth) for text in written[:4])
