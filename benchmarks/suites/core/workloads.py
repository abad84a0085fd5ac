"""What the core is measured on: texts, the nodes looked for, and which text reaches which."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.harness import texts
from consensuspr.core import Matcher, derive_forms

LONG = ("olympiad_gptoss120b_very_long", "math_r1distill_long", "aime24_qwen3_32b")
SHORT = "gsm8k_gpt4o_mini_and_older"
# Nodes of a problem of the paper's shape, and rollouts of one prompt in a training batch.
NODES = 7
GROUP = 8
# No sooner than that many bytes does another planted line follow, where texts are cut later.
_LINE_EVERY = 4_000

Nodes = list[list[str]]


@dataclass(frozen=True)
class Workload:
    """Texts in groups of ``group``, each group with the nodes of its problem.

    ``expected`` holds for each text one flag a node: whether the text reaches it.
    """

    texts: list[bytes]
    problems: list[Nodes]
    group: int
    expected: list[list[bool]]

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.texts))

    @cached_property
    def matchers(self) -> list[Matcher]:
        """A matcher for each text; texts of one group share theirs."""
        made = [Matcher(nodes) for nodes in self.problems]
        return [made[index // self.group] for index in range(len(self.texts))]

    def first(self, size: int) -> Workload:
        """Return the first texts, at least ``size`` bytes of them, or all."""
        count = total = 0
        while count < len(self.texts) and total < size:
            total += len(self.texts[count])
            count += 1
        problems = self.problems[: -(-count // self.group)]
        return Workload(self.texts[:count], problems, self.group, self.expected[:count])

    def repeated(self, size: int) -> Workload:
        """Return whole groups of these texts over and over, about ``size`` bytes of them.

        Each repeat is a problem of its own, with a matcher of its own.
        """
        whole = len(self.texts) // self.group
        count = whole * self.group
        times = max(1, round(size / sum(map(len, self.texts[:count]))))
        return Workload(
            self.texts[:count] * times,
            self.problems[:whole] * times,
            self.group,
            self.expected[:count] * times,
        )


class Corpus:
    """The text that everything is cut from: real long rollouts, or generated ones."""

    def __init__(self, data: Path | None, seed: int, size: int) -> None:
        """Take ``size`` bytes of text, to be cut into pieces; ``seed`` plants equations."""
        self.seed = seed
        self.data = data
        if data is None:
            whole = texts.rollouts(-(-size // 20_000), 20_000, seed)
            self.description = "Texts of this run are generated: no real ones were there."
        else:
            whole = texts.real_rollouts(data, *LONG)
            self.description = (
                "Texts of this run are real: long solutions of olympiad, MATH and AIME problems by "
                "three reasoning models."
            )
        self.whole: list[str] = []
        total = 0
        for text in whole:
            if total >= size:
                break
            self.whole.append(text)
            total += len(text.encode())

    def cut(self, size: int) -> list[str]:
        """Return texts of about ``size`` bytes with nothing written into them."""
        return texts.cut(self.whole, size)

    def planted(self, size: int) -> Workload:
        """Return texts of about ``size`` bytes in groups, each with its problem's nodes."""
        return plant(self.cut(size), self.seed)

    @cached_property
    def lined(self) -> tuple[list[str], Nodes, list[str]]:
        """The same text with lines of few equations in it, to be cut into any size.

        However it is cut, all pieces together hold the same bytes.  Returns the texts, the
        nodes (the last in no text) and the lines, one a node.
        """
        rng = random.Random(f"lined {self.seed}")
        nodes, lines = equations(rng, NODES)
        parts: list[str] = []
        for part in texts.cut(self.whole, _LINE_EVERY):
            parts += [part.rstrip("\n"), "\n\n", rng.choice(lines[:-1]), "\n\n"]
        return ["".join(parts)], nodes, lines

    def lengths(self, size: int) -> Workload:
        """Return ``lined`` cut into texts of about ``size`` bytes."""
        whole, nodes, lines = self.lined
        pieces = texts.cut(whole, size)
        return Workload(
            texts=[piece.encode() for piece in pieces],
            problems=[nodes],
            group=len(pieces),
            expected=[[line in piece for line in lines] for piece in pieces],
        )


def equations(rng: random.Random, count: int) -> tuple[Nodes, list[str]]:
    """Return ``count`` nodes with their equal forms, and a line that reaches each."""
    nodes: Nodes = []
    lines: list[str] = []
    for a in rng.sample(range(1_001, 10_000), count):
        b = rng.randrange(1_001, 10_000)
        expression = f"{a}*{b}={a * b}"
        nodes.append([expression, *derive_forms(expression)])
        lines.append(f"Now {a} * {b} = {a * b}.")
    return nodes, lines


def plant(pieces: Sequence[str], seed: int, count: int = NODES, group: int = GROUP) -> Workload:
    """Write about half of its problem's equations into each text, the last into none."""
    rng = random.Random(f"plant {seed}")
    problems: list[Nodes] = []
    planted: list[bytes] = []
    expected: list[list[bool]] = []
    lines: list[str] = []
    for index, piece in enumerate(pieces):
        if index % group == 0:
            nodes, lines = equations(rng, count)
            problems.append(nodes)
        # Of thousands of nodes a text holds a few too, or it would be a list of equations.
        share = min(0.5, 4 / count)
        chosen = [number < count - 1 and rng.random() < share for number in range(count)]
        planted.append(_insert(rng, piece, lines, chosen).encode())
        expected.append(chosen)
    return Workload(planted, problems, group, expected)


def _insert(rng: random.Random, text: str, lines: Sequence[str], chosen: Sequence[bool]) -> str:
    """Put each chosen line after a line of the text, or at its end."""
    parts = text.split("\n")
    for line, is_chosen in zip(lines, chosen, strict=True):
        if is_chosen:
            parts.insert(rng.randrange(1, len(parts) + 1), f"\n{line}\n")
    return "\n".join(parts)
