"""The rollouts that are sent, over and over: from a file, or made from the dataset."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from consensuspr.data import Problem, read_problems, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import Rollout, rollout_from_row
from consensuspr.scoring.index_image import is_image

# Each process holds all of them, once as values and once as requests.
POOL_BYTES = 64 << 20
POOL_ROLLOUTS = 20_000
GENERATED_ROLLOUTS = 1024

MIN_SIZE = 64
MAX_SIZE = 16 << 20

# Of verl's shape: prose with formulas between, so that the normal form has its usual work.
_SENTENCES = (
    "Let us first write down what is given and what is asked for. ",
    "We substitute this into the equation above and collect the terms. ",
    r"Note that \( a^2 - b^2 = (a - b)(a + b) \), which makes the product easier. ",
    "Wait, I should check that step again before I go on.\n\n",
    r"Since $n \geq 1$, the sum $\sum_{k=1}^{n} k = \frac{n(n+1)}{2}$ can be used here. ",
    "**Step.** Divide both sides by the common factor and simplify.\n",
    "So the two expressions agree, and nothing is lost by the rearrangement. ",
    r"In particular $x = \frac{3}{4} \cdot 120 = 90$ would be too large. ",
    "Now count the remaining cases one after the other.\n\n",
    r"\[ f(t) = t^3 - 6t^2 + 11t - 6 \] has its roots where each factor is zero. ",
)
_PADDING = "and so on, "


@dataclass(frozen=True, slots=True)
class Pool:
    """Rollouts to draw requests from.

    Attributes:
        rollouts: at least one.
        source: where they are from, in a few words.
        num_bytes: of all responses together.
    """

    rollouts: tuple[Rollout, ...]
    source: str
    num_bytes: int

    @property
    def mean_bytes(self) -> float:
        """Mean size of a response."""
        return self.num_bytes / len(self.rollouts)

    def largest_batch_bytes(self, batch: int) -> int:
        """Return the bytes of the largest batch of so many rollouts that follow each other."""
        sizes = [response_bytes(rollout) for rollout in self.rollouts]
        return max(
            sum(sizes[place % len(sizes)] for place in range(start, start + batch))
            for start in range(0, len(sizes), batch)
        )


def pool_from_file(path: str | os.PathLike[str]) -> Pool:
    """Return the first rollouts of a file, as many as a process can hold.

    Raises:
        DataError: the file or one of its rows is bad.
    """
    drawn = _bounded(rollout_from_row(row) for row in read_rollouts(path))
    name = os.path.basename(os.fspath(path))
    return _pool(drawn, f"the first {len(drawn):,} rollouts of {name}")


def pool_from_dataset(path: str | os.PathLike[str], size: int, seed: int) -> Pool:
    """Return made-up rollouts to the problems of a dataset.

    Each reaches some of its problem's nodes, in one of their ways of writing, and most state
    the right answer.

    Args:
        path: of the dataset.
        size: bytes of each response, in [:data:`MIN_SIZE`, :data:`MAX_SIZE`]; a response is
            longer only where its answer alone is.
        seed: equal seeds give equal rollouts.

    Raises:
        InputError: the size is out of its range, or the dataset is a prepared one, which holds
            no texts.
        DataError: the dataset is bad.
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(f"--generate must be in [{MIN_SIZE}, {MAX_SIZE}] bytes, got {size}")
    if is_image(path):
        raise InputError(
            f"--generate makes responses from the texts of a dataset, and the prepared dataset"
            f" {os.fspath(path)!r} holds none; give the JSONL or Parquet file that it was made"
            " from, or --rollouts FILE"
        )
    draw = random.Random(seed)
    problems = list(read_problems(path))
    count = min(GENERATED_ROLLOUTS, max(1, POOL_BYTES // size))
    drawn = tuple(_generated(draw.choice(problems), size, draw) for _ in range(count))
    name = os.path.basename(os.fspath(path))
    return _pool(drawn, f"{count:,} rollouts of {size:,} bytes generated for {name}")


def _pool(rollouts: tuple[Rollout, ...], source: str) -> Pool:
    return Pool(rollouts, source, sum(map(response_bytes, rollouts)))


def response_bytes(rollout: Rollout) -> int:
    """Return the size of a rollout's response in UTF-8."""
    response = rollout.response
    return len(response if isinstance(response, bytes) else response.encode(errors="replace"))


def _bounded(rollouts: Iterable[Rollout]) -> tuple[Rollout, ...]:
    drawn: list[Rollout] = []
    left = POOL_BYTES
    for rollout in rollouts:
        left -= response_bytes(rollout)
        if drawn and (left < 0 or len(drawn) == POOL_ROLLOUTS):
            break
        drawn.append(rollout)
    return tuple(drawn)


def _generated(problem: Problem, size: int, draw: random.Random) -> Rollout:
    """Return one rollout: prose, node expressions in between, an answer at the end."""
    truth = problem.ground_truth
    answer = truth if truth is not None and draw.random() < 0.75 else str(draw.randrange(1000))
    end = f"\nTherefore the answer is \\boxed{{{answer}}}."
    parts: list[str] = []
    left = size - len(end.encode())
    hits = list(_expressions(problem, draw))
    while True:
        sentence = draw.choice(_SENTENCES)
        if hits and draw.random() < 0.5:
            sentence = f"Here ${hits.pop()}$ holds. "
        num_bytes = len(sentence.encode())
        if num_bytes > left:
            break
        parts.append(sentence)
        left -= num_bytes
    if left > 0:
        parts.append((_PADDING * (left // len(_PADDING) + 1))[:left])
    tokens = max(1, size // 4)
    return Rollout(
        problem.problem_id,
        "".join(parts) + end,
        num_tokens=tokens,
        data_source=problem.data_source or None,
    )


def _expressions(problem: Problem, draw: random.Random) -> Iterator[str]:
    """Yield one way of writing some of a problem's nodes."""
    for node in problem.nodes:
        if node.expressions and draw.random() < 0.6:
            yield draw.choice(node.expressions)
