"""The reward as a trainer sees it: one sample in, one reward out, none lost, none made up.

Here is everything that adapters need and no framework knows: settings, the problem of a sample, the
epoch of the curriculum, the behaviour while the server is away, and the score log.  The adapters
(``consensuspr.client.verl``, ``.trl``, ``.slime``, …) translate a framework's samples into calls of
:class:`SampleScorer`, or of :class:`RewardSource`.  A failure becomes a reward only if the user has
named that number.

A new adapter for columns of a batch is modelled on ``ms_swift.py``, one for a single label or
metadata on ``slime.py``, which uses :func:`labelled_row`; what has no lasting event loop runs
on :func:`on_own_loop`.  ``docs/trainers.md`` lists it.
"""

from consensuspr.client.training.figures import METRICS, StepWatch, figures
from consensuspr.client.training.rows import (
    INFO_COLUMNS,
    ProblemIds,
    TrainingRow,
    ground_truth_text,
    inline_nodes,
    labelled_row,
    prompt_digest,
)
from consensuspr.client.training.samples import SampleScorer, on_own_loop, together
from consensuspr.client.training.settings import EpochClock, RewardSettings
from consensuspr.client.training.source import (
    VALIDATION_SPLITS,
    RewardSource,
    ScoredSample,
    TooManyUnscorable,
    UnscorableSample,
    check_source,
    score_log_of,
    shared_source,
)

__all__ = [
    "INFO_COLUMNS",
    "METRICS",
    "VALIDATION_SPLITS",
    "EpochClock",
    "ProblemIds",
    "RewardSettings",
    "RewardSource",
    "SampleScorer",
    "ScoredSample",
    "StepWatch",
    "TooManyUnscorable",
    "TrainingRow",
    "UnscorableSample",
    "check_source",
    "figures",
    "ground_truth_text",
    "inline_nodes",
    "labelled_row",
    "on_own_loop",
    "prompt_digest",
    "score_log_of",
    "shared_source",
    "together",
]
