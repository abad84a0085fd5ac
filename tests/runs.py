"""Small training runs: the responses of a policy to its problems, in a score log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consensuspr.client.training import RewardSettings, RewardSource, ScoredSample
from consensuspr.score_log import LoggedPart, ScoreLog
from consensuspr.scoring import Rollout
from consensuspr.scoring.types import Sample, Score, ScoreOptions, Status
from tests.score_logs import IDENTITY, KEYS

WORDS = ("First", "So", "Then", "Well", "Now", "Thus", "Here", "Next")


def question(number: int, **changes: Any) -> dict[str, Any]:
    """Return a problem without nodes: eggs that are left, and what they are sold for."""
    return {
        "problem_id": f"p{number}",
        "data_source": "toy",
        "problem": f"Ducks lay {number + 40} eggs. 17 are eaten. Each other one is sold for 3.",
        "ground_truth": str(3 * (number + 23)),
        "split": "train",
        **changes,
    }


def right(number: int, at: int) -> str:
    """Return a right response; there are eight of each problem."""
    left = number + 23
    return (
        f"{WORDS[at]} {number + 40}-17={left} eggs are left, and {left}*3={3 * left} is"
        f" what they bring. #### {3 * left}"
    )


def wrong(number: int, at: int) -> str:
    """Return a wrong one."""
    return f"{WORDS[at]} {number + 40}+17={number + 57}. #### {number + 57}"


@dataclass(frozen=True)
class Group:
    """The responses of a policy to a problem in a step.

    Attributes:
        rights: how many of eight responses are right, the first ones.
        before: stands before every response.
    """

    number: int
    step: int
    rights: int = 3
    split: str = "train"
    status: Status = Status.NO_NODES
    before: str = ""

    def samples(self) -> Iterator[tuple[Rollout, Score]]:
        """Yield responses with their scores."""
        for at in range(8):
            is_right = at < self.rights
            text = (right if is_right else wrong)(self.number, (at + 3 * self.step) % 8)
            rollout = Rollout(
                f"p{self.number}",
                self.before + text,
                str(3 * (self.number + 23)),
                data_source="toy",
                rollout_id=f"{self.step}-{self.number}-{at}",
                sample=Sample(KEYS.next(), self.step, f"{self.step}-{self.number}", self.split),
            )
            acc = None if self.status is Status.UNKNOWN_PROBLEM else float(is_right)
            yield rollout, Score(self.status, acc=acc)


class Log:
    """The score log of a run, to which groups can be added."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def add(self, *groups: Group, text_bytes: int = 1 << 20) -> None:
        """Write some groups, as one more process."""
        scores = ScoreLog(self.run, "trainer", text_bytes=text_bytes)
        options = ScoreOptions(run="toy")
        for group in groups:
            rollouts, scored = zip(*group.samples(), strict=True)
            scores.put(LoggedPart(rollouts, scored, IDENTITY, options, time.time()))
        scores.close()


def rewards(address: str, folder: Path, epoch: int, *rollouts: Rollout) -> list[ScoredSample]:
    """Return what samples of an epoch get from a reward worker that has just started."""

    async def main() -> list[ScoredSample]:
        settings = RewardSettings(address=address, grown_nodes=folder)
        source = RewardSource(settings)
        try:
            return await asyncio.gather(*[source.score(one, epoch) for one in rollouts])
        finally:
            await source.close()

    return asyncio.run(main())
