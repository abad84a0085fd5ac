"""One sample of verl as the reward manager gets it: which problem, which text, how many tokens.

Only named fields are taken: a row's ``extra_info`` also picks up objects of the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from consensuspr.client.training import TrainingRow, ground_truth_text
from consensuspr.client.training.rows import Prompt
from consensuspr.errors import InputError

# What is read of a sample, besides its tensors.
_COLUMNS = "response_len global_steps data_source reward_model extra_info raw_prompt uid".split()


class VerlSample(NamedTuple):
    """One sample as the reward manager gets it.

    Attributes:
        row: what it answers.
        response_ids: the response's token ids, an array without padding.
        step: training step from 1, 0 before training; None where the trainer does not tell.
        group: of the samples whose rewards are compared (``uid``); None likewise.
    """

    row: TrainingRow
    response_ids: Any
    step: int | None
    group: str | None

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
        step = fields.get("global_steps")
        group = fields.get("uid")
        return cls(
            row_of(fields),
            response[: int(length)],
            None if step is None else int(step),
            None if group is None else str(group),
        )


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
