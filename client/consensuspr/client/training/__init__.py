"""The reward as a trainer sees it: one sample in, one reward out, none lost, none made up.

What every adapter needs and no framework knows: settings, the problem a sample belongs
to, the epoch of the curriculum, what happens while the server is away, and the score log.
The adapters (``consensuspr.client.verl``, ``.trl``, ``.slime``, …) translate a framework's
samples into calls of :class:`SampleScorer`, or of :class:`RewardSource` itself.

The server is asked first; retries with jitter are the client's.  A server that stays away
is replaced by an equal scorer in this process where ``dataset_path`` names the data, else
waited for or reported, as ``on_unavailable`` says.  A sample that cannot be scored for
good follows ``on_unscorable``.  Nothing here ever turns a failure into a reward unless a
user has named that number.
"""

from consensuspr.client.training.figures import METRICS, StepWatch, figures
from consensuspr.client.training.rows import (
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
