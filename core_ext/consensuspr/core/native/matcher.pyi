from collections.abc import Collection, Sequence
from typing import final

from consensuspr.core.patterns import BatchResult, Hit

@final
class Matcher:
    """The consensus nodes of one problem, ready to be searched for.

    Immutable after construction, and safe to use from several threads.

    Args:
        nodes: one list of expressions per node.
        expand: search for derived equal forms of the expressions as well.
        statements: reach a node also by a true statement with its value and its operands;
            without it, matching is the paper's own.
        derived: further expressions of each node, equal forms that are stored; one list per node.
        code: when a statement in code reaches a node: "written" if its result is written in the
            text as a number too, "computed" always.
        given: text of the problem; equations that it states reach no node.
        rare: expressions that may be found with other names though they are short, because no
            solution of another problem states them.
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
    ) -> None: ...
    @property
    def expressions(self) -> tuple[str, ...]: ...
    @property
    def num_nodes(self) -> int:
        """Nodes, with those that can never match."""
    @property
    def num_patterns(self) -> int:
        """Distinct patterns over all nodes."""
    @property
    def nbytes(self) -> int:
        """Memory of the automaton, the patterns, their numbers and the keys in bytes."""
    def match(self, text: str | bytes) -> list[bool]:
        """Return for each node whether ``text`` reaches it."""
    def spans(
        self,
        text: str | bytes,
        *,
        statements: bool = True,
        counts: bool | None = None,
        code: str | None = None,
    ) -> list[tuple[int, int] | None]:
        """Return for each node the code points [start, end) of its first hit in ``text``."""
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
    """Match each text against the matcher at its index.

    With ``counts`` a pattern reaches its node only in a text in which its numbers and values are
    counted.

    Args:
        matchers: n matchers; one may occur many times.
        texts: n texts, str or bytes.
        threads: threads to use at most; 0 for one per core.  The GIL is released.
        statements: whether true statements reach nodes, for matchers that have the channel.
        counts: whether to count distinct values and numbers, which the guard asks for.
        deadline: :func:`time.monotonic` value after which to stop; checked before each text
            and, if it has blank lines, every some tens of kilobytes.
        code: "written" or "computed", as for :class:`Matcher`; None for each matcher's own.

    Returns:
        A BatchResult with what was matched in each text.

    Raises:
        ValueError: the lengths differ, or ``threads`` is negative.
        TimeoutError: the deadline passed first.
    """
