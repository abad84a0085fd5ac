"""Stage 1 of construction: rollouts from language models, checked and paid for once.

:func:`run_job` draws either N correct rollouts a problem over several models (paper section
3.2) or exactly k samples a problem from each (for pass@k), keeps every reply in a journal beside
the output, and writes the output from it.
"""

from consensusbench.sampling.job import (
    ModelCount,
    SampleEstimate,
    SampleJob,
    SampleOutcome,
    SampleProgress,
    SampleReport,
    estimate_job,
    run_job,
)
from consensusbench.sampling.plan import SampleSettings

__all__ = [
    "ModelCount",
    "SampleEstimate",
    "SampleJob",
    "SampleOutcome",
    "SampleProgress",
    "SampleReport",
    "SampleSettings",
    "estimate_job",
    "run_job",
]
