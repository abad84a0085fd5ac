"""One sample of verl as the reward manager gets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from consensuspr.client.training import TrainingRow
from consensuspr.errors import InputError

_TURNS, _FROM_LOOP = "__num_turns__", "tool_extra_fields"
_COLUMNS = (
    *("data_source", "reward_model", "extra_info", "raw_prompt"),
    *("response_len", "global_steps", "uid", "session_id", _TURNS, _FROM_LOOP),
)

# Field of an agent loop: 1 for each token that the policy wrote.
MASK = "response_mask"

# Field by which an agent loop asks for the reward of each token, and gets it.
BY_TOKEN = "consensuspr_by_token"

# Messages of a rollout of one turn: the user's and the policy's.
ONE_TURN = 2


class MissingMask(InputError):
    """A response of several turns came without the mask of the policy's tokens."""


class VerlSample(NamedTuple):
    """One sample as the reward manager gets it.

    Attributes:
        row: that it answers.
        response_ids: token ids without padding, an array.
        mask: 1 for each token that the policy wrote.
        step: training step from 1, 0 before training; None if the trainer does not pass it.
        group: of the samples whose rewards are compared (``uid``), if known.
        rollout_id: as the keys of verl's dumps begin, if known.
        by_token: whether the reward is to be placed on tokens.
    """

    row: TrainingRow
    response_ids: NDArray[Any]
    mask: NDArray[Any]
    step: int | None = None
    group: str | None = None
    rollout_id: str | None = None
    by_token: bool = False

    @classmethod
    def of(cls, data: Any) -> Self:
        """Read the last sequence of a ``DataProto``.

        Raises:
            MissingMask: it has several turns and no mask.
            InputError: a field has a wrong type.
        """
        # Cutting the last sequence out of all fields takes longer than everything else.
        tensors, columns = data.batch, data.non_tensor_batch
        fields = {name: columns[name][-1] for name in _COLUMNS if name in columns}
        response = tensors["responses"].numpy(force=True)[-1]
        length = fields.get("response_len")
        if length is None:
            # The mask covers prompt and response, the response being its right end.
            length = tensors["attention_mask"].numpy(force=True)[-1, -len(response) :].sum()
        ids = response[: int(length)]
        step, group, session = (fields.get(name) for name in ("global_steps", "uid", "session_id"))
        from_loop = fields.get(_FROM_LOOP) or {}
        return cls(
            row_of(fields),
            ids,
            _mask(from_loop, tensors, len(ids), fields.get(_TURNS)),
            None if step is None else int(step),
            None if group is None else str(group),
            None if group is None or session is None else f"{group}_{session}",
            BY_TOKEN in from_loop,
        )

    def turns(self) -> list[tuple[int, int]]:
        """Return the half-open spans of tokens that the policy wrote."""
        edges = np.flatnonzero(np.diff(self.mask.astype(bool), prepend=False, append=False))
        return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _mask(from_loop: Any, tensors: Any, length: int, turns: Any) -> NDArray[Any]:
    mask: NDArray[Any]
    if from_loop.get(MASK) is not None:
        mask = np.asarray(from_loop[MASK])
    elif MASK in tensors.keys():  # noqa: SIM118  # a TensorDict has no `in`
        mask = tensors[MASK].numpy(force=True)[-1][:length]
    elif turns is not None and turns > ONE_TURN:
        raise MissingMask(
            f"a response of {turns} messages came without its {MASK}, so that a tool's text would"
            " be scored as the policy's; with verl 0.9 or newer set"
            " actor_rollout_ref.rollout.agent.agent_loop_manager_class="
            "consensuspr.client.verl.agent_loop.MaskingAgentLoopManager, with an older one have the"
            f' agent loop put it into extra_fields["{MASK}"] of its output'
        )
    else:
        mask = np.ones(length, dtype=np.uint8)
    if mask.shape != (length,):
        raise InputError(f"{MASK} must have {length} entries, one a token, got {mask.shape}")
    return mask


def row_of(fields: Mapping[str, Any], prompt_column: str = "raw_prompt") -> TrainingRow:
    """Return the row of a dataset from its columns in verl.

    Raises:
        InputError: a field has a type that cannot be scored.
    """
    prompt = fields.get(prompt_column)
    columns = {name: fields.get(name) for name in ("data_source", "reward_model", "extra_info")}
    return TrainingRow.of(
        columns, prompt if prompt is None or isinstance(prompt, str) else list(prompt)
    )
