"""Which epoch a training step belongs to: the phase of the curriculum (section 4.2).

The epoch is computed from the step that comes with each sample, never counted here: a
worker sees a random share of the samples, may be restarted, and must agree with all others.
"""

from __future__ import annotations

import logging

from consensuspr.client.training.settings import RewardSettings
from consensuspr.errors import InputError

logger = logging.getLogger(__name__)


class EpochClock:
    """Turns steps into epochs, and says so when the curriculum switches.

    Args:
        settings: whose reward is a curriculum or not.
        steps_per_epoch: what the trainer told; the setting of that name goes before it.
        reason: why ``steps_per_epoch`` is None, one clause for the error message.

    Raises:
        InputError: the reward needs the epoch, and it cannot be known.
    """

    def __init__(self, settings: RewardSettings, steps_per_epoch: int | None, reason: str) -> None:
        self._settings = settings
        self._needed = settings.reward == "curriculum"
        self._steps_per_epoch = settings.steps_per_epoch or steps_per_epoch
        self._stages = StageAnnouncer(settings)
        if self._needed and settings.epoch is None and not self._steps_per_epoch:
            raise InputError(
                f"reward=curriculum needs the epoch, which cannot be known: {reason}; set"
                " steps_per_epoch, or one run per stage with a fixed epoch"
            )

    def epoch_of(self, step: int | None) -> int:
        """Return the epoch, from 0, of a training step.

        Args:
            step: counted from 1; 0 or less before the first (validation before training);
                None where the trainer does not tell.

        Raises:
            InputError: the reward needs the epoch and the sample came without its step.
        """
        if self._settings.epoch is not None:
            epoch = self._settings.epoch
        elif step is not None and self._steps_per_epoch:
            epoch = max(0, (step - 1) // self._steps_per_epoch)
        elif self._needed:
            raise InputError(
                "reward=curriculum needs the training step, and the sample came without it"
                " (global_steps); set a fixed epoch, one run per stage"
            )
        else:
            return 0
        if self._needed:
            self._stages.announce(epoch, f"step {'unknown' if step is None else step}")
        return epoch


class StageAnnouncer:
    """Logs each stage of the curriculum once a process, when it is first seen.

    Late samples of the first stage may still trickle in after the switch.

    Args:
        settings: whose ``switch_epoch`` parts the stages.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self._switch_epoch = settings.switch_epoch
        self._announced: set[bool] = set()

    def announce(self, epoch: int, when: str) -> None:
        """Log the stage of an epoch; ``when`` says which step it was seen at."""
        outcome_stage = epoch >= self._switch_epoch
        if outcome_stage in self._announced:
            return
        self._announced.add(outcome_stage)
        logger.warning(
            "curriculum: %s is rewarded from here on (epoch %d, %s, switch_epoch %d)",
            "Acc" if outcome_stage else "NCR",
            epoch,
            when,
            self._switch_epoch,
        )
