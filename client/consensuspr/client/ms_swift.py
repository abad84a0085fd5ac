"""The reward service in ms-swift: a plugin for ``--external_plugins``.

::

    # plugin.py
    from swift.rewards import orms
    from consensuspr.client.ms_swift import consensus_orm

    orms["consensus"] = consensus_orm(address="127.0.0.1:50051", reward="linear", alpha=0.5)

and ``--external_plugins plugin.py --reward_funcs consensus``.  Columns of the dataset are those of
TRL's rows (:mod:`consensuspr.client.trl`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from swift.rewards import AsyncORM

from consensuspr.client.training import (
    RewardSettings,
    SampleScorer,
    ScoredSample,
    on_own_loop,
    together,
)
from consensuspr.client.trl import progress, rows_of
from consensuspr.errors import InputError
from consensuspr.scoring.responses import said_by_policy


def consensus_orm(
    *, ground_truth_column: str = "ground_truth", name: str = "Consensus", **settings: Any
) -> type[AsyncORM]:
    """Return a class for ms-swift's registry ``orms``.

    Args:
        ground_truth_column: column of the dataset with the ground truth of each row; by default
            it may be absent, and the server's dataset knows it.
        name: what ms-swift's log calls the reward.
        settings: of the reward, as everywhere (docs/train.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    samples = SampleScorer(
        RewardSettings.of(settings, "consensus_orm"),
        missing="this trainer passes no trainer_state to reward functions",
    )

    class Consensus(AsyncORM):  # type: ignore[misc]  # ms-swift has no types
        async def __call__(
            self, completions: Sequence[str], trainer_state: Any = None, **columns: Any
        ) -> list[float]:
            chats = [
                _parted(chat, turns)
                for chat, turns in zip(
                    columns["messages"], columns["response_token_ids"], strict=True
                )
            ]
            step, epoch = progress(trainer_state)
            rows = rows_of([prompt for prompt, _ in chats], columns, ground_truth_column)
            work = together(
                samples.score(row, said_by_policy(said), tokens or None, step=step, epoch=epoch)
                for row, (_, said), tokens in zip(
                    rows,
                    chats,
                    map(_num_tokens, columns["response_token_ids"]),
                    strict=True,
                )
            )
            # ms-swift makes a loop for each batch, and a source belongs to a loop that stays.
            scored: list[ScoredSample] = await asyncio.wrap_future(on_own_loop(work))
            return [one.reward for one in scored]

    Consensus.__name__ = Consensus.__qualname__ = name
    return Consensus


def _has_turns(ids: Sequence[Any]) -> bool:
    """Say whether token ids are lists of turns: rows of a single turn have its ids themselves."""
    return isinstance(ids[0], Sequence)


def _num_tokens(ids: Sequence[Any] | None) -> int:
    """Return how many tokens the policy wrote; 0 where that is not known."""
    if not ids:
        return 0
    return sum(map(len, ids)) if _has_turns(ids) else len(ids)


def _parted(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[Any] | None
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Part a conversation where the policy begins to speak.

    Args:
        messages: of prompt and rollout.
        turns: token ids of each turn of the policy; where there are none, it had the last.
    """
    said = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    if not said:
        raise InputError("the policy has no message in the conversation that ms-swift passes")
    count = len(turns) if turns and _has_turns(turns) else 1
    first = said[-min(count, len(said))]
    return list(messages[:first]), list(messages[first:])
