"""Why an outcome reward misjudges rollouts: the mismatches of the paper's figure 1.

Each rollout is put into exactly one class, by thresholds that are documented and adjustable::

    from consensusbench.diagnosis import diagnose
    from consensusbench.evaluation.scored import score_files

    scored = score_files(["rollouts.jsonl"], "problems.jsonl", spans=True)
    report = diagnose(scored)
    report.total[Diagnosis.ALMOST_CORRECT]

The classes, the thresholds and what they were chosen on: ``docs/diagnosis.md``.
"""

from consensusbench.diagnosis.classes import (
    DEFAULT_THRESHOLDS,
    Diagnosis,
    Thresholds,
    Verdict,
    classify,
)
from consensusbench.diagnosis.diagnose import DiagnosisReport, diagnose
from consensusbench.diagnosis.readings import Reading, read_answers
from consensusbench.diagnosis.references import Reference, References

__all__ = [
    "DEFAULT_THRESHOLDS",
    "Diagnosis",
    "DiagnosisReport",
    "Reading",
    "Reference",
    "References",
    "Thresholds",
    "Verdict",
    "classify",
    "diagnose",
    "read_answers",
]
