"""verl's V1 trainers with our figures in their step log, and our ids in their dumps.

``trainer.v1.trainer_mode=consensuspr_sync`` (or ``…_colocate_async``, ``…_separate_async``) names
verl's own trainer of that mode, with four additions:

*   the figures of a step's samples (:mod:`consensuspr.client.training.figures`) go into its
    metrics, with the number of missing samples and the events of the reward workers;
*   ``trainer.rollout_data_dir`` dumps have the figures of each sample;
*   the agent loops pass the reward the mask of the policy's tokens
    (:mod:`consensuspr.client.verl.agent_loop`), unless another manager of them is named;
*   reward workers keep a score log beside the checkpoints, unless ``score_log`` is set.

Before workers and engines start, the trainer checks the reward's settings and their files.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.reward import resolve_reward_manager_cls
from verl.trainer.ppo.v1 import (
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    PPOTrainerSync,
    register_trainer,
)

from consensuspr.client.training import METRICS, StepWatch, figures
from consensuspr.client.verl.config import OPTIONAL_LOG, OUR_TRAINERS, ManagerConfig, trainer_mode
from consensuspr.client.verl.manager import ConsensusRewardManager
from consensuspr.client.verl.run_end import note_reason, worker_notes
from consensuspr.errors import InputError

logger = logging.getLogger(__name__)

AGENT_LOOPS = "consensuspr.client.verl.agent_loop.MaskingAgentLoopManager"

# Separates the last part of a key of the transfer queue, PROMPT_ROLLOUT_PART.
_PART = "_"
_SOURCE = "data_source"


class Figures:
    """Adds our figures to a trainer of verl; stands before it among the bases."""

    config: Any

    def __init__(self, config: Any) -> None:
        _prepare_reward(config)
        agent = config.actor_rollout_ref.rollout.agent
        with open_dict(config):
            # verl compares it in many places, and finds the mode's own settings by it.
            config.trainer.v1.trainer_mode = trainer_mode(config)
            if not agent.get("agent_loop_manager_class"):
                agent.agent_loop_manager_class = AGENT_LOOPS
        self._watch = StepWatch()
        self._events: Counter[str] = Counter()
        self._dumped: dict[str, dict[str, Any]] = {}
        super().__init__(config)  # type: ignore[call-arg]

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)  # type: ignore[misc]
        rows = _figures_of(batch)
        rollouts = {key.rpartition(_PART)[0]: sample for key, sample in rows.items()}
        samples = [*rollouts.values()]
        of_step = figures(
            samples,
            [sample[_SOURCE] for sample in samples],
            [rollout.rpartition(_PART)[0] for rollout in rollouts],
        )
        metrics.update(of_step)
        warning = self._watch.add(of_step)
        if warning is not None:
            logger.warning("step %d: %s", global_steps, warning)
        wanted = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        metrics[f"{METRICS}/missing"] = max(0, wanted - len(rollouts))
        for kind, count in self._new_events().items():
            metrics[f"{METRICS}/events/{kind.replace(' ', '_')}"] = count

    def _new_events(self) -> Counter[str]:
        """Return the events in the reward workers since the last step, by kind."""
        so_far: Counter[str] = Counter()
        for worker in worker_notes():
            so_far.update(worker["events"])
        new = so_far - self._events
        self._events = so_far
        return new

    def _log_rollout_data(self, batch: Any, timing_raw: Any, rollout_data_dir: str) -> None:
        self._dumped = _figures_of(batch)
        super()._log_rollout_data(batch, timing_raw, rollout_data_dir)  # type: ignore[misc]
        self._dumped = {}

    def _dump_generations(
        self, *, reward_extra_infos_dict: dict[str, list[Any]], **dump: Any
    ) -> None:
        keys = reward_extra_infos_dict["uid"]
        names = dict.fromkeys(name for sample in self._dumped.values() for name in sample)
        figures = {name: [self._dumped.get(key, {}).get(name) for key in keys] for name in names}
        super()._dump_generations(  # type: ignore[misc]
            reward_extra_infos_dict={**figures, **reward_extra_infos_dict}, **dump
        )


def _prepare_reward(config: Any) -> None:
    """Check the settings and files of our reward manager, and name a score log.

    Raises:
        InputError: a setting is wrong, or a file that it names cannot be used.
    """
    if resolve_reward_manager_cls(config) is not ConsensusRewardManager:
        return
    try:
        ManagerConfig.of(config).settings.check_files()
    except InputError as error:
        note_reason(str(error))
        raise
    given = config.reward.get("reward_kwargs") or {}
    if "score_log" in given:  # null: none
        return
    run = Path(config.trainer.default_local_dir).absolute() / "score-log"
    try:
        run.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=run).close()
    except OSError as error:
        logger.warning("no score log is kept in %s: %s", run, error.strerror)
        return
    with open_dict(config):
        config.reward.reward_kwargs = {**given, "score_log": str(run), OPTIONAL_LOG: True}
    print(
        f"every sample is logged: see consensuspr curves {run}"
        " (off with +reward.reward_kwargs.score_log=null)",
        flush=True,
    )


def _figures_of(batch: Any) -> dict[str, dict[str, Any]]:
    """Return the figures of each row of a batch, by its key, without padding."""
    tagged = zip(batch.keys, batch.tags, strict=True)
    keys = [key for key, tag in tagged if not tag.get("is_padding", False)]
    if not keys:
        return {}
    # A column that the rows lack is left out.
    data = tq.kv_batch_get(
        keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields", _SOURCE]
    )
    values = {
        name: [getattr(value, "data", value) for value in data[name]]
        for name in data.keys()  # noqa: SIM118  # a TensorDict iterates over its rows
    }
    sources = values.get(_SOURCE, [None] * len(keys))
    found = {
        key: {**(fields.get("reward_extra_info") or {}), _SOURCE: source}
        for key, fields, source in zip(keys, values["extra_fields"], sources, strict=True)
    }
    return {key: sample for key, sample in found.items() if "num_nodes" in sample}


@register_trainer(f"{OUR_TRAINERS}sync")
class ConsensusTrainerSync(Figures, PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer."""


@register_trainer(f"{OUR_TRAINERS}colocate_async")
class ConsensusTrainerColocateAsync(Figures, PPOTrainerColocateAsync):  # type: ignore[misc]
    """verl's asynchronous trainer on the GPUs of its rollouts."""


@register_trainer(f"{OUR_TRAINERS}separate_async")
class ConsensusTrainerSeparateAsync(Figures, PPOTrainerSeparateAsync):  # type: ignore[misc]
    """verl's asynchronous trainer beside its rollouts."""
