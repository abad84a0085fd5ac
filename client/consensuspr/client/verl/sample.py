"""One sample of verl as the reward manager gets it: which problem, which text, how many tokens.

Only named fields are taken: a row's ``extra_info`` also picks up objects of the trainer.
Responses are decoded beside the event loop, those that wait together in few tasks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from consensuspr.client.training import TrainingRow, ground_truth_text
from consensuspr.client.training.rows import Prompt
from consensuspr.errors import InputError

# What is read of a sample, besides its tensors.
_COLUMNS = "response_len global_steps data_source reward_model extra_info raw_prompt".split()

# Responses decoded in one task; more would make those that are decoded first wait for the last.
_MOST = 32


@dataclass(frozen=True, slots=True)
class VerlSample:
    """One sample as the reward manager gets it.

    Attributes:
        row: what it answers.
        response_ids: the response's token ids, without padding.
        step: training step from 1, 0 before training; None where the trainer does not tell.
    """

    row: TrainingRow
    response_ids: Any
    step: int | None

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
        row = TrainingRow(
            _text("data_source", fields.get("data_source")),
            _ground_truth(fields.get("reward_model")),
            _mapping("extra_info", fields.get("extra_info")),
            _prompt(fields.get("raw_prompt")),
        )
        return cls(row, responses[: int(length)], None if step is None else int(step))


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


class Decoder:
    """Decodes in the event loop's threads.  Belongs to the loop in which it is called.

    Args:
        decode: text of a response's token ids; is called in threads.
    """

    def __init__(self, decode: Callable[[Any], str]) -> None:
        self._decode = decode
        self._waiting: list[tuple[Any, asyncio.Future[str]]] = []

    async def text(self, ids: Any) -> str:
        """Return the text of a response; what ``decode`` raises, for this response alone."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._waiting.append((ids, future))
        if len(self._waiting) == 1:
            # At the end of this turn of the loop: samples that come in it too are decoded along.
            loop.call_soon(self._flush, loop)
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        # A decoder that lets others run is to find work for every core.
        size = max(1, min(_MOST, len(waiting) // (os.cpu_count() or 1)))
        for start in range(0, len(waiting), size):
            task = waiting[start : start + size]
            done = loop.run_in_executor(None, self._decode_all, [ids for ids, _ in task])
            done.add_done_callback(partial(_hand_out, [future for _, future in task]))

    def _decode_all(self, responses: list[Any]) -> list[str | BaseException]:
        texts: list[str | BaseException] = []
        for ids in responses:
            try:
                texts.append(self._decode(ids))
            except Exception as error:
                texts.append(error)
        return texts


def _hand_out(
    futures: list[asyncio.Future[str]], done: asyncio.Future[list[str | BaseException]]
) -> None:
    error = done.exception() if not done.cancelled() else asyncio.CancelledError()
    texts = [error] * len(futures) if error is not None else done.result()
    for future, text in zip(futures, texts, strict=True):
        if future.done():
            continue  # its sample is no longer wanted
        if isinstance(text, BaseException):
            future.set_exception(text)
        else:
            future.set_result(text)
