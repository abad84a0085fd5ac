"""What the probes found, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from consensusbench.probes.attacks import DESCRIPTIONS, Attack


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What one attack earns over a group of problems.

    Attributes:
        problems: problems with nodes that it was tried on.
        ncr: mean NCR of the attack's text, over problems.
        ncr_without_final: the same over nodes that do not state the final answer, and over
            problems that have such nodes; None where none has.
        share_reached: share of the problems of which it reaches NCR 0.5 or more.
        mean_chars: characters of the attack's text.
        hits_per_1000_chars: nodes hit by 1,000 characters of it.
    """

    problems: int
    ncr: float
    ncr_without_final: float | None
    share_reached: float
    mean_chars: float
    hits_per_1000_chars: float


@dataclass(frozen=True, slots=True)
class WorstProblem:
    """A problem of which an attack earns much.

    Attributes:
        ncr: that the attack earns.
        node_ids: nodes that it hits; of the level of chance, those it hits oftenest.
    """

    problem_id: str
    data_source: str
    ncr: float
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttackReport:
    """One attack: overall, by data source, and where it earns most (that earn anything)."""

    attack: Attack
    overall: AttackFigures
    by_source: dict[str, AttackFigures]
    worst: tuple[WorstProblem, ...]

    @property
    def description(self) -> str:
        """What its text is."""
        return DESCRIPTIONS[self.attack]


@dataclass(frozen=True, slots=True)
class DensityFigures:
    """How densely real rollouts of one source hit the nodes of their own problem.

    A policy that stuffs its rollouts with nodes shows by a density far above these.

    Attributes:
        rollouts: that were looked at: of known problems with nodes, not empty.
        ncr: their mean NCR, to hold the attacks against.
        median_chars: their median length.
        median_per_1000_chars: nodes hit by 1,000 characters, median over rollouts.
        p99_per_1000_chars: the same, 99th percentile.
        median_per_1000_tokens: nodes hit by 1,000 tokens, over the rollouts that have
            ``num_tokens``; None where none has.
        p99_per_1000_tokens: the same, 99th percentile.
    """

    rollouts: int
    ncr: float
    median_chars: float
    median_per_1000_chars: float
    p99_per_1000_chars: float
    median_per_1000_tokens: float | None
    p99_per_1000_tokens: float | None


@dataclass(frozen=True, slots=True)
class DenseRollout:
    """A rollout with more hits for its length than nearly all of its source."""

    problem_id: str
    rollout_id: str
    data_source: str
    ncr: float
    chars: int
    hits_per_1000_chars: float


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All probes of one dataset.

    Attributes:
        digest: of the dataset.
        budgets: characters that an attack may have, by data source.
        attacks: in the order of :class:`~consensusbench.probes.Attack`; the level of chance is
            among them where rollouts of at least two problems of a source were given.
        density: by data source; empty without rollouts.
        densest: the rollouts with the highest density, the first the highest.
        unknown_rollouts: rollouts whose problem the dataset does not have.
    """

    digest: str
    budgets: dict[str, int]
    attacks: tuple[AttackReport, ...]
    density: dict[str, DensityFigures]
    densest: tuple[DenseRollout, ...]
    unknown_rollouts: int

    def attack(self, attack: Attack | str) -> AttackReport:
        """Return one attack's report.

        Raises:
            KeyError: it was not tried.
        """
        for report in self.attacks:
            if report.attack == attack:
                return report
        raise KeyError(attack)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, shares as fractions."""
        said = asdict(self)
        for report, tried in zip(said["attacks"], self.attacks, strict=True):
            report["attack"] = tried.attack.value
            report["description"] = tried.description
        return said
