"""Which rollouts are correct: decided by the answer verifier, or by their labels.

An answer that is not decided is not correct.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from consensuspr.data import Row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.scorer import verify_patiently


class Judge(Protocol):
    """Says of rollouts whether they are correct."""

    def judge(self, truths: Sequence[str], texts: Sequence[str], rule: str) -> list[bool | None]:
        """Return for each True, False, or None where it was not decided."""
        ...


class VerifyingJudge:
    """Verifies final answers.

    Args:
        verifier: of answers.
    """

    def __init__(self, verifier: AnswerVerifier) -> None:
        self._verifier = verifier

    def judge(self, truths: Sequence[str], texts: Sequence[str], rule: str) -> list[bool | None]:
        verdicts = verify_patiently(self._verifier, truths, texts, rule)
        return [verdict.correct for verdict in verdicts]


# MERGED Which correct rollouts of a problem are looked at: N of them, over as many models as there are.
#
# The paper's stage 1 (section 3.2) takes N = 5 correct rollouts a problem in total from several
# models and excludes problems with fewer than N_min = 3.  Where there are more than N, models
# take turns; whose turn comes first and which of a model's rollouts goes first is decided by a
# digest of problem, model and text, so that neither the order of files nor that of rows matters.

# What one problem may bring along where all its rollouts are asked for: more of them tell
# nothing new, and one problem must not decide how much memory a build takes.
MAX_ROLLOUTS = 256
MAX_ROLLOUT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """Which rollouts count.

    Attributes:
        rollouts_per_problem: N, 1 or more; None for all (at most :data:`MAX_ROLLOUTS`).
        min_rollouts: N_min, 1 or more; a problem with fewer correct ones is excluded.
        seed: another seed, another choice.
        trust_labels: take the column ``correct`` instead of verifying the answer.
        answer_rule: of the verification; None for the problem's own, else ``auto``.
        exclude_models: models whose rollouts are left out.
        only_models: where given, all others are left out.

    Raises:
        InputError: a number is out of its range.
    """

    rollouts_per_problem: int | None = 5
    min_rollouts: int = 3
    seed: int = 0
    trust_labels: bool = False
    answer_rule: str | None = None
    exclude_models: tuple[str, ...] = ()
    only_models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        most = MAX_ROLLOUTS if self.rollouts_per_problem is None else self.rollouts_per_problem
        if not 1 <= most <= MAX_ROLLOUTS:
            raise InputError(
                f"--rollouts-per-problem must be from 1 to {MAX_ROLLOUTS}, or all, got {most}"
            )
        if not 1 <= self.min_rollouts <= most:
            raise InputError(
                f"--min-rollouts must be from 1 to {most}, the --rollouts-per-problem, "
                f"got {self.min_rollouts}"
            )
        both = sorted(set(self.exclude_models) & set(self.only_models))
        if both:
            raise InputError(f"model {both[0]!r} is both excluded and the only one")

    def takes(self, model: str) -> bool:
        """Say whether a model's rollouts count."""
        if self.only_models and model not in self.only_models:
            return False
        return model not in self.exclude_models

    def provenance(self) -> Row:
        """Return the settings as they are recorded in the dataset."""
        return {
            "rollouts_per_problem": self.rollouts_per_problem,
            "min_rollouts": self.min_rollouts,
            "seed": self.seed,
            "correct": "labels" if self.trust_labels else "verified",
            "answer_rule": self.answer_rule,
            "exclude_models": sorted(self.exclude_models),
            "only_models": sorted(self.only_models),
        }


class Selectable(Protocol):
    """What is known of a rollout without reading it."""

    @property
    def model(self) -> str: ...

    @property
    def digest(self) -> bytes: ...

    @property
    def num_bytes(self) -> int: ...


Chosen = TypeVar("Chosen", bound=Selectable)


def choose(problem_id: str, correct: Sequence[Chosen], settings: SelectionSettings) -> list[Chosen]:
    """Return the rollouts to look at.

    Args:
        problem_id: of their problem.
        correct: distinct correct rollouts of it, in any order.
        settings: how many, and the seed.
    """

    def rank(*parts: bytes) -> bytes:
        # The parts before the last are separated, so that no two combinations look alike.
        salt = f"{settings.seed}\0{problem_id}\0".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(salt + b"\0".join(parts), digest_size=16).digest()

    by_model: dict[str, list[Chosen]] = {}
    for one in correct:
        by_model.setdefault(one.model, []).append(one)
    queues = []
    for model in sorted(by_model, key=lambda name: rank(_bytes(name))):
        queue = sorted(by_model[model], key=lambda one: rank(_bytes(one.model), one.digest))
        queues.append(queue)
    most = settings.rollouts_per_problem or MAX_ROLLOUTS
    chosen: list[Chosen] = []
    num_bytes = 0
    for turn in range(max(map(len, queues), default=0)):
        for queue in queues:
            if turn >= len(queue) or len(chosen) >= most:
                continue
            if num_bytes + queue[turn].num_bytes > MAX_ROLLOUT_BYTES:
                return chosen
            num_bytes += queue[turn].num_bytes
            chosen.append(queue[turn])
    return chosen


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
