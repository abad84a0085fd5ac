"""The matcher of the pure-Python twin, on pyahocorasick."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import ahocorasick
import numpy as np

from consensuspr.core.expressions import derive_forms
from consensuspr.core.patterns import (
    BatchResult,
    Hit,
    Pattern,
    compile_patterns,
    encode,
    freeze_nodes,
)
from consensuspr.core.pure.boundary import stands_alone
from consensuspr.core.pure.characters import CodePoints
from consensuspr.core.pure.normal_form import NormalForm, normal_form, normalize


class Matcher:
    """The consensus nodes of one problem, ready to be searched for.

    Immutable after construction, and safe to use from several threads.
    """

    def __init__(self, nodes: Sequence[Sequence[str]], expand: bool = False) -> None:
        self._nodes = freeze_nodes(nodes)
        self._expand = expand
        patterns = compile_patterns(self._nodes, normalize, derive_forms if expand else None)
        self.num_nodes = len(self._nodes)
        self.num_patterns = len(patterns)
        self._automaton = ahocorasick.Automaton()
        # Keyed by bytes in disguise: pyahocorasick searches str, offsets must be bytes.
        by_data: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            by_data.setdefault(pattern.data.decode("latin-1"), []).append(pattern)
        for key, same in by_data.items():
            self._automaton.add_word(key, same)
        if by_data:
            self._automaton.make_automaton()

    def __reduce__(self) -> tuple[type[Matcher], tuple[object, ...]]:
        return Matcher, (self._nodes, self._expand)

    @property
    def nbytes(self) -> int:
        """Memory of the automaton in bytes, estimated."""
        if not self.num_patterns:
            return sys.getsizeof(self._automaton)
        stats = self._automaton.get_stats()
        return int(stats["total_size"]) + 200 * self.num_patterns

    def match(self, text: str | bytes) -> list[bool]:
        """Tell for each node whether the text reaches it."""
        return [found is not None for found in self._search(normal_form(text))]

    def spans(self, text: str | bytes) -> list[tuple[int, int] | None]:
        """Return for each node the code points [start, end) of its first hit in ``text``."""
        return [None if hit is None else (hit.start, hit.end) for hit in self.hits(text)]

    def hits(self, text: str | bytes) -> list[Hit | None]:
        """Return for each node its first hit: the one that ends first, the longest of those."""
        data = encode(text)
        form = normal_form(data)
        found = [
            None if one is None else (form.starts[one[0]], form.ends[one[1] - 1], one[2])
            for one in self._search(form)
        ]
        code_points = CodePoints(data, (edge for one in found if one for edge in one[:2]))
        return [
            None
            if one is None
            else Hit(code_points[one[0]], code_points[one[1]], one[2].expression)
            for one in found
        ]

    def _search(self, form: NormalForm) -> list[tuple[int, int, Pattern] | None]:
        found: list[tuple[int, int, Pattern] | None] = [None] * self.num_nodes
        if not self.num_patterns:
            return found
        missing = self.num_nodes
        for last, same in self._automaton.iter(form.data.decode("latin-1")):
            end = last + 1
            for pattern in same:
                start = end - len(pattern.data)
                if found[pattern.node] is None and stands_alone(
                    form.data, start, end, pattern.edges
                ):
                    found[pattern.node] = (start, end, pattern)
                    missing -= 1
            if not missing:
                break
        return found


def match_batch(
    matchers: Sequence[Matcher], texts: Sequence[str | bytes], threads: int = 0
) -> BatchResult:
    """Match each text against the matcher at its index; ``threads`` has no effect here."""
    if len(matchers) != len(texts):
        raise ValueError(f"{len(matchers)} matchers for {len(texts)} texts")
    if threads < 0:
        raise ValueError(f"threads must be 0 or more, got {threads}")
    rows = [matcher.match(text) for matcher, text in zip(matchers, texts, strict=True)]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    flags = np.array([flag for row in rows for flag in row], dtype=np.bool_)
    return BatchResult(flags, offsets)
