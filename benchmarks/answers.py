"""Final answers: agreement with labels, cost, and math-verify: ``python -m benchmarks.answers``.

A time is of a pair of answer and ground truth not met before: memos are emptied first.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks import texts
from benchmarks.measure import Row, WrongAnswerError, data_folder, fastest, report
from benchmarks.texts import Answer
from consensuspr.core.expressions import parse_formula
from consensuspr.scoring import AnswerVerifier
from consensuspr.scoring.answers.compare import memoised_form

SETS = {
    "GSM8K": ("gsm8k_gpt3", "gsm8k_gpt4o_mini_and_older"),
    "MATH": ("math100_qwen25math", "math_r1distill_long"),
    "AIME": ("aime24_gpt4o_claude35", "aime24_qwen3_32b"),
}
# Labels and checkers differ on a few real answers.
FLOOR = 0.95
SLOW = frozenset(["symbolic", "budget", "memory", "crash", "load"])
TIMED, CALLS, PEERED = 1_000, 3, 100


def answer_sets() -> dict[str, list[Answer]]:
    """Return generated answers, and real ones if there are any."""
    found = {"generated": texts.answers(1_000, "benchmark")}
    data = data_folder()
    if data is None:
        return found
    for name, files in SETS.items():
        found[name] = [
            Answer(row["ground_truth"], row["response"], row["correct"])
            for row in texts.real_rows(data, *files)
        ]
    return found


def agreement(who: str, cases: Sequence[Answer], found: Sequence[bool | None]) -> float:
    """Return the share of verdicts that equal the labels.

    Raises:
        WrongAnswerError: it is below FLOOR.
    """
    pairs = zip(cases, found, strict=True)
    share = sum(bool(verdict) is case.correct for case, verdict in pairs) / len(cases)
    if share < FLOOR:
        raise WrongAnswerError(f"{who}: {share:.1%} of the verdicts agree with the labels")
    return share


def forget_forms() -> None:
    """Empty the memos of answers."""
    memoised_form.cache_clear()
    parse_formula.cache_clear()


def best_us(call: Callable[[], object]) -> float:
    """Return the microseconds of the fastest of some calls, each without memos."""
    best = float("inf")
    for _ in range(CALLS):
        forget_forms()
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def judged(name: str, cases: Sequence[Answer], verifier: AnswerVerifier) -> Iterator[Row]:
    """Check one set, then time the answers that the fast path decides."""
    truths, responses = zip(*((one.ground_truth, one.response) for one in cases), strict=True)
    verdicts = verifier.verify_batch(truths, responses)
    share = agreement(name, cases, [one.correct for one in verdicts])
    fast = [at for at, one in enumerate(verdicts) if one.method not in SLOW]
    times = sorted(
        best_us(partial(verifier.verify, truths[at], responses[at])) for at in fast[:TIMED]
    )
    note = f"{name}, {len(cases):,} answers; {share:.2%} agree with the labels"
    yield Row("answers", "decided without SymPy", f"{len(fast) / len(cases):.2%}", note)
    note = f"{name}; 99th percentile {times[int(0.99 * len(times))]:.0f} µs"
    yield Row("answers", "an answer, median", f"{statistics.median(times):.1f} µs", note)


def against_math_verify(name: str, cases: Sequence[Answer], verifier: AnswerVerifier) -> Row:
    """Time math-verify, at its defaults in this process, on the same answers."""
    from math_verify import parse, verify  # type: ignore[import-untyped]

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def ours() -> list[bool | None]:
        forget_forms()
        truths, responses = [one.ground_truth for one in cases], [one.response for one in cases]
        return [one.correct for one in verifier.verify_batch(truths, responses)]

    def theirs() -> list[bool | None]:
        return [
            bool(verify(parse(f"\\boxed{{{one.ground_truth}}}"), parse(one.response)))
            for one in cases
        ]

    agreement(f"the verifier ({name})", cases, ours())
    share = agreement(f"math-verify ({name})", cases, theirs())
    best = fastest({"ours": ours, "theirs": theirs}, rounds=2)
    note = f"{name}, {len(cases)} answers; math-verify agrees with {share:.1%} of the labels"
    return Row("answers", "math-verify over a check", f"{best['theirs'] / best['ours']:.0f}x", note)


def run() -> Iterator[Row]:
    """Measure the checks of final answers."""
    with AnswerVerifier() as verifier:
        sets = answer_sets()
        for name, cases in sets.items():
            yield from judged(name, cases, verifier)
        name = "GSM8K" if "GSM8K" in sets else "generated"
        yield against_math_verify(name, sets[name][:: len(sets[name]) // PEERED], verifier)


if __name__ == "__main__":
    report(run())
