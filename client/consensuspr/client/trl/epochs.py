"""The curriculum's epoch from the state of a Hugging Face trainer.

The state tells the epoch as a fraction: 1.25 is a quarter into the second epoch.  It is
brought up to date after each step, so that while rollouts of an epoch are generated it lies
in [epoch, epoch + 1), and exactly at the epoch for its first ones.
"""

from __future__ import annotations

from typing import Protocol

from consensuspr.client.training import RewardSettings, StageAnnouncer
from consensuspr.errors import InputError


class TrainerState(Protocol):
    """What is read of ``transformers.TrainerState``.

    Attributes:
        epoch: fraction of epochs done; None before training.
        global_step: steps done.
    """

    epoch: float | None
    global_step: int


class TrainerEpochs:
    """Reads epochs from the trainer's state, and says so when the curriculum switches.

    Args:
        settings: a fixed ``epoch`` goes before the state, ``steps_per_epoch`` before its epoch.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self._settings = settings
        self._stages = StageAnnouncer(settings)

    def epoch_of(self, state: TrainerState | None) -> int:
        """Return the epoch, from 0, of the step that is being made.

        Raises:
            InputError: the reward is a curriculum, and there is neither a state nor a setting.
        """
        epoch = self._known(state)
        needed = self._settings.reward == "curriculum"
        if epoch is None:
            if needed:
                raise InputError(
                    "reward=curriculum needs the epoch, and this trainer passes no trainer_state"
                    " to reward functions; set a fixed epoch, one run per stage"
                )
            return 0
        if needed:
            step = "unknown" if state is None else state.global_step
            self._stages.announce(epoch, f"after step {step}")
        return epoch

    def _known(self, state: TrainerState | None) -> int | None:
        if self._settings.epoch is not None:
            return self._settings.epoch
        if state is None:
            return None
        if self._settings.steps_per_epoch is not None:
            return state.global_step // self._settings.steps_per_epoch
        return 0 if state.epoch is None else int(state.epoch)
