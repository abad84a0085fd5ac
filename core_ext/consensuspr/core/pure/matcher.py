"""The matcher of the pure-Python engine, on pyahocorasick."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from itertools import chain
from operator import attrgetter

import ahocorasick
import numpy as np

from consensuspr.core.algebra import (
    OWN_GROUPS,
    VALUED,
    FactGroup,
    FactKind,
    FactRun,
    equation_keys,
    groups_of,
    mark_lists,
)
from consensuspr.core.expressions import derive_forms
from consensuspr.core.patterns import (
    BatchResult,
    Channel,
    Edge,
    Hit,
    Pattern,
    compile_patterns,
    encode,
    freeze_nodes,
    stripped,
    with_forms,
)
from consensuspr.core.pure.algebra import read_facts
from consensuspr.core.pure.boundary import left_free, right_free
from consensuspr.core.pure.boxes import find_answers
from consensuspr.core.pure.characters import CodePoints
from consensuspr.core.pure.normal_form import NormalForm, normal_form, normalize
from consensuspr.core.pure.statements import (
    StatedText,
    expression_keys,
    expression_statements,
    read_statements,
)
from consensuspr.core.statements import Key, is_computed


class Matcher:
    """The consensus nodes of one problem, ready to be searched for.

    Immutable after construction, and safe to use from several threads.
    """

    def __init__(
        self,
        nodes: Sequence[Sequence[str]],
        expand: bool = False,
        statements: bool = True,
        derived: Sequence[Sequence[str]] = (),
        code: str = "written",
        given: str = "",
        rare: Collection[str] = (),
    ) -> None:
        self._nodes = freeze_nodes(nodes)
        self._derived = freeze_nodes(derived)
        self._expand = expand
        self._statements = statements
        self._code = code
        self._given = given
        self._rare = frozenset(rare)
        is_computed(code)
        written = with_forms(self._nodes, derive_forms if expand else None, self._derived)
        patterns = compile_patterns(
            written,
            normalize,
            lambda text: (value for _, value in expression_statements(text)),
        )
        # The nodes that a key reaches, each with the expression that the key was made of.
        self._keys: dict[Key, list[tuple[int, str]]] = {}
        if statements:
            for node, expressions in enumerate(written):
                for text in expressions:
                    for key in expression_keys(text):
                        self._keys.setdefault(key, []).append((node, text))
        # The same for equations.
        self._equations: dict[int, list[tuple[int, str]]] = {}
        self._shapes: frozenset[int] = frozenset()
        self._groups = FactGroup(0)
        if statements:
            keys = equation_keys(
                self._nodes, read_expression_facts, expression_keys, given, self._rare
            )
            for equation in keys:
                place = equation.node, equation.expression
                self._equations.setdefault(equation.key, []).append(place)
            self._shapes = frozenset(equation.shape for equation in keys if equation.shape)
            self._groups = groups_of(keys)
            patterns = mark_lists(patterns, keys)
        self.num_nodes = len(self._nodes)
        self.num_patterns = len(patterns)
        self._boxed = [pattern for pattern in patterns if pattern.boxed]
        self._automaton = ahocorasick.Automaton()
        # Keyed by bytes in disguise: pyahocorasick searches str, offsets must be bytes.
        by_data: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            by_data.setdefault(pattern.data.decode("latin-1"), []).append(pattern)
        for word, same in by_data.items():
            self._automaton.add_word(word, same)
        if by_data:
            self._automaton.make_automaton()

    def __repr__(self) -> str:
        return f"Matcher({self.num_nodes:,} nodes, {self.num_patterns:,} patterns)"

    def __reduce__(self) -> tuple[type[Matcher], tuple[object, ...]]:
        return Matcher, (
            self._nodes, self._expand, self._statements, self._derived, self._code, self._given,
            tuple(self._rare),
        )  # fmt: skip

    @property
    def has_statements(self) -> bool:
        """Whether it was made with the statement channel."""
        return self._statements

    @property
    def nbytes(self) -> int:
        """Memory of the automaton in bytes, estimated."""
        keys = 200 * (len(self._keys) + len(self._equations))
        if not self.num_patterns:
            return sys.getsizeof(self._automaton) + keys
        stats = self._automaton.get_stats()
        return int(stats["total_size"]) + 200 * self.num_patterns + keys

    def match(self, text: str | bytes) -> list[bool]:
        """Tell for each node whether the text reaches it."""
        batch = match_batch([self], [text], 1, counts=self._statements)
        return [bool(flag) for flag in batch.matched(0)]

    def spans(
        self,
        text: str | bytes,
        *,
        statements: bool = True,
        counts: bool | None = None,
        code: str | None = None,
    ) -> list[tuple[int, int] | None]:
        """Return for each node the code points [start, end) of its first hit in ``text``."""
        hits = self.hits(text, statements=statements, counts=counts, code=code)
        return [None if hit is None else (hit.start, hit.end) for hit in hits]

    def hits(
        self,
        text: str | bytes,
        *,
        statements: bool = True,
        counts: bool | None = None,
        code: str | None = None,
    ) -> list[Hit | None]:
        """Return for each node its first hit.

        That is the first statement in prose that reaches it, the first one in code, or the pattern
        that ends first, the longest of those.  The options are those of :func:`match_batch`;
        ``counts`` is whether the matcher has the statement channel if it is None.
        """
        data = encode(text)
        counts = self._statements if counts is None else counts
        read = counts or (statements and self._statements)
        stated = read_statements(data) if read else None
        found = self.find(data, stated, statements, counts, code)
        code_points = CodePoints(data, (edge for one in found if one for edge in one[:2]))
        return [
            one and Hit(code_points[one.start], code_points[one.end], one.expression, one.channel)
            for one in found
        ]

    def find(
        self,
        data: bytes,
        stated: StatedText | None,
        statements: bool,
        counts: bool,
        code: str | None,
    ) -> list[Hit | None]:
        """Return each node's first hit, in bytes.

        Args:
            data: the text.
            stated: what it states and the guard counts; None if nothing is counted.
            statements: whether its statements reach nodes.
            counts: whether a pattern reaches its node only if the guard counts what it tells.
            code: when those of code do; None for the matcher's own rule.
        """
        found: list[Hit | None] = [None] * self.num_nodes
        if stated is not None and statements:
            computed = is_computed(self._code if code is None else code)
            reaching = [
                statement for statement in stated.statements if statement.written or computed
            ]
            for statement in sorted(reaching, key=attrgetter("code")):
                for node, text in self._keys.get(statement.key, ()):
                    if found[node] is None:
                        channel = Channel.CODE if statement.code else Channel.STATEMENT
                        found[node] = Hit(statement.start, statement.end, text, channel)
                        if statement.code and not computed:
                            # A list of results is worth no more than one of statements.
                            stated.values.update(
                                value for value, last in stated.results if last >= statement.end
                            )
        boxes = statements and self._statements
        if boxes and any(found[pattern.node] is None for pattern in self._boxed):
            for pattern, start, end in find_answers(data, self._boxed):
                if found[pattern.node] is None:
                    found[pattern.node] = Hit(start, end, pattern.expression, Channel.PATTERN)
        keyed = statements and bool(self._groups)
        if keyed or (None in found and self.num_patterns):
            form = normal_form(data)
            counted = stated if counts else None
            uncounted = self._search(form, counted, found, boxes)
            if counted is not None and any(found[node] is None for node in uncounted):
                counted.count_too(form.data)
                self._search(form, counted, found, boxes)
            if keyed:
                self._read_equations(form, stated, found)
        return found

    def _read_equations(
        self, form: NormalForm, stated: StatedText | None, found: list[Hit | None]
    ) -> None:
        """Add what equations reach to ``found``, and count them."""
        fresh = True
        for run in read_facts(form.data, self._shapes):
            for fact in run.facts:
                is_joined = fact.kind is FactKind.JOINED
                if not OWN_GROUPS[fact.kind] & self._groups:
                    continue
                # What is joined counts where its last part has been said before.
                if stated is not None and not (is_joined and fresh):
                    is_new = stated.take(fact)
                    fresh = fresh if is_joined else is_new
                # The second key of x = 12/2 is that of x = 6: it reaches nodes only from there.
                said = fact.keys[:1] if fact.kind in VALUED else fact.keys
                keys = (*said, fact.renamed)
                for node, text in chain.from_iterable(self._equations.get(key, ()) for key in keys):
                    if found[node] is None:
                        start, end = form.starts[fact.start], form.ends[fact.end - 1]
                        found[node] = Hit(start, end, text, Channel.EQUATION)

    def _search(
        self,
        form: NormalForm,
        counted: StatedText | None,
        found: list[Hit | None],
        boxes: bool,
    ) -> set[int]:
        """Add hits to ``found``; return the nodes of those that the guard has not counted.

        With ``boxes`` a boxed pattern has none.
        """
        uncounted: set[int] = set()
        missing = found.count(None)
        end = 0
        ends_free = False
        for last, same in self._automaton.iter(form.data.decode("latin-1")):
            edges = same[0].edges
            if last + 1 != end:
                # All that ends here ends with one character, on which alone this depends.
                end = last + 1
                ends_free = right_free(form.data, end, edges)
            start = end - len(same[0].data)
            if not ends_free or all(found[pattern.node] for pattern in same):
                continue
            if not left_free(form.data, start, edges):
                continue
            for pattern in same:
                if boxes and (pattern.boxed or pattern.edges & Edge.LIST):
                    continue
                if counted is not None and not (
                    counted.values.issuperset(pattern.values)
                    and counted.numbers.issuperset(pattern.numbers)
                ):
                    uncounted.add(pattern.node)
                elif found[pattern.node] is None:
                    found[pattern.node] = Hit(
                        form.starts[start],
                        form.ends[end - 1],
                        pattern.expression,
                        Channel.PATTERN,
                    )
                    missing -= 1
            if not missing:
                break
        return uncounted


def match_batch(
    matchers: Sequence[Matcher],
    texts: Sequence[str | bytes],
    threads: int = 0,
    *,
    statements: bool = True,
    counts: bool = True,
    deadline: float | None = None,
    code: str | None = None,
) -> BatchResult:
    """Match each text against the matcher at its index; ``threads`` has no effect here."""
    if len(matchers) != len(texts):
        raise ValueError(f"{len(matchers)} matchers for {len(texts)} texts")
    if threads < 0:
        raise ValueError(f"threads must be 0 or more, got {threads}")
    channels: list[int] = []
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    num_values, num_numbers, num_equations = np.zeros((3, len(texts)), dtype=np.uint32)
    for index, (matcher, text) in enumerate(zip(matchers, texts, strict=True)):
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"the deadline passed before {len(texts)} texts were matched")
        data = encode(text)
        read = counts or (statements and matcher.has_statements)
        stated = read_statements(data) if read else None
        found = matcher.find(data, stated, statements, counts, code)
        if stated is not None:
            num_values[index], num_numbers[index] = stated.num_values, len(stated.numbers)
            num_equations[index] = stated.num_equations
        channels += [0 if hit is None else hit.channel for hit in found]
        offsets[index + 1] = len(channels)
    return BatchResult(
        np.array(channels, dtype=np.uint8),
        offsets,
        num_values if counts else None,
        num_numbers if counts else None,
        num_equations if counts else None,
    )


def read_expression_facts(text: str) -> tuple[bytes, list[FactRun]]:
    """Return the normal form of an expression or a problem, and what it says."""
    form = stripped(normalize(text))
    return form, read_facts(form)


def states_equation(text: str) -> bool:
    """Tell whether a text states an equation, or anything else that could reach a node."""
    return any(run.facts for run in read_expression_facts(text)[1])
