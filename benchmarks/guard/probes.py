"""The process that is counted, with all that it does and gets: inputs, probes, marks.

``python -m benchmarks.guard.probes INPUTS SCRATCH RESULT`` marks the beginning and the end of each
probe with a call of a C function that nothing else calls, at which callgrind writes down what was
executed since the last one.  So start-up, imports and checks are not part of any count, and no
symbol of the core is needed.

The inputs are the sample's rollouts, seeded texts and hostile texts: the same bytes in every run,
and none from outside of the repository.  They are made (and the flags that are right for them are
found, by the pure-Python twin) before anything is counted, and handed over as one JSON file.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import texts
from benchmarks.harness.measure import REPOSITORY
from benchmarks.harness.texts import Answer, expressions, write_rows
from consensuspr.core import BatchResult, Matcher, match_batch, normalize
from consensuspr.core.pure import matcher as twin
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    RewardSpec,
    Rollout,
    Score,
    Scorer,
    Verdict,
    rollout_from_row,
)
from consensuspr.scoring.types import Identity, ScoreColumns, ScoreOptions
from consensuspr.wire.codec import (
    decode_score_request,
    decode_score_response,
    encode_score_request,
    encode_score_response,
)

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

# Nodes that are pieces of one another: how their patterns begin, and what is repeated in them and
# in the text.  They are refused on the right, on the left, by a factor there, or found already.
NESTED: dict[str, tuple[str, str]] = {
    "letters": ("", "a"),
    "products": ("x", ",2x"),
    "factors": ("x", ",(a+b)x"),
    "absolute values": ("x", "|x"),
    "equations": ("", "=1"),
}
NESTED_NODES = 64

REFERENCE = "reference: plain Python"
# On a machine that emulates each instruction, an answer must not run out of its seconds.
_BUDGET_S = 600.0
_REFERENCE_LOOPS = 3000
_SCORED = 128
# The C function that ``mark`` calls.
MARK = "getpgrp"
mark = os.getpgrp


class Workload(NamedTuple):
    """Texts to match: ``items`` are (index into ``nodes``, text), ``expected`` their flags."""

    name: str
    nodes: list[list[list[str]]]
    items: list[tuple[int, str]]
    expected: list[list[bool]]


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
    problems = _rows(SAMPLE / "dataset.jsonl")
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


def nested(first: str, unit: str, count: int) -> list[list[str]]:
    """Return nodes that are pieces of one another, and one that no text reaches."""
    return [*([first + unit * length] for length in range(1, count)), ["never=0"]]


def answers(count: int, seed: str) -> list[Answer]:
    """Return answers of the usual kinds, no two alike, half of them wrong."""
    rng = random.Random(f"answers {seed}")
    return [_answer(rng, index) for index in range(count)]


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
    for name, (first, unit) in NESTED.items():
        nodes = nested(first, unit, NESTED_NODES)
        text = unit * (HOSTILE_BYTES // len(unit))
        yield _with_flags(f"nested nodes: {name}", [nodes], [(0, text)])
    prose = texts.rollouts_of(texts.problems(2, SEED), 3, ROLLOUT_BYTES, SEED)
    nodes = nested("", "a", 500)
    yield _with_flags("prose, 500 nested nodes", [nodes], [(0, row["response"]) for row in prose])


def _generated(
    name: str, problems: Sequence[dict[str, Any]], per_problem: int, size: int
) -> Workload:
    rows = texts.rollouts_of(problems, per_problem, size, SEED)
    place = {problem["problem_id"]: index for index, problem in enumerate(problems)}
    items = [(place[row["problem_id"]], row["response"]) for row in rows]
    return _with_flags(name, [expressions(problem) for problem in problems], items)


def _with_flags(name: str, nodes: list[list[list[str]]], items: list[tuple[int, str]]) -> Workload:
    matchers = [twin.Matcher(one) for one in nodes]
    found = twin.match_batch([matchers[index] for index, _ in items], [text for _, text in items])
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


class Kind(StrEnum):
    """What a count depends on beside the code that is guarded."""

    CORE = "core"  # the C compiler
    PYTHON = "python"  # the interpreter's build as well
    REFERENCE = "reference"  # the interpreter's build alone


class Probe(NamedTuple):
    """One thing to count: ``run(turn)`` handles ``units`` of ``unit``; ``check`` its result."""

    name: str
    kind: Kind
    unit: str
    units: int
    run: Callable[[int], object]
    check: Callable[[Any], bool]


def probes(given: Inputs, scratch: Path) -> Iterator[Probe]:
    """Yield the probes, the core's first.  Files that they need go into ``scratch``."""
    for workload in given.workloads:
        yield _matching(workload)
    yield _normal_form(given.workloads[1])
    yield _first_hits(given.workloads[0])
    yield Probe(
        REFERENCE, Kind.REFERENCE, "loop", _REFERENCE_LOOPS, _reference, lambda total: bool(total)
    )
    yield from _building(given, scratch)
    yield from _answering(given.answers)
    yield from _serving(given, scratch)


def _matching(workload: Workload) -> Probe:
    """Count normal form and search together, as scoring calls them, on one thread."""
    compiled = [Matcher(nodes) for nodes in workload.nodes]
    matchers = [compiled[index] for index, _ in workload.items]
    texts = [text.encode() for _, text in workload.items]

    def right(found: BatchResult) -> bool:
        rows = [found.matched(at).tolist() for at in range(len(texts))]
        return rows == workload.expected

    return Probe(
        f"match: {workload.name}",
        Kind.CORE,
        "byte",
        sum(map(len, texts)),
        lambda _: match_batch(matchers, texts, threads=1),
        right,
    )


def _normal_form(workload: Workload) -> Probe:
    texts = [text.encode() for _, text in workload.items]
    return Probe(
        f"normal form alone: {workload.name}",
        Kind.CORE,
        "byte",
        sum(map(len, texts)),
        lambda _: [normalize(text) for text in texts],
        lambda forms: forms == [normalize(text.decode()) for text in texts] and all(forms),
    )


def _first_hits(workload: Workload) -> Probe:
    """Count the way that keeps offsets, which explanations and spans take."""
    compiled = [Matcher(nodes) for nodes in workload.nodes]
    texts = [(compiled[index], text.encode()) for index, text in workload.items]
    return Probe(
        f"spans: {workload.name}",
        Kind.CORE,
        "byte",
        sum(len(text) for _, text in texts),
        lambda _: [matcher.spans(text) for matcher, text in texts],
        lambda found: [[one is not None for one in row] for row in found] == workload.expected,
    )


class _Point:
    __slots__ = ("label", "weight")

    def __init__(self, label: str, weight: int) -> None:
        self.label = label
        self.weight = weight


def _reference(_: int) -> dict[str, int]:
    """Do what Python code does all day: objects, attributes, calls, dictionaries, strings.

    What an interpreter's build makes of it, it makes of the scoring code too: both carry over
    from one build to another together.
    """
    points = [_Point(f"p{number % 53}", number % 97) for number in range(_REFERENCE_LOOPS)]
    totals: dict[str, int] = {}
    for point in points:
        totals[point.label] = totals.get(point.label, 0) + max(point.weight, 3)
    return totals


def _building(inputs: Inputs, scratch: Path) -> Iterator[Probe]:
    """Count what a problem costs before the first rollout of it is scored."""
    nodes = [[expressions(problem) for problem in turn] for turn in inputs.derived]
    yield Probe(
        "derive forms and compile",
        Kind.PYTHON,
        "problem",
        len(nodes[1]),
        lambda turn: [Matcher(one, expand=True) for one in nodes[turn]],
        lambda made: all(one.num_patterns >= one.num_nodes > 0 for one in made),
    )
    path = write_rows(scratch / "dataset.jsonl", inputs.problems)
    yield Probe(
        "read a dataset",
        Kind.PYTHON,
        "problem",
        len(inputs.problems),
        lambda _: DatasetIndex.load(path, derive="off"),
        lambda index: len(index) == len(inputs.problems),
    )


def _answering(answers: Sequence[Sequence[Answer]]) -> Iterator[Probe]:
    """Count the fast path on answers that were not seen before."""
    verifier = AnswerVerifier(budget_s=_BUDGET_S)
    truths = [[one.ground_truth for one in turn] for turn in answers]
    responses = [[one.response for one in turn] for turn in answers]

    def right(verdicts: list[Verdict]) -> bool:
        said = [verdict.correct for verdict in verdicts]
        return said == [one.correct for one in answers[0]] and verifier.processes_started == 0

    yield Probe(
        "check an answer",
        Kind.PYTHON,
        "answer",
        len(answers[1]),
        lambda turn: verifier.verify_batch(truths[turn], responses[turn]),
        right,
    )


def _serving(inputs: Inputs, scratch: Path) -> Iterator[Probe]:
    """Count the Python side of a batch, from the trainer's rollouts to the trainer's scores."""
    path = write_rows(scratch / "served.jsonl", inputs.problems)
    index = DatasetIndex.load(path, derive="off")
    scorer = Scorer({"default": index}, verifier=AnswerVerifier(budget_s=_BUDGET_S), threads=1)
    rollouts = [rollout_from_row(row) for row in inputs.rollouts[:_SCORED]]
    options = ScoreOptions(reward=RewardSpec.linear(0.5))

    def score(_: int = 0) -> tuple[ScoreColumns, Identity]:
        return scorer.score_columns(rollouts, options)

    def encode_request(_: int = 0) -> bytes:
        return encode_score_request(rollouts, options)

    request = encode_request()
    columns, identity = score()

    def decode_request(_: int) -> list[Rollout]:
        return decode_score_request(request)[1]

    def encode_reply(_: int = 0) -> bytes:
        return encode_score_response(columns, identity)

    reply = encode_reply()

    def decode_reply(_: int) -> list[Score]:
        return decode_score_response(reply)[0]

    sent = [(one.problem_id, one.response) for one in rollouts]
    steps: list[tuple[str, Callable[[int], object], Callable[[Any], bool]]] = [
        (
            "encode a request",
            encode_request,
            # Each has a name of its own.
            lambda data: decode_score_request(data)[1] == decode_score_request(request)[1],
        ),
        (
            "decode a request",
            decode_request,
            lambda found: [(one.problem_id, one.response.decode()) for one in found] == sent,
        ),
        ("score a batch", score, lambda found: found[0].scores() == columns.scores()),
        ("encode a reply", encode_reply, lambda data: data == reply),
        ("decode a reply", decode_reply, lambda found: found == columns.scores()),
    ]
    for name, run, check in steps:
        yield Probe(name, Kind.PYTHON, "rollout", len(rollouts), run, check)


def main(words: list[str]) -> int:
    """Run all probes; write name, kind, unit and units of each, in the order of their marks."""
    source, scratch, result = map(Path, words)
    done: list[dict[str, str | int]] = []
    # The first call also binds the function; its count belongs to no probe.
    mark()
    for probe in probes(read(source), scratch):
        if not probe.check(probe.run(0)):
            print(f"{probe.name}: the result is wrong, so nothing is counted", file=sys.stderr)
            return 1
        gc.collect()
        gc.disable()
        mark()
        probe.run(1)
        mark()
        gc.enable()
        done.append(
            {"name": probe.name, "kind": probe.kind, "unit": probe.unit, "units": probe.units}
        )
    result.write_text(json.dumps(done), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
