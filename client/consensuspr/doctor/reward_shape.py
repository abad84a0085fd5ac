"""What verl's trainer makes of our rewards: DAPO's filter and penalty, and failing samples."""

from __future__ import annotations

from collections.abc import Iterator

from consensuspr.client.training import ScoredSample
from consensuspr.client.verl.overlong import OverlongPenalty
from consensuspr.doctor.findings import Finding, fail, ok, warn
from consensuspr.doctor.manager import Reward
from consensuspr.doctor.verl_run import SYNC_TRAINER_OF_0_8, VerlRun
from consensuspr.scoring.types import Score, Status

# verl's own name for the reward itself, beside the keys of every sample.
_REWARD = "reward"


def check_filter(run: VerlRun, reward: Reward) -> Iterator[Finding]:
    """Look at DAPO's group filter (dynamic sampling)."""
    check, groups = "group filter", run.get("algorithm.filter_groups")
    if not groups or groups.get("enable") is not True:
        return
    metric = groups.get("metric")
    fields = ScoredSample(0.0, Score(Status.OK), 0, "server").fields()
    numbers = [_REWARD, *(key for key, value in fields.items() if not isinstance(value, str))]
    if metric not in numbers:
        yield fail(
            check,
            f"algorithm.filter_groups.metric={metric} is no number that samples have",
            f"set algorithm.filter_groups.metric=acc (there is {', '.join(numbers)})",
        )
    elif reward.settings.reward == "curriculum" and metric == "acc":
        yield warn(
            check,
            "algorithm.filter_groups.metric=acc: in the first stage of the curriculum, groups"
            " whose answers are all wrong are dropped though their NCR differs",
            "set algorithm.filter_groups.metric=score, which follows the stage",
        )
    elif not _is_apt(str(metric), reward):
        why = "the overlong penalty" if reward.settings.reward == "outcome" else "nodes"
        yield warn(
            check,
            f"algorithm.filter_groups.metric={metric}: groups whose answers are all wrong, or all"
            f" right, pass the filter by {why}",
            "set algorithm.filter_groups.metric=acc, unless that is what you want",
        )
    else:
        yield ok(check, f"algorithm.filter_groups.metric={metric}")
    limit = groups.get("max_num_gen_batches") or 0
    if isinstance(limit, int) and limit > 0 and run.get("trainer.use_v1") is True:
        yield warn(
            check,
            f"algorithm.filter_groups.max_num_gen_batches={limit} is ignored by verl's V1 trainer",
            "set algorithm.filter_groups.max_inflight_gen_batches",
        )


def _is_apt(metric: str, reward: Reward) -> bool:
    """Tell whether a metric drops the groups that have nothing to learn from, and no others."""
    if reward.settings.reward in ("linear", "max"):
        return metric == "acc"
    follows = metric == "score" or (metric == _REWARD and reward.overlong is None)
    return follows or (metric == "acc" and reward.settings.reward == "outcome")


def check_overlong(run: VerlRun, penalty: OverlongPenalty | None) -> Iterator[Finding]:
    """Compare the penalty of long responses with how long they can get."""
    check = "overlong penalty"
    if penalty is None:
        yield ok(check, "off")
        return
    longest = penalty.free_tokens + penalty.buffer_tokens
    limit = run.get("data.max_response_length")
    if not isinstance(limit, int):
        limit = longest
    if limit <= penalty.free_tokens:
        yield fail(
            check,
            f"it begins at {penalty.free_tokens:,} tokens and responses end at {limit:,}: it never"
            " applies",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif limit != longest:
        yield warn(
            check,
            f"max_resp_len={longest:,}, but data.max_response_length={limit:,}: the longest"
            f" response gets {penalty(limit):g} instead of {penalty(longest):g}",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif penalty.free_tokens == 0:
        yield warn(
            check,
            "overlong_buffer_cfg.len equals max_resp_len: every token of every response costs",
            "shorten overlong_buffer_cfg.len",
        )
    else:
        yield ok(
            check,
            f"from {penalty.free_tokens:,} tokens on, {penalty(longest):g} at {longest:,}",
        )


def check_unscorable(run: VerlRun, reward: Reward) -> Iterator[Finding]:
    """Say what becomes of a sample that cannot be scored."""
    check, policy = "unscorable", reward.settings.on_unscorable
    if policy != "raise":
        yield warn(
            check,
            f"on_unscorable={policy:g}: samples that cannot be scored are trained on with this"
            " reward",
            "look at status in the score log",
        )
        return
    yield ok(check, f"on_unscorable=raise: {consequence(run)}")


def consequence(run: VerlRun | None, *, training: bool = True) -> str:
    """Return what verl does when the reward of a sample raises, one clause.

    Args:
        run: None where it is not known.
        training: the sample is of training, else of validation.
    """
    if run is None:
        return "verl's V1 trainer drops the sample, older ones stop"
    if run.trainer == SYNC_TRAINER_OF_0_8:
        return "verl marks its whole group as failed and goes on"
    if run.get("trainer.use_v1") is not True:
        return "training stops at the first"
    if not training:
        return "validation goes on without them"
    if run.get("trainer.v1.trainer_mode") != "sync":
        return "verl drops its whole group and generates another"
    if run.get("trainer.v1.sampler.sync_refill_failed_groups") is True:
        return "verl drops the sample, and replaces groups of which no sample is left"
    return (
        "verl drops the sample and trains its group smaller, groups without a sample are missing"
        " (trainer.v1.sampler.sync_refill_failed_groups=True replaces these)"
    )
