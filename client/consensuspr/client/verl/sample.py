"""Reading one sample of verl: which problem, which text, how many tokens.

Only named fields are taken: a row's ``extra_info`` also picks up objects of the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from consensuspr.client.training import ProblemIds, ground_truth_text, inline_nodes
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout

# What is read of a sample, besides its tensors.
_COLUMNS = "response_len global_steps data_source reward_model extra_info raw_prompt".split()


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as the reward manager gets it.

    Attributes:
        response_ids: the response's token ids, without padding.
        step: training step from 1, 0 before training; None where the trainer does not tell.
        data_source: of its row.
        ground_truth: of its row; None where there is none.
        extra_info: of its row.
        prompt: chat messages or text; None where the trainer does not tell.
    """

    response_ids: Any
    step: int | None
    data_source: str | None
    ground_truth: str | None
    extra_info: Mapping[str, Any]
    prompt: Any

    @classmethod
    def of(cls, data: Any) -> Self:
        """Read the last sequence of a ``DataProto``.

        Raises:
            InputError: a field has a type that cannot be scored.
        """
        # Field by field: to cut the last sequence out of all of them takes longer than the rest.
        tensors, columns = data.batch, data.non_tensor_batch
        fields = {name: columns[name][-1] for name in _COLUMNS if name in columns}
        responses = tensors["responses"][-1]
        length = fields.get("response_len")
        if length is None:
            # The mask covers prompt and response, the response being its right end.
            length = tensors["attention_mask"][-1][-responses.shape[-1] :].sum()
        step = fields.get("global_steps")
        return cls(
            response_ids=responses[: int(length)],
            step=None if step is None else int(step),
            data_source=_text("data_source", fields.get("data_source")),
            ground_truth=_ground_truth(fields.get("reward_model")),
            extra_info=_mapping("extra_info", fields.get("extra_info")),
            prompt=_prompt(fields.get("raw_prompt")),
        )

    @property
    def split(self) -> str | None:
        """Split of the row, None where it does not say."""
        split = self.extra_info.get("split")
        return split if isinstance(split, str) else None

    @property
    def num_tokens(self) -> int:
        """Tokens of the response."""
        return len(self.response_ids)

    def rollout(self, response: str, ids: ProblemIds) -> Rollout:
        """Return what is sent to the scorer.

        Raises:
            InputError: the row names no problem, or its nodes have another shape.
        """
        return Rollout(
            problem_id=ids.of(self.data_source, self.extra_info, self.prompt),
            response=response,
            ground_truth=self.ground_truth,
            num_tokens=self.num_tokens,
            nodes=inline_nodes(self.extra_info.get("nodes")),
            data_source=self.data_source,
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


def _prompt(raw: Any) -> str | Sequence[Mapping[str, Any]] | None:
    if raw is None or isinstance(raw, str):
        return raw
    return list(raw)
