"""What is counted: the core on each text, and the Python around it on each rollout and answer.

A probe does the same work twice: turn 0 warms up and is checked, turn 1 is counted.  Work whose
results are remembered (answers, derived forms) gets other input of the same kind in each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.guard.inputs import Answer, Inputs, Workload, expressions
from benchmarks.harness.texts import write_rows
from consensuspr.core import BatchResult, Matcher, match_batch, normalize
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
from consensuspr.scoring.types import Identity, ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    decode_rollout,
    decode_score,
    encode_rollout,
    encode_score_request,
    encode_score_response,
)

REFERENCE = "reference: plain Python"
# On a machine that emulates each instruction, an answer must not run out of its seconds.
_BUDGET_S = 600.0
_REFERENCE_LOOPS = 3000
_SCORED = 128


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


def probes(inputs: Inputs, scratch: Path) -> Iterator[Probe]:
    """Yield the probes, the core's first.  Files that they need go into ``scratch``."""
    for workload in inputs.workloads:
        yield _matching(workload)
    yield _normal_form(inputs.workloads[1])
    yield _first_hits(inputs.workloads[0])
    yield Probe(
        REFERENCE, Kind.REFERENCE, "loop", _REFERENCE_LOOPS, _reference, lambda total: bool(total)
    )
    yield from _building(inputs, scratch)
    yield from _answering(inputs.answers)
    yield from _serving(inputs, scratch)


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
        lambda made: all(one.num_patterns > one.num_nodes for one in made),
    )
    path = write_rows(scratch / "problems.jsonl", inputs.problems)
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

    def score(_: int = 0) -> tuple[list[Score], Identity]:
        return scorer.score(rollouts, options)

    def encode_request(_: int = 0) -> bytes:
        return encode_score_request(map(encode_rollout, rollouts), options).SerializeToString()

    request = encode_request()
    scores, identity = score()

    def decode_request(_: int) -> list[Rollout]:
        return [decode_rollout(one) for one in pb.ScoreRequest.FromString(request).rollouts]

    def encode_reply(_: int = 0) -> bytes:
        return encode_score_response(scores, identity).SerializeToString()

    reply = encode_reply()

    def decode_reply(_: int) -> list[Score]:
        return [decode_score(one) for one in pb.ScoreResponse.FromString(reply).scores]

    sent = [(one.problem_id, one.response) for one in rollouts]
    steps: list[tuple[str, Callable[[int], object], Callable[[Any], bool]]] = [
        ("encode a request", encode_request, lambda data: data == request),
        (
            "decode a request",
            decode_request,
            lambda found: [(one.problem_id, one.response.decode()) for one in found] == sent,
        ),
        ("score a batch", score, lambda found: found == (scores, identity)),
        ("encode a reply", encode_reply, lambda data: data == reply),
        ("decode a reply", decode_reply, lambda found: found == scores),
    ]
    for name, run, check in steps:
        yield Probe(name, Kind.PYTHON, "rollout", len(rollouts), run, check)
