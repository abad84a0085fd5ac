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
        description="Reward formula: linear, max, curriculum or outcome.",
    )
    alpha: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.5, description="Weight of the final answer in the linear reward, from 0 to 1."
    )
    switch_epoch: Epoch = Field(
        1,
        description="Epoch, counted from 0, from which the curriculum rewards the answer and not"
        " the nodes.",
    )
    guard: bool = Field(
        True, description="Lower the NCR of responses that state far more than a solution needs."
    )
    statements: bool = Field(
        True,
        description="A node also counts as reached if the response writes its calculation or"
        " equation in another form.",
    )
    final_nodes: bool = Field(True, description="Count nodes that state the final answer.")
    ncr: NcrKind = Field(
        NcrKind.PLAIN,
        description="Weight of each node in NCR: equal (plain), the dataset's weight (weighted) or"
        " its position (position).",
    )
    after_think: bool = Field(False, description="Score only the text after the last `</think>`.")
    code: CodeCredit = Field(
        CodeCredit.WRITTEN,
        description="Statements in program code count if the response writes their result"
        " (written), or always (computed).",
    )
    unanswered: Unanswered | None = Field(
        None,
        description="NCR of a response without a marked final answer: unchanged (ncr) or 0 (zero)."
        " Default: in training zero for linear and max, else ncr.",
    )
    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that finds the final answer: auto, dapo, boxed or gsm8k. Default: the"
        " dataset's rule, else auto.",
    )
    on_undecided: OnUndecided = Field(
        OnUndecided.COUNT_WRONG,
        description="If the answer check runs out of time: count the answer as wrong"
        " (count_wrong), or give no reward (mask).",
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
