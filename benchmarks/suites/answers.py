"""Final answers: what is decided without SymPy, what a decision costs, and what others take.

Real answers where there are some: the share decided in the calling thread, agreement with the
labels, microseconds of each answer.  Then the cost by length of the response, the pool behind
the fast path, math-verify and verl's ``math_dapo`` on the same answers, the worst that a policy
may write, and the part that answers have in scoring a batch.

Answers before times, here too: on real answers verdicts have to agree with the labels at least as
often as FLOOR says; labels and checkers differ in a few.  Elsewhere every verdict is known.

A cold decision is one whose answer and ground truth were not met before: the memos are emptied
ahead of each, outside the clock.  The time of an answer is the best of a few calls.
"""

from __future__ import annotations

import json
import logging
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import texts
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.harness.verl_python import MAKE, interpreter
from benchmarks.measure import Context, WrongAnswerError, fastest
from benchmarks.texts import Answer
from consensuspr.scoring import DatasetIndex, RewardKind, RewardSpec, Rollout, ScoreOptions, Scorer
from consensuspr.scoring.answers import AnswerVerifier, Verdict
from consensuspr.scoring.answers.compare import compare, form_of
from consensuspr.scoring.answers.extract import extract_auto
from consensuspr.scoring.answers.sandbox import screen
from consensuspr.scoring.answers.verifier import forget_memos

# Methods of answers that left the calling thread.
_SLOW = frozenset(["symbolic", "budget", "memory", "crash", "load", "deadline"])
_GSM8K = ("gsm8k_gpt3", "gsm8k_gpt4o_mini_and_older")
_MATH = ("math100_qwen25math", "math_r1distill_long")
_OTHERS = ("aime24_gpt4o_claude35", "aime24_qwen3_32b", "olympiad_gptoss120b_very_long")
# verl lives in an environment of its own, so its rule runs in a process of its own.
_MATH_DAPO = Path(__file__).parents[1] / "children" / "math_dapo.py"
_CALLS = 3
# Share of real answers whose verdict has to be the label's. verl's rule takes the strings of
# answers alone, and is held to be the same on both sides instead.
FLOOR = 0.95
_SIZES = (200, 1_000, 10_000, 100_000)
_TEXTS = 64
_BATCH, _BATCH_BYTES, _GROUP = 256, 10_000, 4

# The worst of each kind that a policy may write; each ground truth leads elsewhere.
_HOSTILE_TRUTHS = ("x^2+1", "x,y,z+1", "(0,1)", "7")
_HOSTILE = {
    "markers without an answer": "the answer is " * 7_000,
    "boxes without content": r"\boxed{}" * 12_000,
    "boxes that never end": r"\boxed{" * 14_000,
    "braces": r"\boxed{" + "{" * 480 + "}" * 480 + "}",
    "dollar signs": "$" * 100_000,
    "numbers": "1,234/56 " * 11_000,
    "a long list": r"\boxed{" + "1/3," * 240 + "}",
    "a large power": r"\boxed{9^{" + "9" * 300 + "}}",
    "powers at the limit": r"\boxed{" + "7^{20000}+" * 90 + "1}",
    "a product of sums": r"\boxed{" + "(a+b+c+d)" * 100 + "}",
    "a power of a sum": r"\boxed{(a+b+c+d+k)^{24}}",
    "a list of powers of sums": r"\boxed{" + "(a+b+c)^9," * 60 + "1}",
    "a list of quotients": r"\boxed{" + "1/(a+b+c)^4," * 63 + "1}",
    "large roots": r"\boxed{" + r"\sqrt{999999937}+" * 55 + "1}",
    "sums of fractions": r"\boxed{" + r"\frac{1}{x+1}+" * 65 + "1}",
    "unions": r"\boxed{" + r"(1,2)\cup" * 100 + "(3,4)}",
    "inequalities": r"\boxed{" + "x<" * 450 + "1}",
    "a large matrix": r"\boxed{\begin{pmatrix}" + r"1&2\\" * 180 + r"\end{pmatrix}}",
    "signs": r"\boxed{" + "-" * 900 + "1}",
    "plus-minus": r"\boxed{" + r"\pm1," * 190 + "}",
}  # fmt: skip


Way = Callable[[], object]


def math_verify(cases: Sequence[Answer]) -> Callable[[], list[bool]]:
    """Return math-verify as reward functions call it: parse both, then verify, at its defaults."""
    from math_verify import parse, verify  # type: ignore[import-untyped]

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    return lambda: [
        bool(verify(parse(f"\\boxed{{{one.ground_truth}}}"), parse(one.response))) for one in cases
    ]


@contextmanager
def math_dapo(
    python: Path, cases: Sequence[Answer], scratch: Path
) -> Iterator[Callable[[], list[bool]]]:
    """Run verl's ``math_dapo`` in a process of the environment that has verl; give what asks it.

    What is given raises RuntimeError where that process does not answer.
    """
    path = scratch / "answers-of-verl.json"
    pairs = [(one.ground_truth, one.response) for one in cases]
    path.write_text(json.dumps(pairs), encoding="utf-8")
    with subprocess.Popen(
        [str(python), str(_MATH_DAPO), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        ask, answer = process.stdin, process.stdout
        assert ask is not None and answer is not None  # pipes were asked for

        def judge() -> list[bool]:
            ask.write("judge\n")
            ask.flush()
            line = answer.readline()
            if not line:
                raise RuntimeError("the process with verl's math_dapo ended without an answer")
            return [character == "1" for character in line.strip()]

        yield judge


def run(context: Context) -> SuiteResult:
    """Measure all of it."""
    result = SuiteResult(suite="answers", title="Final answers")
    with AnswerVerifier(cache_size=0) as verifier:
        _judge(verifier, [_needs_a_worker(1)])  # processes start outside all clocks
        cases = _real(context, verifier, result)
        context.say("cost by length")
        _by_length(context, verifier, result)
        context.say("pool")
        _pool(context, verifier, result)
        context.say("math-verify and verl's math_dapo")
        _peers(context, verifier, cases, result)
        context.say("hostile answers")
        _hostile(result)
        context.say("part of scoring a batch")
        _in_a_batch(context, verifier, result)
    return result


def _judge(
    verifier: AnswerVerifier, cases: Sequence[Answer], rule: str = "auto", *, cold: bool = False
) -> list[Verdict]:
    """Judge all in one batch; ``cold``: none of them was met before."""
    if cold:
        forget_memos()
    truths = [case.ground_truth for case in cases]
    return verifier.verify_batch(truths, [case.response for case in cases], rule)


def _agreement(cases: Sequence[Answer], said: Sequence[bool | None]) -> float:
    """Return the share of verdicts that are the labels; an open one counts as wrong."""
    pairs = zip(cases, said, strict=True)
    return sum(bool(correct) is case.correct for case, correct in pairs) / len(cases)


def _verdicts(verdicts: Sequence[Verdict]) -> list[bool | None]:
    return [verdict.correct for verdict in verdicts]


def _demand_floor(who: str, agreement: float) -> None:
    if agreement < FLOOR:
        raise WrongAnswerError(
            f"{who}: {agreement:.1%} of the verdicts agree with the labels, less than {FLOOR:.0%}"
        )


def _real(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> list[Answer]:
    """Judge the real answers; return those of GSM8K and MATH, generated ones without data."""
    if context.data is None:
        result.notes.append("No folder of real rollouts: shares and medians were not measured.")
        return _cases(texts.batch(200 * _GROUP, 2_000, context.seed, context.scratch, _GROUP))
    sets = {
        name: [
            Answer(row["ground_truth"], row["response"], row["correct"])
            for row in texts.real_rows(context.data, name)
        ]
        for name in (*_GSM8K, *_MATH, *_OTHERS)
    }
    slow: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    for name, cases in sets.items():
        context.say(name)
        verdicts = _judge(verifier, cases)
        agreement = _agreement(cases, _verdicts(verdicts))
        _demand_floor(name, agreement)
        slow[name] = sum(verdict.method in _SLOW for verdict in verdicts)
        times[name] = [
            _best_us(partial(verifier.verify, case.ground_truth, case.response))
            for case, said in zip(cases, verdicts, strict=True)
            if said.method not in _SLOW
        ]
        _shares(result, name, cases, agreement, slow[name])
        row: Parameters = {"set": name, "answers": len(cases)}
        result.add("median", round(statistics.median(times[name]), 2), "µs", row)
        last = sorted(times[name])[int(0.99 * len(times[name]))]
        result.add("99th percentile", round(last, 2), "µs", row)
    for target, names in (("answers_gsm8k", _GSM8K), ("answers_math", _MATH)):
        total = sum(len(sets[name]) for name in names)
        share = 100.0 * (1.0 - sum(slow[name] for name in names) / total)
        result.check(target, round(share, 3), f"{total:,} real answers")
    wanted = (*_GSM8K, *_MATH)
    result.check(
        "answer_median_us",
        round(statistics.median([us for name in wanted for us in times[name]]), 2),
        "cold, extraction included, GSM8K and MATH together; plain Python; of what is "
        f"decided without SymPy alone, each answer the best of {_CALLS} calls",
    )
    conformance = context.data.parent / "conformance" / "answers.jsonl"
    if conformance.exists():
        rows = [json.loads(line) for line in conformance.read_text(encoding="utf-8").splitlines()]
        cases = [Answer(row["gold"], row["pred"], row["equal"]) for row in rows]
        verdicts = _judge(verifier, cases)
        open_ = sum(verdict.method in _SLOW for verdict in verdicts)
        agreement = _agreement(cases, _verdicts(verdicts))
        _shares(result, "pairs of other checkers' tests", cases, agreement, open_)
    return [case for name in wanted for case in sets[name]]


def _shares(
    result: SuiteResult, name: str, cases: Sequence[Answer], agreement: float, slow: int
) -> None:
    row: Parameters = {"set": name, "answers": len(cases)}
    result.add("agreement with the labels", round(100.0 * agreement, 2), "%", row)
    share = 100.0 * (1.0 - slow / len(cases))
    result.add("decided without SymPy", round(share, 2), "%", row)


def _cases(batch: texts.Batch) -> list[Answer]:
    return [Answer(row["ground_truth"], row["response"], row["correct"]) for row in batch.rows]


def _best_us(call: Way, calls: int = _CALLS) -> float:
    """Return the microseconds of the fastest of some cold calls."""
    best = float("inf")
    for _ in range(calls):
        forget_memos()
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def _by_length(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> None:
    """Take extraction and comparison apart; the length must not matter."""
    ways: dict[str, Way] = {}
    for size in _SIZES:
        responses = [text.encode() for text in texts.rollouts(_TEXTS, size, context.seed)]
        for part, call in _parts(responses, verifier).items():
            ways[f"{part}, {size}"] = call
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, seconds in fastest(ways, context.rounds, time.process_time).items():
        part, _, bytes_each = name.rpartition(", ")
        us = round(1e6 * seconds / _TEXTS, 2)
        lines.setdefault(part, []).append((int(bytes_each), us))
        result.add(part, us, "µs", {"response bytes": int(bytes_each)})
    name = "An answer by the length of its response"
    result.plot(name, "bytes of the response", "µs an answer", lines, log_y=False)


def _parts(responses: list[bytes], verifier: AnswerVerifier) -> dict[str, Way]:
    """Return what an answer consists of, each for all responses; all of them are wrong."""
    truths = [str(number) for number in range(2_000, 2_000 + len(responses))]
    found = [extract_auto(response) for response in responses]
    answers = [one.answer for one in found if one is not None]
    if len(answers) != len(responses):
        raise ValueError(f"{len(responses) - len(answers)} generated texts have no answer")
    if any(said.correct is not False for said in verifier.verify_batch(truths, responses)):
        raise WrongAnswerError("the verifier takes a generated answer for right that is wrong")

    def extract_all() -> None:
        for response in responses:
            extract_auto(response)

    def compare_all() -> None:
        forget_memos()
        for truth, answer in zip(truths, answers, strict=True):
            compare(form_of(truth), form_of(answer))

    def both_cold() -> object:
        forget_memos()
        return verifier.verify_batch(truths, responses)

    return {
        "extraction": extract_all,
        "comparison, cold": compare_all,
        "both, cold": both_cold,
        "both, warm": lambda: verifier.verify_batch(truths, responses),
    }


def _needs_a_worker(number: int) -> Answer:
    """Return an equal pair that only computer algebra can tell: a cube root taken apart."""
    inside = 2 * number**3
    return Answer(rf"\sqrt[3]{{{inside}}}", rf"\boxed{{{number}\sqrt[3]{{2}}}}", True)


def _pool(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> None:
    """Measure what an answer costs that has to go to a worker, and one kept in the cache."""
    count = 64 if context.full else 24
    cases = [_needs_a_worker(number) for number in range(2, 2 + count)]
    if not all(said.correct and said.method == "symbolic" for said in _judge(verifier, cases)):
        raise ValueError("an answer meant for a worker was decided otherwise")
    with AnswerVerifier() as keeping:
        _judge(keeping, cases)
        best = fastest(
            {
                "one by one": lambda: [
                    verifier.verify(case.ground_truth, case.response) for case in cases
                ],
                "in one batch": lambda: _judge(verifier, cases),
                "known already": lambda: _judge(keeping, cases),
            },
            min(context.rounds, 3),
        )
    for way, seconds in best.items():
        us = round(1e6 * seconds / count, 1)
        result.add("an answer that needs SymPy", us, "µs", {"asked": way})


def _peers(
    context: Context, verifier: AnswerVerifier, cases: list[Answer], result: SuiteResult
) -> None:
    """Time others on the same answers; agreement is with the labels."""
    count = min(len(cases), 1_000 if context.full else 200)
    sample = random.Random(context.seed).sample(cases, count)

    def ours(rule: str) -> Callable[[], list[bool]]:
        return lambda: [bool(one.correct) for one in _judge(verifier, sample, rule, cold=True)]

    contenders = {"rule auto": ours("auto"), "math-verify inline": math_verify(sample)}
    said = {name: judge() for name, judge in contenders.items()}
    for name, verdicts in said.items():
        _demand_floor(name, _agreement(sample, verdicts))
    _compare_peers(context, contenders, said, sample, result)
    python = interpreter()
    if python is None:
        result.notes.append(f"verl's math_dapo was not measured: {MAKE} sets up its environment.")
        return
    with math_dapo(python, sample, context.scratch) as dapo:
        contenders = {"rule dapo": ours("dapo"), "verl's math_dapo": dapo}
        said = {name: judge() for name, judge in contenders.items()}
        if said["rule dapo"] != said["verl's math_dapo"]:
            raise ValueError("rule dapo and verl's math_dapo differ on a real answer")
        _compare_peers(context, contenders, said, sample, result)


def _compare_peers(
    context: Context,
    contenders: Mapping[str, Way],
    said: Mapping[str, list[bool]],
    sample: list[Answer],
    result: SuiteResult,
) -> None:
    best = fastest(contenders, min(context.rounds, 3))
    (ours, fast), (other, slow) = best.items()
    of: Parameters = {"of": ours, "against": other, "answers": len(sample)}
    result.add("times the speed", round(slow / fast, 1), "x", of)
    for name, seconds in best.items():
        row: Parameters = {"decided by": name, "answers": len(sample)}
        result.add("mean", round(1e6 * seconds / len(sample), 2), "µs", row)
        share = 100.0 * _agreement(sample, said[name])
        result.add("agreement with the labels", round(share, 1), "%", row)


def _hostile(result: SuiteResult) -> None:
    """Take the calling thread's part of each kind, with the ground truth it is worst for."""
    for kind, text in _HOSTILE.items():
        if any(_in_thread(truth, text) for truth in _HOSTILE_TRUTHS):
            raise WrongAnswerError(f"a hostile answer is taken for right: {kind}")
        us = max(_best_us(partial(_in_thread, truth, text)) for truth in _HOSTILE_TRUTHS)
        of: Parameters = {"kind": kind, "characters": len(text)}
        result.add("hostile answer", round(us / 1e3, 3), "ms", of)


def _in_thread(truth: str, response: str) -> bool:
    """Decide what the calling thread decides; return whether it takes the answer for right."""
    found = extract_auto(response)
    if found is not None and not found.overlong:
        equal, _ = compare(form_of(truth), form_of(found.answer))
        if equal is None:
            screen(found.answer)
        return equal is True
    return False


def _in_a_batch(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> None:
    """Set the answers of a batch beside all of its scoring, one thread each."""
    batch = texts.batch(_BATCH, _BATCH_BYTES, context.seed, context.scratch, _GROUP)
    cases = _cases(batch)
    truths = [case.ground_truth for case in cases]
    responses = [case.response.encode() for case in cases]
    rollouts = [
        Rollout(row["problem_id"], response)
        for row, response in zip(batch.rows, responses, strict=True)
    ]
    odd = [_needs_a_worker(7), _needs_a_worker(11)]
    odd_truths = [*truths[:-2], *(case.ground_truth for case in odd)]
    odd_responses = [*responses[:-2], *(case.response.encode() for case in odd)]
    options = ScoreOptions(RewardSpec(RewardKind.MAX))
    scorer = Scorer({"default": DatasetIndex.load(batch.dataset)}, verifier=verifier, threads=1)
    scores, _ = scorer.score(rollouts, options)
    if [score.acc for score in scores] != [int(case.correct) for case in cases]:
        raise ValueError("the scorer's answers are not those that the generator wrote")

    def cold() -> object:
        forget_memos()
        return verifier.verify_batch(truths, responses)

    best = fastest(
        {
            "all of scoring": lambda: scorer.score(rollouts, options),
            "answers, warm": lambda: verifier.verify_batch(truths, responses),
            "answers, cold": cold,
        },
        context.rounds,
        time.process_time,
    )
    best |= fastest(
        {"answers, 2 of them for SymPy": lambda: verifier.verify_batch(odd_truths, odd_responses)},
        context.rounds,
    )
    for part, seconds in best.items():
        us = round(1e6 * seconds / _BATCH, 2)
        result.add(f"batch of {_BATCH} rollouts of 10 KB", us, "µs a rollout", {"part": part})
    result.add(
        "part of the answers in scoring a batch",
        round(100.0 * best["answers, warm"] / best["all of scoring"], 1),
        "%",
        {"rollouts": _BATCH, "bytes each": _BATCH_BYTES},
    )
