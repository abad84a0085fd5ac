"""A whole training step's rewards, and single samples as they come in, against plain Python.

Measured in verl's own environment (:mod:`benchmarks.suites.verl_python`), because both sides
run as verl runs them: :mod:`whole` holds the step, :mod:`streaming` the reward loop on Ray,
:mod:`overhead` what the client adds to one sample.
"""

from __future__ import annotations

from benchmarks.harness.measure import Context
from benchmarks.harness.results import SuiteResult
from benchmarks.suites import verl_python

TITLE = "A whole step, and single samples, in verl's reward code"


def run(context: Context) -> SuiteResult:
    """Measure where verl is; say what to install where it is not."""
    return verl_python.measured("benchmarks.suites.step.measuring", "step", TITLE, context)
