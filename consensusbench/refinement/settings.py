"""The thresholds of refinement."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from consensuspr.data import Row
from consensuspr.errors import InputError

# Counts up whenever the same candidates may give other nodes.
REFINEMENT_VERSION = "1"


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """Which candidates become nodes.

    Attributes:
        min_nodes, max_nodes: the paper's |Node|_min and |Node|_max (section 3.2).
        min_support: rollouts that must reach a node.
        min_share: share of the rollouts that must reach a node, in [0, 1]; what fewer reach is
            one way among several, no consensus.
        min_formula_share: the same for formulas that give no number, such as ``a+b=c``: they
            depend on the names that a solution has chosen.
        min_information: least information of a node, see
            :func:`consensusbench.refinement.information.information_of`.
        max_finals: nodes that state the final answer.

    Raises:
        InputError: a threshold is out of range.
    """

    min_nodes: int = 2
    max_nodes: int = 12
    min_support: int = 2
    min_share: float = 0.4
    min_formula_share: float = 0.5
    min_information: float = 2.0
    max_finals: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.min_nodes <= self.max_nodes:
            raise InputError(
                f"--min-nodes must be from 0 to --max-nodes, got {self.min_nodes} and "
                f"{self.max_nodes}"
            )
        if self.max_nodes < 1:
            raise InputError(f"--max-nodes must be at least 1, got {self.max_nodes}")
        if self.min_support < 1:
            raise InputError(f"--min-support must be at least 1, got {self.min_support}")
        for option, share in (
            ("--min-share", self.min_share),
            ("--min-formula-share", self.min_formula_share),
        ):
            if not 0 <= share <= 1:
                raise InputError(f"{option} must be from 0 to 1, got {share:g}")
        if self.min_information < 0:
            raise InputError(f"--min-information must be at least 0, got {self.min_information:g}")
        if self.max_finals < 0:
            raise InputError(f"--max-finals must be at least 0, got {self.max_finals}")

    def provenance(self) -> Row:
        """Return version and thresholds."""
        return {"version": REFINEMENT_VERSION, **asdict(self)}
