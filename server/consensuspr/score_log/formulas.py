"""The reward formulas of a score log: rewards of two formulas cannot be compared or averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from consensuspr.console import count_of
from consensuspr.errors import InputError
from consensuspr.score_log.schema import read_reward
from consensuspr.scoring.rewards import RewardSpec

# Already in the text of a formula.
_IN_FORMULA = ("kind", "alpha", "switch_epoch")


def mixed_formulas(samples: Mapping[str | None, int]) -> list[str]:
    """Describe the reward formulas of a log that has several, the most frequent first.

    Each description is the formula, its settings that differ from the others', and its number
    of samples: ``"0.5 · Acc + 0.5 · NCR, guard=False (512 samples)"``.

    Args:
        samples: number of samples by ``reward_spec``, a column of the log; None is ignored.

    Returns:
        Empty if the log has one formula.
    """
    specs = [spec for spec, _ in sorted(samples.items(), key=lambda item: -item[1]) if spec]
    if len(specs) < 2:
        return []
    rewards = [_read(spec) for spec in specs]
    known = [reward for reward in rewards if reward is not None]
    differing = [
        each.name
        for each in fields(RewardSpec)
        if each.name not in _IN_FORMULA and len({getattr(one, each.name) for one in known}) > 1
    ]
    return [
        f"{_described(reward, differing)} ({count_of(samples[spec], 'sample')})"
        for spec, reward in zip(specs, rewards, strict=True)
    ]


def _read(spec: str) -> RewardSpec | None:
    try:
        return read_reward(spec)
    except InputError:
        return None


def _described(reward: RewardSpec | None, differing: list[str]) -> str:
    if reward is None:
        return "a formula of another release"
    settings = (f"{name}={getattr(reward, name)}" for name in differing)
    return ", ".join([reward.formula(None), *settings])
