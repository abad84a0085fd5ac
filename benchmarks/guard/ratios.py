"""What counts do not see: ratios of times, each taken alternately in one run.

The measuring is that of the suites, on generated text and in small sizes.  The bounds are
about three quarters of what is reached now, for machines under load: they catch what costs more
than that (a copy of each byte, a search that is no longer linear, a lock that is held).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.guard.baseline import RatioCheck
from benchmarks.guard.probes import SEED, answers
from benchmarks.harness.machine import Moment
from benchmarks.harness.measure import Context, fastest
from benchmarks.harness.processes import on_one_core
from benchmarks.harness.results import SuiteResult
from benchmarks.suites import core
from benchmarks.suites.answers import math_verify
from benchmarks.suites.core import QUICK, Corpus, Sizes
from benchmarks.suites.service import SYNC, costs, over_floor, prepared, running
from consensuspr.scoring import AnswerVerifier
from consensuspr.scoring.answers.compare import forget_forms

_ROUNDS = 3
# Cores that have to be idle for the check of two threads, and how long that is looked at.
_FREE_CORES = 1.7
_LOOK_S = 1.0
_ANSWERS = 24
_BATCH = 64
_SIZES = replace(
    QUICK,
    peer_bytes=400_000,
    twin_bytes=20_000,
    lengths=(1_000, 10_000, 100_000, 1_000_000),
    nodes=(5, 50, 500),
)
_SHORT_HOSTILE, _LONG_HOSTILE = 10_000, 400_000

_Part = Callable[[Context, Sizes, Corpus, SuiteResult], None]


def checks(scratch: Path) -> tuple[list[RatioCheck], list[str]]:
    """Return the checks, and a sentence for each that this machine cannot do now.

    Nothing is measured yet but the load of the machine.  Files go into ``scratch``.
    """
    context = Context(full=False, seed=SEED, rounds=_ROUNDS, data=None, scratch=scratch)
    corpus = Corpus(None, SEED, _SIZES.corpus_bytes)

    def target(part: _Part, key: str) -> Callable[[], float]:
        return lambda: _check(_part(part, context, _SIZES, corpus), key)

    found = [
        RatioCheck(
            "plain Python",
            "normalise + match by `re` + `pyahocorasick` over the core",
            10.0,
            False,
            lambda: plain_python_over_core(context, corpus),
        ),
        RatioCheck(
            "length of rollouts",
            "the dearest byte of rollouts of 1 kB to 1 MB over the cheapest",
            1.4,
            True,
            target(core.by_length, "cost_by_length"),
        ),
        RatioCheck(
            "number of nodes",
            "the dearest byte with 5 to 500 nodes over the cheapest",
            # The fewer nodes are missing, the more of a text is passed over.
            1.8,
            True,
            target(core.by_nodes, "cost_by_nodes"),
        ),
        RatioCheck(
            "hostile texts",
            "a byte of the hostile text that grows worst, of 400 kB over 10 kB,",
            1.4,
            True,
            lambda: hostile_growth(context, corpus),
        ),
        RatioCheck(
            "server",
            "a batch of 64 rollouts of 10 kB through the server over an empty echo of its bytes "
            "and scoring it in process",
            2.0,
            True,
            lambda: server_over_echo_and_scoring(context),
        ),
        RatioCheck(
            "answers",
            "a check by math-verify over one by the fast path",
            115.0,
            False,
            math_verify_over_fast_path,
        ),
    ]
    alone = one_core_alone()
    if alone is None:
        found.append(
            RatioCheck(
                "two threads",
                "the speed of a batch matched by two threads over one",
                1.4,
                False,
                target(core.by_threads, "second_core"),
            )
        )
    return found, [] if alone is None else [f"Two threads are not checked: {alone}."]


def one_core_alone() -> str | None:
    """Return why two threads would not have a core each, None where they would.

    No try is any use then: a neighbour on the second core looks like a lock that is held.
    """
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return "there is one core"
    before = Moment.now()
    time.sleep(_LOOK_S)
    others = Moment.now().others_since(before)
    if (os.cpu_count() or cores) * (1 - others) < _FREE_CORES:
        return f"other programs take {others:.0%} of the {cores} cores"
    return None


def plain_python_over_core(context: Context, corpus: Corpus) -> float:
    """Return what plain Python takes over the core, patterns alone on both sides."""
    figures = _part(core.against_peers, context, _SIZES, corpus).figures
    [ratio] = [one.value for one in figures if one.name == "core against re + pyahocorasick"]
    return ratio


def hostile_growth(context: Context, corpus: Corpus) -> float:
    """Return how much dearer a byte of a long hostile text is than one of a short, at worst.

    Both are taken against ordinary text of the same run, which has no reason to grow.
    """
    short, long = (
        {
            str(figure.parameters["hostile text"]): figure.value
            for figure in _part(
                core.hostile, context, replace(_SIZES, hostile_bytes=size), corpus
            ).figures
        }
        for size in (_SHORT_HOSTILE, _LONG_HOSTILE)
    )
    return max(long[name] / short[name] for name in long)


def server_over_echo_and_scoring(context: Context) -> float:
    """Score a batch through a real server, all processes on one core."""
    with (
        on_one_core(),
        prepared(context, _BATCH) as work,
        running(work, context.scratch) as field,
    ):
        return over_floor(costs(context, field, work, _BATCH, [SYNC]), SYNC)


def math_verify_over_fast_path() -> float:
    """Check the same answers by math-verify in this process, and by the service's verifier."""
    given = answers(_ANSWERS, "ratio")
    truths, responses = [one.ground_truth for one in given], [one.response for one in given]
    slow = math_verify(given)
    with AnswerVerifier() as verifier:

        def fast() -> list[bool | None]:
            forget_forms()  # what was seen before costs nothing; this is about the first time
            return [one.correct for one in verifier.verify_batch(truths, responses)]

        assert fast() == slow() == [one.correct for one in given]
        spent = fastest({"fast": fast, "slow": slow}, _ROUNDS, time.process_time)
    return spent["slow"] / spent["fast"]


def _part(part: _Part, context: Context, sizes: Sizes, corpus: Corpus) -> SuiteResult:
    found = SuiteResult(suite="guard", title="guard")
    part(context, sizes, corpus, found)
    return found


def _check(found: SuiteResult, key: str) -> float:
    [value] = [check.value for check in found.checks if check.target == key]
    assert value is not None  # these parts measure what they check
    return value
