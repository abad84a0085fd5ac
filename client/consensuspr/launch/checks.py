"""What can be found wrong with overrides before anything is started.

verl refuses keys that its schema lacks, but accepts some that it no longer reads, lets a value
take the place of a whole group, and hands the settings of the reward on unseen.  Those three are
looked at here, without verl.  What takes verl, the data or the server is ``consensuspr doctor``'s,
which a launch runs before the training.
"""

from __future__ import annotations

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import SOURCE
from consensuspr.errors import InputError
from consensuspr.launch.overrides import Overrides

# Top groups of verl before 0.7. 0.9 accepts their keys and reads none of them.
OLD_GROUPS = ("custom_reward_function", "reward_model", "sandbox_fusion")

# Settings of verl's own in the place of ours.
_OVERLONG = "overlong_buffer_cfg"
_VERLS = (
    "max_resp_len",
    *(f"{_OVERLONG}.{key}" for key in ("enable", "len", "penalty_factor", "log")),
)


def check_overrides(overrides: Overrides) -> None:
    """Refuse what verl would ignore and what the reward would not know.

    Raises:
        InputError: one of them; the sentence says what to write instead.
    """
    for key in overrides:
        if key.partition(".")[0] in OLD_GROUPS:
            raise InputError(
                f"verl would ignore {key}: what was in {key.partition('.')[0]} is in reward now"
                " (docs/training.md has the keys)"
            )
        inside = next((other for other in overrides if other.startswith(f"{key}.")), None)
        if inside is not None:
            raise InputError(f"{key} is a group of settings, such as {inside}; set those inside it")
    _check_reward(overrides)


def _check_reward(overrides: Overrides) -> None:
    given: dict[str, object] = {}
    for key, value in overrides.below(SOURCE).items():
        if key in _VERLS:
            continue
        if key.startswith(f"{_OVERLONG}."):
            raise InputError(
                f"unknown setting {key!r} in {SOURCE}; verl's own are {', '.join(_VERLS)}"
            )
        # What Hydra fills in cannot be judged here; the manager does, when training starts.
        if value is None or "${" not in value or key not in RewardSettings.model_fields:
            given[key] = None if value in (None, "null") else value
    RewardSettings.of(given, SOURCE)
