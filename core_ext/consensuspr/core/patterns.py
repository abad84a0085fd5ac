"""What both engines take, search for and return: texts as bytes, node expressions as patterns.

A pattern is the normal form of one expression without the punctuation around it.  How its
first and last characters bind to their neighbours is worked out here, once, so that the
scan only looks at the neighbours of a hit (``docs/reference/matching.md``, "The match rule").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum, IntFlag
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.core.statements import MAX_DIGITS
from consensuspr.core.tables import CHAR_CLASSES, PARAGRAPH, Char, classes_of

# Limits of one matcher; far above any dataset, and what keeps a hostile one bounded.
MAX_NODES: Final = 65_536
MAX_PATTERN_BYTES: Final = 1 << 24
# Bytes of an expression that is a box, and of a text's box or of what stands behind its mark.
MAX_BOX_BYTES: Final = 100
MAX_ANSWER_BYTES: Final = 200

_PUNCTUATION: Final = " .,;:?\n"


def stripped(normal: str) -> bytes:
    """Return the normal form of an expression without the punctuation around it."""
    return normal.strip(_PUNCTUATION).encode()


def encode(text: str | bytes) -> bytes:
    """Return the bytes that both engines work on; a lone surrogate becomes three bytes.

    Raises:
        TypeError: ``text`` is neither str nor bytes.
    """
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"a text is str or bytes, not {type(text).__name__}")


class Edge(IntFlag):
    """How the ends of a pattern bind; a bit field shared with the compiled core."""

    NONE = 0
    LEFT_OPERAND = 1  # begins with an operand: what stands left of it can make it a piece
    LEFT_SIGN = 2  # begins with a sign, which must not be a difference
    LEFT_BRACKET = 4
    LEFT_FRACTION = 8  # begins like 1/2, which must not be the rest of 3 1/2
    RIGHT_OPERAND = 16
    RIGHT_DIGIT = 32
    RIGHT_LETTER = 64
    LIST = 128  # of a list, which keys find whole
    RELATES = 256  # holds a relation, which in f(x=3) and in a sum's bounds is a piece


# A number with too many digits to compute with is kept as its digits.
Magnitude: TypeAlias = Fraction | str

_NUMBER: Final = re.compile(r"[0-9]*\.[0-9]+|[0-9]+")


def magnitude(whole: str, decimals: str) -> Magnitude:
    """Return the value of the digits before and behind a point."""
    first, last = whole.lstrip("0"), decimals.rstrip("0")
    if len((first + last).lstrip("0")) > MAX_DIGITS or len(last) > MAX_DIGITS:
        return f"{first}.{last}"
    return Fraction(int(first + last or "0"), 10 ** len(last))


# Datasets write few numbers again and again.
@lru_cache(maxsize=1 << 14)
def _magnitude_of(number: str) -> Magnitude:
    whole, _, decimals = number.partition(".")
    return magnitude(whole, decimals)


class Pattern(NamedTuple):
    """One pattern of one node.

    It reaches its node only in a text in which the guard counts its numbers and values.  If the
    guard does not find them in the text, the text's normal form is read too.

    Attributes:
        data: normal form of the expression.
        node: index of the node.
        expression: as it was written.
        edges: how its ends bind.
        numbers: magnitudes of the numbers in it.
        values: of the expression's true equations with an operation.
        boxed: it is an answer in a box, which with the statement channel is no pattern but found
            where the text gives it as an answer.
    """

    data: bytes
    node: int
    expression: str
    edges: Edge
    numbers: tuple[Magnitude, ...]
    values: tuple[Fraction, ...]
    boxed: bool = False


class Channel(IntEnum):
    """How a node was found; 0 stands for a node that was not."""

    PATTERN = 1  # the normal form holds a pattern of it
    STATEMENT = 2  # a true statement in prose has its value and its operands
    CODE = 3  # one in program code
    EQUATION = 4  # an equation is equal to one of its own


class Hit(NamedTuple):
    """Where a node was first found: code points [start, end) of the text, by what and how."""

    start: int
    end: int
    expression: str
    channel: Channel


_RELATIONS: Final = classes_of("=<>≤")
_STATES: Final = frozenset("=<>≤≥≠≈≡")
_LEFT_OPERANDS: Final = classes_of("0aα√|([-+±")
_RIGHT_OPERANDS: Final = classes_of("0aα)]!|")


def _edges(text: str) -> Edge:
    """Return how the ends of a pattern bind.

    The right one depends on the last character alone, and the left one but for LEFT_FRACTION and
    RELATES on the first: engines judge what begins or ends at one place together.
    """
    first = CHAR_CLASSES.get(text[0], Char.OTHER)
    last = CHAR_CLASSES.get(text[-1], Char.OTHER)
    edges = Edge.LEFT_OPERAND if first in _LEFT_OPERANDS else Edge.NONE
    if first in (Char.OPEN, Char.BRACKET_OPEN):
        edges |= Edge.LEFT_BRACKET
    elif first in (Char.MINUS, Char.PLUS, Char.PLUS_MINUS):
        edges |= Edge.LEFT_SIGN
    digits = len(text) - len(text.lstrip("0123456789"))
    if 0 < digits <= 3 and text[digits : digits + 1] == "/":
        edges |= Edge.LEFT_FRACTION
    if not _STATES.isdisjoint(text):
        edges |= Edge.RELATES
    if last in _RIGHT_OPERANDS:
        edges |= Edge.RIGHT_OPERAND
    if last is Char.DIGIT:
        edges |= Edge.RIGHT_DIGIT
    if last in (Char.LETTER, Char.SYMBOL):
        edges |= Edge.RIGHT_LETTER
    return edges


_DELIMITERS: Final = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


def boxed_content(expression: str) -> str | None:
    r"""Return what ``\boxed{45}``, an expression that is a box and nothing else, holds."""
    if "box" not in expression:
        return None
    text = expression.strip(" \t\r\n.,")
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)].strip(" \t\r\n.,")
            break
    name = next((name for name in ("\\boxed", "\\fbox") if text.startswith(name)), "")
    braced = text[len(name) :].lstrip()
    if not name or braced[:1] != "{" or len(braced.encode(errors="replace")) > MAX_BOX_BYTES:
        return None
    depth = 0
    for brace in _BRACE.finditer(braced):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if not depth:
            return braced[1:-1] if brace.end() == len(braced) else None
    return None


def freeze_nodes(nodes: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the expressions of each node, read once.

    Raises:
        TypeError: a node is a str, or an expression is not one.
    """
    frozen = []
    for index, node in enumerate(nodes):
        if isinstance(node, (str, bytes)):
            raise TypeError(
                f"node {index} is a {type(node).__name__}; "
                "a node is a sequence of expressions, for example ['x=5']"
            )
        expressions = tuple(node)
        for text in expressions:
            if not isinstance(text, str):
                raise TypeError(
                    f"an expression of node {index} is a {type(text).__name__}, not a str"
                )
        frozen.append(expressions)
    return tuple(frozen)


def with_forms(
    nodes: Sequence[Sequence[str]],
    derive: Callable[[str], Iterable[str]] | None,
    derived: Sequence[Sequence[str]],
) -> list[list[str]]:
    """Return all ways to write each node: its expressions first, so that a hit names them.

    Args:
        nodes: one sequence of expressions per node, see :func:`freeze_nodes`.
        derive: makes equal forms of an expression; None derives nothing.
        derived: forms that were made before, one sequence per node, or nothing at all.

    Raises:
        ValueError: ``derived`` has another number of nodes.
    """
    if derived and len(derived) != len(nodes):
        raise ValueError(f"derived forms of {len(derived)} nodes for {len(nodes)} nodes")
    written = [list(expressions) for expressions in nodes]
    if derive is not None:
        for texts in written:
            texts += [form for text in texts for form in derive(text)]
    for texts, forms in zip(written, derived, strict=False):
        texts += forms
    return written


def compile_patterns(
    nodes: Sequence[Sequence[str]],
    normalize: Callable[[str], str],
    values: Callable[[str], Iterable[Fraction]],
) -> list[Pattern]:
    """Return the distinct patterns of ``nodes``; none for what is empty as normal form.

    Args:
        nodes: one sequence of expressions per node, see :func:`with_forms`.
        normalize: the engine's normal form.
        values: the engine's values of an expression's true equations with an operation.

    Raises:
        ValueError: more nodes or pattern bytes than one matcher can hold.
    """
    if len(nodes) > MAX_NODES:
        raise ValueError(f"{len(nodes)} nodes in one matcher; the limit is {MAX_NODES}")
    patterns: list[Pattern] = []
    total = 0
    for index, expressions in enumerate(nodes):
        seen: set[tuple[str, bool]] = set()
        for text in expressions:
            normal = normalize(text).strip(_PUNCTUATION)
            boxed = boxed_content(text) is not None and not any(
                CHAR_CLASSES.get(char) in _RELATIONS for char in normal
            )
            # What a blank line divides is two statements; no paragraph holds both.
            if not normal or (normal, boxed) in seen or PARAGRAPH in normal:
                continue
            seen.add((normal, boxed))
            data = normal.encode()
            total += len(data)
            if total > MAX_PATTERN_BYTES:
                raise ValueError(f"over {MAX_PATTERN_BYTES} bytes of patterns in one matcher")
            numbers = {match[0] for match in _NUMBER.finditer(normal)}
            patterns.append(
                Pattern(
                    data,
                    index,
                    text,
                    _edges(normal),
                    tuple(map(_magnitude_of, numbers)),
                    tuple(values(text)),
                    boxed,
                )
            )
    return patterns


class BatchResult:
    """Matches of ``n`` texts against their matchers.

    Attributes:
        num_matched: (n,) int32, matched nodes of each text.
        num_values: (n,) uint32, distinct values that each text states; None if not counted.
        num_numbers: (n,) uint32, distinct numbers in each text; None if not counted.
        num_equations: (n,) uint32, distinct equations of each text, of the kinds that its matcher
            looks for; None if not counted.
    """

    __slots__ = (
        "_channels", "_offsets", "num_equations", "num_matched", "num_numbers", "num_values"
    )  # fmt: skip

    def __init__(
        self,
        channels: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        num_values: npt.NDArray[np.uint32] | None,
        num_numbers: npt.NDArray[np.uint32] | None,
        num_equations: npt.NDArray[np.uint32] | None,
    ) -> None:
        """Wrap (sum of k_i,) channels, the (n + 1,) offsets of each text's own, and counts."""
        self._channels = channels
        self._offsets = offsets
        totals = np.concatenate(([0], np.cumsum(channels != 0, dtype=np.int64)))
        self.num_matched: npt.NDArray[np.int32] = (
            totals[offsets[1:]] - totals[offsets[:-1]]
        ).astype(np.int32)
        self.num_values = num_values
        self.num_numbers = num_numbers
        self.num_equations = num_equations

    def __len__(self) -> int:
        return len(self.num_matched)

    def matched(self, index: int) -> npt.NDArray[np.bool_]:
        """Return the (k_i,) flags of text ``index``, one per node of its matcher."""
        return self.channels(index).astype(np.bool_)

    def rows(self) -> list[bytes]:
        """Return the channels of all texts, one byte a node."""
        flat, offsets = self._channels.tobytes(), self._offsets.tolist()
        return [flat[start:end] for start, end in pairwise(offsets)]

    def channels(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the (k_i,) channels of text ``index``: of :class:`Channel`, 0 for no match."""
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of a batch of {len(self)}")
        return self._channels[self._offsets[index] : self._offsets[index + 1]]
