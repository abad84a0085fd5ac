"""One sample of verl as the reward manager gets it: which problem, which text, how many tokens.

Only named fields are taken: a row's ``extra_info`` also picks up objects of the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from consensuspr.client.training import TrainingRow, ground_truth_text
from consensuspr.client.training.rows import Prompt
from consensuspr.errors import InputError

# What is read of a sample, besides its tensors.
_TURNS, _FROM_LOOP = "__num_turns__", "tool_extra_fields"
_COLUMNS = (
    "response_len", "global_steps", "data_source", "reward_model", "extra_info", "raw_prompt",
    "uid", "session_id", _TURNS, _FROM_LOOP,
)  # fmt: skip

# Among the fields of an agent loop: 1 for each token of the response that the policy wrote.
MASK = "response_mask"

# With this among them an agent loop asks for the reward of each token, which is under the same
# name in what comes back.
BY_TOKEN = "consensuspr_by_token"


class VerlSample(NamedTuple):
    """One sample as the reward manager gets it.

    Attributes:
        row: what it answers.
        response_ids: the response's token ids, an array without padding.
        step: training step from 1, 0 before training; None where the trainer does not tell.
        mask: 1 for each token that the policy wrote; None where nobody tells.
        turns: messages of the conversation, user's and policy's; None where nobody tells.
        group: of the samples whose rewards are compared (``uid``); None where nobody tells.
        rollout_id: of the response, as the keys of verl's dumps begin; None where there is none.
        by_token: whether the reward is to be placed on tokens.
    """

    row: TrainingRow
    response_ids: Any
    step: int | None
    mask: Any = None
    turns: int | None = None
    group: str | None = None
    rollout_id: str | None = None
    by_token: bool = False

    @classmethod
    def of(cls, data: Any) -> Self:
        """Read the last sequence of a ``DataProto``.

        Raises:
            InputError: a field has a type that cannot be scored.
        """
        # Field by field: to cut the last sequence out of all of them takes longer than the rest.
        tensors, columns = data.batch, data.non_tensor_batch
        fields = {name: columns[name][-1] for name in _COLUMNS if name in columns}
        # Arrays share the tensors' memory, and cutting them takes a tenth of the time.
        response = tensors["responses"].numpy(force=True)[-1]
        length = fields.get("response_len")
        if length is None:
            # The mask covers prompt and response, the response being its right end.
            length = tensors["attention_mask"].numpy(force=True)[-1, -len(response) :].sum()
        step, turns = fields.get("global_steps"), fields.get(_TURNS)
        group, session = fields.get("uid"), fields.get("session_id")
        ids = response[: int(length)]
        return cls(
            row_of(fields),
            ids,
            None if step is None else int(step),
            _mask(fields.get(_FROM_LOOP), tensors, len(ids)),
            None if turns is None else int(turns),
            None if group is None else str(group),
            None if group is None or session is None else f"{group}_{session}",
            BY_TOKEN in (fields.get(_FROM_LOOP) or ()),
        )


def _mask(from_loop: Any, tensors: Any, length: int) -> Any:
    """Return the mask of a response as an array; None where nobody tells.

    Raises:
        InputError: it has another length than the response.
    """
    mask = from_loop.get(MASK) if isinstance(from_loop, Mapping) else None
    if mask is not None:
        mask = np.asarray(mask)
    elif MASK in tensors.keys():  # noqa: SIM118  # of a TensorDict, `in` is none
        # Padded like the response.
        mask = tensors[MASK].numpy(force=True)[-1][:length]
    if mask is not None and mask.shape != (length,):
        raise InputError(f"{MASK} must have {length} entries, one a token, got {mask.shape}")
    return mask


def row_of(fields: Mapping[str, Any]) -> TrainingRow:
    """Return the row of a dataset that verl was given, from its columns.

    Raises:
        InputError: a field has a type that cannot be scored.
    """
    return TrainingRow(
        _text("data_source", fields.get("data_source")),
        _ground_truth(fields.get("reward_model")),
        _mapping("extra_info", fields.get("extra_info")),
        _prompt(fields.get("raw_prompt")),
    )


def _ground_truth(reward_model: Any) -> str | None:
    if reward_model is None:
        return None
    truth = _mapping("reward_model", reward_model).get("ground_truth")
    return ground_truth_text(truth, "reward_model.ground_truth")


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InputError(f"{name} must be a text, got {value!r}")


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    # The type first: an abstract class is slower to ask for.
    if type(value) is dict or isinstance(value, Mapping):
        return value
    raise InputError(f"{name} must be a mapping, got {str(value)[:200]!r}")


def _prompt(raw: Any) -> Prompt | None:
    if raw is None or isinstance(raw, str):
        return raw
    return list(raw)
