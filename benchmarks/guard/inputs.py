"""The fixed inputs of the counted runs: the sample's rollouts, seeded texts, hostile texts.

The same bytes in every run, and none from outside of the repository.  They are made (and the
flags that are right for them are found, by the pure-Python twin) before anything is counted,
and handed over as one JSON file.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import texts
from benchmarks.harness.measure import REPOSITORY
from consensuspr.core.pure.matcher import Matcher, match_batch

SAMPLE = REPOSITORY / "examples" / "sample"
SEED = 5
ROLLOUT_BYTES = 10_000
LONG_BYTES = 1 << 18
HOSTILE_BYTES = 1 << 14
ANSWERS = 200

# What a policy might write to make the pass slow, repeated to HOSTILE_BYTES.
HOSTILE: dict[str, str] = {
    "nested fractions": r"\frac{",
    "open brackets": "(",
    "closing brackets": "1)",
    "one endless number": "1",
    "grouped digits": "1,",
    "one endless word": "a",
    "powers of powers": "x^{",
    "backslashes": "\\",
    "unknown commands": r"\qwertz ",
    "signs": "-+",
    "mathematical letters": "𝑥",
    "blanks": " \t",
}
# Pieces of one another: every place of an endless number ends a pattern.
HOSTILE_NODES = [["1" * length] for length in range(1, 41)] + [["x=1"], [r"\frac{1}{2}"]]


class Workload(NamedTuple):
    """Texts to match: ``items`` are (index into ``nodes``, text), ``expected`` their flags."""

    name: str
    nodes: list[list[list[str]]]
    items: list[tuple[int, str]]
    expected: list[list[bool]]


class Answer(NamedTuple):
    """A response, what its answer is checked against, and whether it is right."""

    ground_truth: str
    response: str
    correct: bool


class Inputs(NamedTuple):
    """All that the counted process is given.

    ``problems`` and ``rollouts`` are rows of the sample; ``derived`` are two sets of problems
    without stored forms and ``answers`` two sets of answers: one to warm up with, one to count.
    """

    workloads: list[Workload]
    problems: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]
    derived: list[list[dict[str, Any]]]
    answers: list[list[Answer]]


def build() -> Inputs:
    """Make the inputs; takes some seconds, for the twin reads all texts."""
    problems = _rows(SAMPLE / "problems.jsonl")
    rollouts = _rows(SAMPLE / "rollouts.jsonl")
    return Inputs(
        workloads=list(_workloads(problems, rollouts)),
        problems=problems,
        rollouts=rollouts,
        derived=[_underived(texts.problems(12, SEED + turn)) for turn in range(2)],
        answers=[answers(ANSWERS, f"{SEED} {turn}") for turn in range(2)],
    )


def write(inputs: Inputs, path: Path) -> str:
    """Write the inputs to a file; return the digest of their bytes."""
    data = json.dumps(inputs, ensure_ascii=False).encode()
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()[:16]


def read(path: Path) -> Inputs:
    """Return the inputs that :func:`write` wrote."""
    workloads, problems, rollouts, derived, found = json.loads(path.read_bytes())
    return Inputs(
        [
            Workload(name, nodes, [(int(index), str(text)) for index, text in items], expected)
            for name, nodes, items, expected in workloads
        ],
        problems,
        rollouts,
        derived,
        [[Answer(*one) for one in part] for part in found],
    )


def hostile(size: int) -> dict[str, str]:
    """Return the hostile texts, each about ``size`` bytes."""
    return {name: piece * (size // len(piece.encode())) for name, piece in HOSTILE.items()}


def answers(count: int, seed: str) -> list[Answer]:
    """Return answers of the usual kinds, no two alike, half of them wrong."""
    rng = random.Random(f"answers {seed}")
    return [_answer(rng, index) for index in range(count)]


def expressions(problem: dict[str, Any]) -> list[list[str]]:
    """Return the nodes of a dataset row as a matcher takes them, derived forms included."""
    return [[*node["expressions"], *node.get("derived", ())] for node in problem["nodes"]]


def _workloads(
    problems: Sequence[dict[str, Any]], rollouts: Sequence[dict[str, Any]]
) -> Iterator[Workload]:
    yield _generated("prose, 10 kB", texts.problems(8, SEED), 4, ROLLOUT_BYTES)
    sample = [expressions(problem) for problem in problems]
    place = {problem["problem_id"]: index for index, problem in enumerate(problems)}
    joined = texts.cut([row["response"] for row in rollouts], ROLLOUT_BYTES)
    yield _with_flags("formulas, 10 kB", sample, list(enumerate(joined)))
    short = [(place[row["problem_id"]], row["response"]) for row in rollouts]
    yield _with_flags("the sample's rollouts", sample, short)
    yield _generated("prose, 256 kB", texts.problems(1, SEED), 1, LONG_BYTES)
    yield _generated("prose, 1 node", texts.problems(2, SEED, nodes=1), 6, ROLLOUT_BYTES)
    yield _generated("prose, 500 nodes", texts.problems(1, SEED, nodes=500), 6, ROLLOUT_BYTES)
    for name, text in hostile(HOSTILE_BYTES).items():
        yield _with_flags(f"hostile: {name}", [HOSTILE_NODES], [(0, text)])


def _generated(
    name: str, problems: Sequence[dict[str, Any]], per_problem: int, size: int
) -> Workload:
    rows = texts.rollouts_of(problems, per_problem, size, SEED)
    place = {problem["problem_id"]: index for index, problem in enumerate(problems)}
    items = [(place[row["problem_id"]], row["response"]) for row in rows]
    return _with_flags(name, [expressions(problem) for problem in problems], items)


def _with_flags(name: str, nodes: list[list[list[str]]], items: list[tuple[int, str]]) -> Workload:
    matchers = [Matcher(one) for one in nodes]
    found = match_batch([matchers[index] for index, _ in items], [text for _, text in items])
    return Workload(name, nodes, items, [found.matched(at).tolist() for at in range(len(items))])


def _answer(rng: random.Random, index: int) -> Answer:
    a, b = 1000 + 7 * index + rng.randrange(7), rng.randrange(2, 98)
    kinds = (
        (str(a), f"{a:,}", f"{a + 1}"),
        (f"{a}.{b:02}", f"{a}.{b:02}0", f"{a}.{b + 1:02}"),
        (rf"\frac{{{a}}}{{{b}}}", f"{a}/{b}", f"{a + 1}/{b}"),
        (rf"{a}\sqrt{{{b}}}", rf"${a}\,\sqrt{{{b}}}$", rf"{a + 1}\sqrt{{{b}}}"),
        (f"({a}, {b})", rf"\left({a},{b}\right)", f"({b}, {a})"),
        (f"{a}", rf"{a}\text{{ cm}}", rf"{a - 1}\text{{ cm}}"),
    )
    truth, right, wrong = kinds[index % len(kinds)]
    correct = rng.random() < 0.5
    steps = texts.rollouts(1, 400, rng.randrange(1 << 30))[0].rpartition("\n\n")[0]
    given = right if correct else wrong
    return Answer(truth, f"{steps}\n\nThe answer is $\\boxed{{{given}}}$.", correct)


def _underived(problems: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    for problem in problems:
        for node in problem["nodes"]:
            del node["derived"]
    return list(problems)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
