"""How much the core suite measures, quick and full."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Amounts: bytes of text for each measurement, bytes of a text, nodes of a matcher.

    ``corpus_bytes`` must hold four texts of the longest length.
    """

    corpus_bytes: int
    peer_bytes: int
    twin_bytes: int
    thread_bytes: int
    memcpy_bytes: int
    hostile_bytes: int
    lengths: tuple[int, ...]
    nodes: tuple[int, ...]


# memcpy's buffer and its target together are larger than the largest third-level caches in use.
QUICK = Sizes(
    corpus_bytes=4_400_000,
    peer_bytes=1_500_000,
    twin_bytes=150_000,
    thread_bytes=20_000_000,
    memcpy_bytes=1 << 28,
    hostile_bytes=200_000,
    lengths=(200, 1_000, 10_000, 100_000, 1_000_000),
    nodes=(1, 5, 50, 500, 5_000),
)
FULL = Sizes(
    corpus_bytes=8_400_000,
    peer_bytes=8_400_000,
    twin_bytes=400_000,
    thread_bytes=40_000_000,
    memcpy_bytes=1 << 28,
    hostile_bytes=1_000_000,
    lengths=(200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000),
    nodes=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000),
)
