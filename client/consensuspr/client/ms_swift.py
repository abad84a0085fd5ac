"""The reward service in ms-swift: a plugin for ``--external_plugins``.

::

    # plugin.py
    from swift.rewards import orms
    from consensuspr.client.ms_swift import consensus_orm

    orms["consensus"] = consensus_orm(address="127.0.0.1:50051", reward="linear", alpha=0.5)

and ``--external_plugins plugin.py --reward_funcs consensus``.  Columns of the dataset are those of
TRL's rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from swift.rewards import AsyncORM

from consensuspr.client.training import (
    SampleScorer,
    ScoredSample,
    batch_rows,
    on_own_loop,
    progress_of,
    together,
)
from consensuspr.errors import InputError
from consensuspr.scoring.responses import said_by_policy


def consensus_orm(
    *, ground_truth_column: str = "ground_truth", name: str = "Consensus", **settings: Any
) -> type[AsyncORM]:
    """Return a class for ms-swift's registry ``orms``.

    Args:
        ground_truth_column: column of the dataset with the ground truth of each row; by default
            it may be absent.
        name: of the reward in ms-swift's log.
        settings: of the reward (docs/reference/settings.md).

    Raises:
        InputError: a setting is unknown or wrong.
    """
    samples = SampleScorer.of(
        settings, "consensus_orm", "this trainer passes no trainer_state to reward functions"
    )

    class Consensus(AsyncORM):  # type: ignore[misc]  # ms-swift has no types
        async def __call__(
            self, completions: Sequence[str], trainer_state: Any = None, **columns: Any
        ) -> list[float]:
            ids = columns["response_token_ids"]
            chats = list(map(_split_conversation, columns["messages"], ids))
            step, epoch = progress_of(trainer_state)
            rows = batch_rows([prompt for prompt, _ in chats], columns, ground_truth_column)
            work = together(
                samples.score(row, said_by_policy(response), count, step=step, epoch=epoch)
                for row, (_, response), count in zip(
                    rows, chats, map(_num_tokens, ids), strict=True
                )
            )
            # ms-swift makes a loop for each batch, and a source belongs to a loop that stays.
            scored: list[ScoredSample] = await asyncio.wrap_future(on_own_loop(work))
            return [sample.reward for sample in scored]

    Consensus.__name__ = Consensus.__qualname__ = name
    return Consensus


def _has_turns(ids: Sequence[Any]) -> bool:
    """Return whether token ids are lists of turns, not the ids of a single turn."""
    return isinstance(ids[0], Sequence)


def _num_tokens(ids: Sequence[Any] | None) -> int | None:
    """Return the number of tokens of the policy; None if unknown."""
    if not ids:
        return None
    return sum(map(len, ids)) if _has_turns(ids) else len(ids)


def _split_conversation(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[Any] | None
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split a conversation before the policy's first message.

    Args:
        messages: of prompt and rollout.
        turns: token ids of each turn of the policy; without them, the last turn is the policy's.
    """
    places = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    if not places:
        raise InputError("the policy has no message in the conversation that ms-swift passes")
    count = len(turns) if turns and _has_turns(turns) else 1
    first = places[-min(count, len(places))]
    return list(messages[:first]), list(messages[first:])
