"""What matching says about a problem's nodes: among each other, and against cheap texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from consensusbench.inspection.findings import Code
from consensusbench.inspection.node_checks import Remark
from consensusbench.probes import Attack
from consensusbench.probes.attacks import fixed_attacks
from consensuspr.core import Matcher, match_batch
from consensuspr.data import Node, Problem

# Of one node; far above any real one, so that a hostile dataset cannot make pairs explode.
MAX_TEXTS: Final = 64

_PLAIN: Final = {
    attack: text
    for attack, text in fixed_attacks(budget=1 << 12).items()
    if attack in (Attack.ENUMERATION, Attack.LIST)
}


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem whose nodes have the derived forms that they are matched by."""

    line: int
    problem: Problem
    nodes: tuple[Node, ...]

    @property
    def patterns(self) -> list[tuple[str, ...]]:
        """For each node what it is matched by."""
        return [node.expressions + (node.derived or ()) for node in self.nodes]


def check_matches(
    chunk: Sequence[Examined], threads: int
) -> Iterator[tuple[Examined, str, Remark]]:
    """Yield problem, node id and remark for the problems of a chunk, matched in one batch."""
    jobs: list[tuple[Matcher, str]] = []
    for one in chunk:
        matcher = Matcher(one.patterns)
        jobs.append((matcher, one.problem.problem))
        jobs += [(matcher, text) for text in _PLAIN.values()]
        jobs += [(matcher, text) for node in one.patterns for text in node[:MAX_TEXTS]]
    found = match_batch([job[0] for job in jobs], [job[1] for job in jobs], threads=threads)
    at = 0
    for one in chunk:
        echoed, *printed = (found.matched(at + row) for row in range(1 + len(_PLAIN)))
        at += 1 + len(_PLAIN)
        for node_id, remark in _cheap(one, echoed, printed):
            yield one, node_id, remark
        hits = []
        for node in one.patterns:
            texts = min(len(node), MAX_TEXTS)
            hits.append(np.array([found.matched(at + row) for row in range(texts)]))
            at += texts
        for node_id, remark in _collisions(one.nodes, hits):
            yield one, node_id, remark


def _cheap(
    one: Examined, echoed: npt.NDArray[np.bool_], printed: Sequence[npt.NDArray[np.bool_]]
) -> Iterator[tuple[str, Remark]]:
    for place, node in enumerate(one.nodes):
        if echoed[place]:
            yield (
                node.node_id,
                (Code.ECHO, "stands in the problem's own text: restating it earns it; drop it"),
            )
        for attack, hit in zip(_PLAIN, printed, strict=True):
            if hit[place]:
                shown = '"=0" to "=300"' if attack is Attack.ENUMERATION else "0, 1, … 300"
                yield (
                    node.node_id,
                    (
                        Code.ENUMERABLE,
                        f"is hit by printing {shown}; use the equation that its value is the "
                        "result of",
                    ),
                )
                break


def _collisions(
    nodes: Sequence[Node], hits: Sequence[npt.NDArray[np.bool_]]
) -> Iterator[tuple[str, Remark]]:
    """Yield which nodes are hit by the text of others.

    Args:
        nodes: of one problem.
        hits: for each node (texts, nodes): which nodes each way to write it hits.
    """
    always = np.array([of_one.all(axis=0) for of_one in hits])
    # Whoever reaches a node mostly writes it as its expressions do: derived forms with the sides
    # swapped must not hide that its value alone is another node.
    written = [of_one[: len(node.expressions)] for node, of_one in zip(nodes, hits, strict=True)]
    for place, node in enumerate(nodes):
        for other, text in enumerate(nodes):
            hit = written[other][:, place]
            if other == place or not hit.any():
                continue
            if always[other, place] and always[place, other]:
                if other < place:
                    yield (
                        node.node_id,
                        (
                            Code.DUPLICATE_NODES,
                            f"is node {text.node_id!r} in other words, each is hit wherever the "
                            "other is: make one node of the two",
                        ),
                    )
            elif hit.all():
                yield (
                    node.node_id,
                    (
                        Code.IMPLIED_NODE,
                        f"is hit by every expression of node {text.node_id!r} and counts without "
                        "being reached: drop it, or write it so that it stands apart",
                    ),
                )
            else:
                which = text.expressions[int(hit.argmax())]
                yield (
                    node.node_id,
                    (
                        Code.COLLISION,
                        f"is hit by {which[:60]!r} of node {text.node_id!r}, not by all of that "
                        "node's expressions: look whether both are meant",
                    ),
                )
