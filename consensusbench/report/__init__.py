"""One self-contained HTML page about scored rollouts, and what can be set of it.

``page`` gathers what the page says and writes it; ``charts`` draws inline SVG of what ``data``
computes.  The page makes no request and runs only its own script.  Packages that the base install
lacks (``jinja2``) are imported by the modules of this package, and the command asks for them first.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from consensuspr.scoring.types import AnswerRule
from consensuspr.settings import Settings

# Code points of responses in a page, over all rollouts: what a browser opens at once.
MAX_PAGE_CHARS: Final = 4_000_000


class ReportSettings(Settings):
    """What the page holds."""

    title: str = Field("", description="Its heading; where not set, made of the dataset's name.")
    max_rollouts: int = Field(200, ge=0, description="Rollouts whose text stands in the page.")
    max_chars: int = Field(20_000, ge=1, description="Characters of one response in the page.")
    max_page_chars: int = Field(
        MAX_PAGE_CHARS, ge=0, description="Characters of all responses in the page."
    )
    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that the rollouts were asked to follow, for format errors; auto sees "
        "right answers anywhere. Where not set, the one the scores were made with.",
    )
    no_probes: bool = Field(False, description="Leave out the attacks on the dataset's nodes.")
