"""Pages to keep about scored rollouts or runs, and what can be set of them.

``page`` gathers what the report says and writes it with every sample; ``charts`` makes the charts
of what ``data`` computes.  The pages themselves are those of :mod:`consensuspr.web`.
"""

from __future__ import annotations

from pydantic import Field

from consensuspr.scoring.types import AnswerRule
from consensuspr.settings import Settings


class ReportSettings(Settings):
    """What the report says."""

    title: str = Field("", description="Its heading; where not set, made of names of files.")
    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that the rollouts were asked to follow, for format errors; auto sees "
        "right answers anywhere. Where not set, the one the scores were made with.",
    )
    no_probes: bool = Field(False, description="Leave out the attacks on the dataset's nodes.")
