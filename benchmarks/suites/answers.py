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

import gzip
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.harness import texts
from benchmarks.harness.measure import Context, WrongAnswerError, interleaved
from benchmarks.harness.results import Figure, Parameters, SuiteResult
from benchmarks.suites.verl_python import MAKE, interpreter
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


class MathVerify:
    """math-verify as reward functions call it: parse both, then verify, at its defaults."""

    def __init__(self) -> None:
        import logging

        from math_verify import parse, verify  # type: ignore[import-untyped]

        logging.getLogger("math_verify").setLevel(logging.CRITICAL)
        self._parse, self._verify = parse, verify

    def judge(self, truths: Sequence[str], responses: Sequence[str]) -> list[bool]:
        """Return the verdict on each response."""
        return [
            bool(self._verify(self._parse(f"\\boxed{{{truth}}}"), self._parse(response)))
            for truth, response in zip(truths, responses, strict=True)
        ]


class MathDapo:
    """verl's ``math_dapo`` in a process of the environment that has verl.

    Raises RuntimeError where that process does not answer.
    """

    def __init__(
        self, python: Path, truths: Sequence[str], responses: Sequence[str], scratch: Path
    ) -> None:
        cases = scratch / "answers-of-verl.json"
        cases.write_text(json.dumps([list(truths), list(responses)]), encoding="utf-8")
        self._process = subprocess.Popen(
            [str(python), str(_MATH_DAPO), str(cases)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def judge(self) -> list[bool]:
        """Judge all responses once; return the verdict on each."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("judge\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process with verl's math_dapo ended without an answer")
        return [character == "1" for character in line.strip()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


class Case(NamedTuple):
    """One response with its ground truth and whether it is right."""

    truth: str
    response: str
    correct: bool


def run(context: Context) -> SuiteResult:
    """Measure all of it."""
    result = SuiteResult(suite="answers", title="Final answers")
    with AnswerVerifier(cache_size=0) as verifier:
        verifier.verify(*_needs_a_worker(1)[:2])  # processes start outside all clocks
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


def _real(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> list[Case]:
    """Judge the real answers; return those of GSM8K and MATH, generated ones without data."""
    if context.data is None:
        result.notes.append("No folder of real rollouts: shares and medians were not measured.")
        problems = texts.problems(200, context.seed)
        rows = texts.rollouts_of(problems, _GROUP, 2_000, context.seed)
        truths = {problem["problem_id"]: problem["ground_truth"] for problem in problems}
        return [Case(truths[row["problem_id"]], row["response"], row["correct"]) for row in rows]
    sets = {name: _read(context.data, name) for name in (*_GSM8K, *_MATH, *_OTHERS)}
    open_: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    for name, cases in sets.items():
        context.say(name)
        verdicts = _judge(verifier, cases)
        agreement = _agreement(cases, verdicts)
        _demand_floor(name, agreement)
        open_[name] = sum(verdict.method in _SLOW for verdict in verdicts)
        fast = [
            case for case, said in zip(cases, verdicts, strict=True) if said.method not in _SLOW
        ]
        times[name] = _cold_us(verifier, fast)
        figures = {
            "agreement with the labels": (100.0 * agreement, "%"),
            "decided without SymPy": (100.0 * (1.0 - open_[name] / len(cases)), "%"),
            "median": (statistics.median(times[name]), "µs"),
            "99th percentile": (_quantile(times[name], 0.99), "µs"),
        }
        row: Parameters = {"set": name, "answers": len(cases)}
        for figure, (value, unit) in figures.items():
            result.add(figure, round(value, 2), unit, row)
    for target, names in (("answers_gsm8k", _GSM8K), ("answers_math", _MATH)):
        total = sum(len(sets[name]) for name in names)
        share = 100.0 * (1.0 - sum(open_[name] for name in names) / total)
        result.check(target, round(share, 3), f"{total:,} real answers")
    wanted = (*_GSM8K, *_MATH)
    result.check(
        "answer_median_us",
        round(statistics.median([us for name in wanted for us in times[name]]), 2),
        "cold, extraction included, GSM8K and MATH together; plain Python; of what is "
        f"decided without SymPy alone, each answer the best of {_CALLS} calls",
    )
    _conformance(context.data.parent / "conformance" / "answers.jsonl", verifier, result)
    return [case for name in wanted for case in sets[name]]


def _read(data: Path, name: str) -> list[Case]:
    with gzip.open(data / "rollouts" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Case(row["ground_truth"], row["response"], row["correct"]) for row in rows]


def _conformance(path: Path, verifier: AnswerVerifier, result: SuiteResult) -> None:
    if not path.exists():
        return
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = [Case(row["gold"], row["pred"], row["equal"]) for row in rows]
    verdicts = _judge(verifier, cases)
    slow = sum(verdict.method in _SLOW for verdict in verdicts)
    for figure, share in (
        ("agreement with the labels", _agreement(cases, verdicts)),
        ("decided without SymPy", 1.0 - slow / len(cases)),
    ):
        result.add(
            figure,
            round(100.0 * share, 2),
            "%",
            {"set": "pairs of other checkers' tests", "answers": len(cases)},
        )


def _judge(verifier: AnswerVerifier, cases: Sequence[Case]) -> list[Verdict]:
    return verifier.verify_batch([case.truth for case in cases], [case.response for case in cases])


def _agreement(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> float:
    pairs = zip(cases, verdicts, strict=True)
    return sum(bool(said.correct) is case.correct for case, said in pairs) / len(cases)


def _demand_floor(who: str, agreement: float) -> None:
    if agreement < FLOOR:
        raise WrongAnswerError(
            f"{who}: {agreement:.1%} of the verdicts agree with the labels, less than {FLOOR:.0%}"
        )


def _cold_us(verifier: AnswerVerifier, cases: Iterable[Case]) -> list[float]:
    return [_best_us(partial(verifier.verify, case.truth, case.response)) for case in cases]


def _best_us(call: Callable[[], object], calls: int = _CALLS) -> float:
    """Return the microseconds of the fastest of some cold calls."""
    best = float("inf")
    for _ in range(calls):
        forget_memos()
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _by_length(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> None:
    """Take extraction and comparison apart; the length must not matter."""
    contenders: dict[tuple[str, int], Callable[[], object]] = {}
    for size in _SIZES:
        responses = [text.encode() for text in texts.rollouts(_TEXTS, size, context.seed)]
        for part, call in _parts(responses, verifier).items():
            contenders[part, size] = call
    timings = interleaved(
        {f"{part}, {size}": call for (part, size), call in contenders.items()},
        context.rounds,
        time.process_time,
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for part, size in contenders:
        us = round(1e6 * timings[f"{part}, {size}"].best / _TEXTS, 2)
        lines.setdefault(part, []).append((size, us))
        result.add(part, us, "µs", {"response bytes": size})
    name = "An answer by the length of its response"
    result.plot(name, "bytes of the response", "µs an answer", lines, log_y=False)


def _parts(responses: list[bytes], verifier: AnswerVerifier) -> dict[str, Callable[[], object]]:
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


def _needs_a_worker(number: int) -> Case:
    """Return an equal pair that only computer algebra can tell: a cube root taken apart."""
    inside = 2 * number**3
    return Case(rf"\sqrt[3]{{{inside}}}", rf"\boxed{{{number}\sqrt[3]{{2}}}}", True)


def _pool(context: Context, verifier: AnswerVerifier, result: SuiteResult) -> None:
    """Measure what an answer costs that has to go to a worker, and one kept in the cache."""
    count = 64 if context.full else 24
    cases = [_needs_a_worker(number) for number in range(2, 2 + count)]
    if not all(said.correct and said.method == "symbolic" for said in _judge(verifier, cases)):
        raise ValueError("an answer meant for a worker was decided otherwise")
    with AnswerVerifier() as keeping:
        _judge(keeping, cases)
        timings = interleaved(
            {
                "one by one": lambda: [
                    verifier.verify(case.truth, case.response) for case in cases
                ],
                "in one batch": lambda: _judge(verifier, cases),
                "known already": lambda: _judge(keeping, cases),
            },
            min(context.rounds, 3),
        )
    for way, timing in timings.items():
        result.add(
            "an answer that needs SymPy", round(1e6 * timing.best / count, 1), "µs", {"asked": way}
        )


def _peers(
    context: Context, verifier: AnswerVerifier, cases: list[Case], result: SuiteResult
) -> None:
    """Time others on the same answers; agreement is with the labels."""
    count = min(len(cases), 1_000 if context.full else 200)
    sample = random.Random(context.seed).sample(cases, count)
    truths = [case.truth for case in sample]
    responses = [case.response for case in sample]
    peer = MathVerify()

    def ours(rule: str) -> Callable[[], object]:
        def judge() -> object:
            forget_memos()
            return verifier.verify_batch(truths, responses, rule)

        return judge

    contenders: dict[str, Callable[[], object]] = {
        "rule auto": ours("auto"),
        "math-verify inline": lambda: peer.judge(truths, responses),
    }
    said = {
        "rule auto": [bool(one.correct) for one in verifier.verify_batch(truths, responses)],
        "math-verify inline": peer.judge(truths, responses),
    }
    for name, verdicts in said.items():
        right = sum(a is case.correct for a, case in zip(verdicts, sample, strict=True))
        _demand_floor(name, right / count)
    _compare_peers(context, contenders, said, sample, result)
    python = interpreter()
    if python is None:
        result.notes.append(f"verl's math_dapo was not measured: {MAKE} sets up its environment.")
        return
    with MathDapo(python, truths, responses, context.scratch) as dapo:
        by_rule = verifier.verify_batch(truths, responses, "dapo")
        contenders = {"rule dapo": ours("dapo"), "verl's math_dapo": dapo.judge}
        said = {
            "rule dapo": [bool(one.correct) for one in by_rule],
            "verl's math_dapo": dapo.judge(),
        }
        if said["rule dapo"] != said["verl's math_dapo"]:
            raise ValueError("rule dapo and verl's math_dapo differ on a real answer")
        _compare_peers(context, contenders, said, sample, result)


def _compare_peers(
    context: Context,
    contenders: dict[str, Callable[[], object]],
    said: dict[str, list[bool]],
    sample: list[Case],
    result: SuiteResult,
) -> None:
    timings = interleaved(contenders, min(context.rounds, 3))
    (ours, fast), (other, slow) = timings.items()
    result.add(
        "times the speed",
        round(slow.best / fast.best, 1),
        "x",
        {"of": ours, "against": other, "answers": len(sample)},
    )
    for name, timing in timings.items():
        right = sum(a is case.correct for a, case in zip(said[name], sample, strict=True))
        rows: Parameters = {"decided by": name, "answers": len(sample)}
        us = 1e6 * timing.best / len(sample)
        result.figures += [
            Figure(name="mean", value=round(us, 2), unit="µs", parameters=rows),
            Figure(
                name="agreement with the labels",
                value=round(100.0 * right / len(sample), 1),
                unit="%",
                parameters=rows,
            ),
        ]


def _hostile(result: SuiteResult) -> None:
    """Take the calling thread's part of each kind, with the ground truth it is worst for."""
    for kind, text in _HOSTILE.items():
        if any(_in_thread(truth, text) for truth in _HOSTILE_TRUTHS):
            raise WrongAnswerError(f"a hostile answer is taken for right: {kind}")
        us = max(_best_us(partial(_in_thread, truth, text)) for truth in _HOSTILE_TRUTHS)
        result.add(
            "hostile answer", round(us / 1e3, 3), "ms", {"kind": kind, "characters": len(text)}
        )


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
    problems = texts.problems(_BATCH // _GROUP, context.seed)
    rows = texts.rollouts_of(problems, _GROUP, _BATCH_BYTES, context.seed)
    path = texts.write_rows(context.scratch / "answers.jsonl", problems)
    truth_of = {problem["problem_id"]: problem["ground_truth"] for problem in problems}
    truths = [truth_of[row["problem_id"]] for row in rows]
    responses = [row["response"].encode() for row in rows]
    rollouts = [
        Rollout(row["problem_id"], response) for row, response in zip(rows, responses, strict=True)
    ]
    options = ScoreOptions(RewardSpec(RewardKind.MAX))
    scorer = Scorer({"default": DatasetIndex.load(path)}, verifier=verifier, threads=1)
    scores, _ = scorer.score(rollouts, options)
    if [score.acc for score in scores] != [int(row["correct"]) for row in rows]:
        raise ValueError("the scorer's answers are not those that the generator wrote")

    def cold() -> object:
        forget_memos()
        return verifier.verify_batch(truths, responses)

    def with_algebra() -> object:
        return verifier.verify_batch([*truths[:-2], *odd_truths], [*responses[:-2], *odd])

    odd_cases = [_needs_a_worker(7), _needs_a_worker(11)]
    odd_truths = [case.truth for case in odd_cases]
    odd = [case.response.encode() for case in odd_cases]
    timings = interleaved(
        {
            "all of scoring": lambda: scorer.score(rollouts, options),
            "answers, warm": lambda: verifier.verify_batch(truths, responses),
            "answers, cold": cold,
        },
        context.rounds,
        time.process_time,
    )
    timings |= interleaved({"answers, 2 of them for SymPy": with_algebra}, context.rounds)
    for part, timing in timings.items():
        result.add(
            f"batch of {_BATCH} rollouts of 10 KB",
            round(1e6 * timing.best / _BATCH, 2),
            "µs a rollout",
            {"part": part},
        )
    share = 100.0 * timings["answers, warm"].best / timings["all of scoring"].best
    result.add(
        "part of the answers in scoring a batch",
        round(share, 1),
        "%",
        {"rollouts": _BATCH, "bytes each": _BATCH_BYTES},
    )
