"""The thresholds of extraction by rules."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from consensuspr.data import Row
from consensuspr.errors import InputError

# Counts up whenever the same rollouts may give other candidates.
RULES_VERSION = "1"


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """What extraction by rules looks at and keeps.

    Attributes:
        min_support: rollouts that must state a conclusion, at least 1.
        min_models: models whose rollouts must state it, or as many as there are: what one model
            alone writes is its style, not consensus.
        phrases: a number with the word beside it ("30 minutes") is another wording of the
            conclusion that gives the number; without, only formulas are wordings.
        values: a distinctive number is a conclusion, and a wording of the one that gives it.
        max_statements: of one rollout, and phrases of each kind; later ones are not looked at.
        max_statement_chars: of a statement's normal form; longer ones are not looked at.
        max_candidates: of one problem whose support is counted, best supported first.
        max_wordings: formulas of one conclusion.
        max_phrases: phrases of one conclusion.
        max_forms: wordings and equal forms of one conclusion together.

    Raises:
        InputError: a threshold is below its least value.
    """

    min_support: int = 2
    min_models: int = 2
    phrases: bool = True
    values: bool = True
    max_statements: int = 2000
    max_statement_chars: int = 120
    max_candidates: int = 400
    max_wordings: int = 12
    max_phrases: int = 12
    max_forms: int = 128

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, bool) and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")

    def provenance(self) -> Row:
        """Return name, version and thresholds."""
        return {"extractor": "rules", "version": RULES_VERSION, **asdict(self)}
