from collections.abc import Collection, Sequence
from typing import final

from consensuspr.core.patterns import BatchResult, Hit

@final
class Matcher:
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
    def num_nodes(self) -> int: ...
    @property
    def num_patterns(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def match(self, text: str | bytes) -> list[bool]: ...
    def spans(
        self,
        text: str | bytes,
        *,
        statements: bool = True,
        counts: bool | None = None,
        code: str | None = None,
    ) -> list[tuple[int, int] | None]: ...
    def hits(
        self,
        text: str | bytes,
        *,
        statements: bool = True,
        counts: bool | None = None,
        code: str | None = None,
    ) -> list[Hit | None]: ...

def match_batch(
    matchers: Sequence[Matcher],
    texts: Sequence[str | bytes],
    threads: int = 0,
    *,
    statements: bool = True,
    counts: bool = True,
    deadline: float | None = None,
    code: str | None = None,
) -> BatchResult: ...
