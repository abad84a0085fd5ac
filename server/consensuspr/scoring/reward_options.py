"""The options of a reward, declared once: name, type, range, default and help.

Commands, trainers and URLs inherit them.  Inside, a :class:`RewardSpec` is passed whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from consensuspr.scoring.rewards import CodeCredit, NcrKind, RewardKind, RewardSpec, Unanswered
from consensuspr.scoring.types import MAX_UINT32, AnswerRule, OnUndecided
from consensuspr.settings import Settings

Epoch = Annotated[int, Field(ge=0, le=MAX_UINT32)]

# Options that have an effect on one reward alone.
OF_ONE_REWARD: Mapping[str, RewardKind] = {
    "alpha": RewardKind.LINEAR,
    "epoch": RewardKind.CURRICULUM,
    "switch_epoch": RewardKind.CURRICULUM,
}


class RewardOptions(Settings):
    """How acc and ncr become a reward, and of which text they are taken."""

    # Whether the default of ``unanswered`` is that of trainers.
    in_training: ClassVar[bool] = True

    reward: RewardKind = Field(
        RewardKind.LINEAR,
        description="How accuracy and NCR are combined (section 4.2 of the paper).",
    )
    alpha: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.5, description="Weight of accuracy in the linear reward, from 0 to 1."
    )
    switch_epoch: Epoch = Field(
        1, description="First epoch, from 0, in which the curriculum rewards the answer."
    )
    guard: bool = Field(
        True, description="Lower NCR if a response states far more than a solution needs."
    )
    statements: bool = Field(
        True, description="A true statement of a node's value reaches it, not its text alone."
    )
    final_nodes: bool = Field(True, description="Count nodes that state the final answer.")
    ncr: NcrKind = Field(
        NcrKind.PLAIN,
        description="Count each node the same, or by the dataset's weights or positions.",
    )
    after_think: bool = Field(
        False, description="Score only what follows the last `</think>`, nodes and answer."
    )
    code: CodeCredit = Field(
        CodeCredit.WRITTEN,
        description="A statement in program code counts if the response writes its result"
        " (written), or always (computed).",
    )
    unanswered: Unanswered | None = Field(
        None,
        description="NCR of a response without a marked final answer: unchanged (ncr) or 0 (zero);"
        " default: in training zero for linear and max, else ncr.",
    )
    answer_rule: AnswerRule | None = Field(
        None, description="How the final answer is found; default: the dataset's rule, else auto."
    )
    on_undecided: OnUndecided = Field(
        OnUndecided.COUNT_WRONG,
        description="An answer whose check ran out of time counts as wrong, or has no reward.",
    )

    @property
    def spec(self) -> RewardSpec:
        """The reward that these options ask for."""
        names = RewardSpec.__dataclass_fields__.keys() & RewardOptions.model_fields.keys()
        values = {name: getattr(self, name) for name in names}
        if self.unanswered is None:
            values["unanswered"] = (
                Unanswered.in_training(self.reward) if self.in_training else Unanswered.NCR
            )
        return RewardSpec(self.reward, **values)
