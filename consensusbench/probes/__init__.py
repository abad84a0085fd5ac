"""What can be had from a dataset's nodes without solving a problem.

A process reward is worth what it costs to fake.  The probes score texts that no one would call
a solution (plain enumerations, the question itself, all that can be computed from its numbers)
and rollouts of other problems, and say how much of the Node Coverage Rate they earn::

    from consensusbench.probes import probe_dataset

    report = probe_dataset("problems.jsonl", ["rollouts.jsonl"])
    report.attack("number_salad").overall.ncr

Figures and their definitions: ``docs/validation.md``.
"""

from consensusbench.probes.attacks import DESCRIPTIONS, Attack
from consensusbench.probes.probe import ProbeSettings, probe_dataset
from consensusbench.probes.report import (
    AttackFigures,
    AttackReport,
    DenseRollout,
    DensityFigures,
    ProbeReport,
    WorstProblem,
)

__all__ = [
    "DESCRIPTIONS",
    "Attack",
    "AttackFigures",
    "AttackReport",
    "DenseRollout",
    "DensityFigures",
    "ProbeReport",
    "ProbeSettings",
    "WorstProblem",
    "probe_dataset",
]
