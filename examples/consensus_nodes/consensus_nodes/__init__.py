"""An environment of verifiers whose tasks are the problems of a dataset with nodes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.harnesses.null import NullHarness

from consensuspr.client.verifiers import TraceReward, consensus_reward
from consensuspr.data import read_problems

# The harness of a package is its taskset's default: a chat without tools.
__all__ = ["ConsensusTaskset", "NullHarness"]

SYSTEM_PROMPT = (
    "Solve the problem step by step and write each calculation. End with the final answer in"
    " \\boxed{}."
)


class ConsensusTaskConfig(vf.TaskConfig):  # type: ignore[misc]  # verifiers has no types here
    consensuspr: dict[str, Any] = Field(default_factory=dict)
    """Settings of the reward, such as ``address``, ``reward`` and ``alpha``."""


class ConsensusTask(vf.Task[vf.TaskData, vf.State, ConsensusTaskConfig]):  # type: ignore[misc]
    @vf.reward  # type: ignore[untyped-decorator]
    async def consensus(self, task: vf.TaskData, trace: vf.Trace) -> float:
        settings = json.dumps(self.config.consensuspr, sort_keys=True, default=str)
        return await _reward(settings)(task, trace)


class ConsensusConfig(vf.TasksetConfig):  # type: ignore[misc]
    dataset: Path = Path(__file__).with_name("sample.jsonl")
    """Dataset file.  Without a server, the reward is scored with it in this process."""
    task: ConsensusTaskConfig = ConsensusTaskConfig()


class ConsensusTaskset(vf.Taskset[ConsensusTask, ConsensusConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[ConsensusTask]:
        own = self.config.task
        settings = {"dataset_path": str(self.config.dataset), **own.consensuspr}
        config = own.model_copy(update={"consensuspr": settings})
        for problem in read_problems(self.config.dataset):
            data = vf.TaskData(
                id=problem.problem_id, prompt=problem.problem, system_prompt=SYSTEM_PROMPT
            )
            yield ConsensusTask(data, config)


@functools.cache
def _reward(settings: str) -> TraceReward:
    return consensus_reward(**json.loads(settings))
