"""The reward as a trainer sees it: one sample in, one reward out, none lost, none made up.

Here is everything that adapters need and no framework knows: settings, the problem of a sample, the
epoch of the curriculum, the behaviour while the server is away, and the score log.  The adapters
(``consensuspr.client.verl``, ``.trl``, ``.slime``, …) translate a framework's samples into calls of
:class:`SampleScorer`.  A failure becomes a reward only if the user has named that number.

Model a new adapter for columns of a batch on ``ms_swift.py``, one for a single label or metadata on
``slime.py``.  If no event loop lasts, run on :func:`on_own_loop`.  ``docs/guides/trainers.md``
lists the adapters.
"""

from consensuspr.client.training.figures import METRICS, StepWatch, figures
from consensuspr.client.training.rows import (
    INFO_COLUMNS,
    VALIDATION_SPLITS,
    ProblemIds,
    TrainingRow,
    batch_rows,
    inline_nodes,
    label_columns,
    problem_id_of,
    prompt_digest,
)
from consensuspr.client.training.samples import SampleScorer, on_own_loop, together
from consensuspr.client.training.settings import EpochClock, RewardSettings, progress_of
from consensuspr.client.training.source import (
    RewardSource,
    ScoredSample,
    TooManyUnscorable,
    UnscorableSample,
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
    "batch_rows",
    "figures",
    "inline_nodes",
    "label_columns",
    "on_own_loop",
    "problem_id_of",
    "progress_of",
    "prompt_digest",
    "score_log_of",
    "shared_source",
    "together",
]
