"""The reward as a trainer sees it: one sample in, one reward out, none lost, none made up.

What every adapter needs and no framework knows: settings, the problem a sample belongs
to, the epoch of the curriculum, what happens while the server is away, and the score log.
The adapters (``consensuspr.client.verl``, ``consensuspr.client.trl``) translate a
framework's samples into calls of :class:`RewardSource`.

The server is asked first; retries with jitter are the client's.  A server that stays away
is replaced by an equal scorer in this process where ``dataset_path`` names the data, else
waited for or reported, as ``on_unavailable`` says.  A sample that cannot be scored for
good follows ``on_unscorable``.  Nothing here ever turns a failure into a reward unless a
user has named that number.
"""

from consensuspr.client.training.rows import (
    ProblemIds,
    TrainingRow,
    ground_truth_text,
    inline_nodes,
    prompt_digest,
)
from consensuspr.client.training.score_log import ScoreLog
from consensuspr.client.training.settings import EpochClock, RewardSettings
from consensuspr.client.training.source import (
    VALIDATION_SPLITS,
    RewardSource,
    ScoredSample,
    UnscorableSample,
    shared_source,
)

__all__ = [
    "VALIDATION_SPLITS",
    "EpochClock",
    "ProblemIds",
    "RewardSettings",
    "RewardSource",
    "ScoreLog",
    "ScoredSample",
    "TrainingRow",
    "UnscorableSample",
    "ground_truth_text",
    "inline_nodes",
    "prompt_digest",
    "shared_source",
]
