"""The suite ``step`` itself, in the environment with verl."""

from __future__ import annotations

from benchmarks.harness.measure import Context
from benchmarks.harness.results import SuiteResult
from benchmarks.suites.step import TITLE, material, streaming, whole

SIZE = 10_000
ROLLOUTS = 2048
# Of the streaming part; each side takes a few seconds at its rate.
SAMPLES, ALL_SAMPLES = 200, 2048


def measure(context: Context) -> SuiteResult:
    """Time whole steps and single samples."""
    step = material.step(ROLLOUTS, SIZE, context.seed, context.data, context.scratch)
    figures, checks = whole.measure(context, step, context.scratch)
    part = material.Step(
        step.dataset, step.rows[: ALL_SAMPLES if context.full else SAMPLES], step.kind
    )
    figures += streaming.measure(context, part, context.scratch)
    return SuiteResult(
        suite="step",
        title=TITLE,
        figures=figures,
        checks=checks,
        notes=[
            f"{len(step.rows):,} {step.kind} rollouts of {step.num_bytes / 1e6:.1f} MB in all,"
            f" {material.PER_PROBLEM} a problem, {material.NODES} nodes each. Every reward of"
            " every side equals what was written into the texts.",
            "Parallel: the plain function runs on one core wherever it is put, because verl's"
            " threads share the interpreter's lock. The service's server and the trainer's"
            " process work at the same time where they have a core each.",
            "The step leaves out Ray and the decoding of tokens on all sides; the lines about"
            " verl's loop have both. There the sides run one after the other, not in turns, because"
            " verl's workers have fixed names.",
            "The garbage collector runs, as in a trainer. The service's manager has taken what was"
            " loaded out of its sight, which spares the plain function its full collections too.",
            "One batch through the client is what is left without verl's single samples, and the"
            " worker's lines have verl's own cutting of a batch into samples on top.",
        ],
    )
