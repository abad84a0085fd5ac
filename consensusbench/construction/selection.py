"""Which correct rollouts of a problem are compared: N of them, over as many models as there are.

The paper's stage 1 (section 3.2) takes N = 5 correct rollouts a problem in total from several
models and excludes problems with fewer than N_min = 3.  Where there are more than N, models
take turns; a digest of problem, model and text decides the order, so that neither the order of
files nor that of rows matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, zip_longest
from typing import Annotated

from pydantic import Field

from consensusbench.construction.store import DistinctRollout
from consensuspr.data import Row
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule
from consensuspr.settings import check_fields

# Of one problem, so that memory is bounded.
MAX_ROLLOUTS = 256
MAX_ROLLOUT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """Which rollouts count.

    Attributes:
        rollouts_per_problem: correct rollouts of a problem to compare, over all models (the
            paper's N); at most 64 MiB of text.
        min_rollouts: correct rollouts that a problem must have (the paper's N_min).
        min_steps: training steps that must solve a problem, if the rollouts are of a run.
        seed: seed of the choice of rollouts.
        trust_labels: use the column ``correct`` instead of checking the answers.
        answer_rule: rule that finds the final answer.  Default: the problem's rule, else
            ``auto``.
        exclude_models: models whose rollouts are left out, to evaluate them later.
        only_models: models whose rollouts are used; empty: all.

    Raises:
        InputError: a number is out of its range.
    """

    rollouts_per_problem: Annotated[int, Field(ge=1, le=MAX_ROLLOUTS)] = 15
    min_rollouts: Annotated[int, Field(ge=1)] = 3
    min_steps: Annotated[int, Field(ge=1)] = 2
    seed: int = 0
    trust_labels: bool = False
    answer_rule: AnswerRule | None = None
    exclude_models: tuple[str, ...] = ()
    only_models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_rollouts > self.rollouts_per_problem:
            raise InputError(
                f"min_rollouts must be at most {self.rollouts_per_problem}, the "
                f"rollouts_per_problem, got {self.min_rollouts}"
            )
        if self.trust_labels and self.answer_rule is not None:
            raise InputError("answer_rule has no effect with trust_labels; set one of them")

    def takes(self, model: str) -> bool:
        """Return whether a model's rollouts count."""
        if self.only_models and model not in self.only_models:
            return False
        return model not in self.exclude_models

    def provenance(self) -> Row:
        """Return the settings as they are recorded in the dataset."""
        settings = asdict(self)
        correct = "labels" if settings.pop("trust_labels") else "verified"
        models = ("exclude_models", "only_models")
        return settings | {"correct": correct, **{key: sorted(settings[key]) for key in models}}


def choose(
    problem_id: str, correct: Sequence[DistinctRollout], settings: SelectionSettings
) -> list[DistinctRollout]:
    """Return the rollouts to compare, of distinct correct ones in any order."""

    def rank(model: str, *text: bytes) -> bytes:
        # The parts are separated, so that no two combinations look alike.
        salt = f"{settings.seed}\0{problem_id}\0{model}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(b"\0".join([salt, *text]), digest_size=16).digest()

    by_model: dict[str, list[DistinctRollout]] = {}
    for rollout in correct:
        by_model.setdefault(rollout.model, []).append(rollout)
    queues = [
        sorted(by_model[model], key=lambda rollout: rank(rollout.model, rollout.digest))
        for model in sorted(by_model, key=rank)
    ]
    turns = [rollout for rollout in chain.from_iterable(zip_longest(*queues)) if rollout]
    turns = turns[: settings.rollouts_per_problem]
    num_bytes = accumulate(rollout.num_bytes for rollout in turns)
    return turns[: sum(size <= MAX_ROLLOUT_BYTES for size in num_bytes)]
