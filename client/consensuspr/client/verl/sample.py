"""DAPO's soft overlong punishment, as verl's own DAPO manager computes it.

With a buffer of ``len`` tokens before the longest response ``max_resp_len``: nothing up to
the buffer, then linearly down to ``-penalty_factor`` at ``max_resp_len`` (and on, where a
response is longer).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeGuard

from consensuspr.client.training import (
    EpochClock,
    ProblemIds,
    RewardSettings,
    ground_truth_text,
    inline_nodes,
)
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout

_KEYS = ("enable", "len", "penalty_factor", "log")


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """The penalty of long responses; see the module.

    Attributes:
        free_tokens: response length without penalty, ``max_resp_len - len``.
        buffer_tokens: over how many tokens it grows by one ``factor``.
        factor: penalty at ``max_resp_len``.
    """

    free_tokens: int
    buffer_tokens: int
    factor: float

    @classmethod
    def of(cls, max_resp_len: object, buffer: Mapping[str, Any] | None) -> Self | None:
        """Read verl's ``max_resp_len`` and ``overlong_buffer_cfg``; None: no penalty.

        Raises:
            InputError: a key is unknown, missing or out of range.
        """
        if buffer is None:
            return None
        unknown = [key for key in buffer if key not in _KEYS]
        if unknown:
            raise InputError(
                f"unknown setting {unknown[0]!r} in overlong_buffer_cfg; known: {', '.join(_KEYS)}"
            )
        if not buffer.get("enable", False):
            return None
        length, factor = buffer.get("len"), buffer.get("penalty_factor", 1.0)
        if not _is_count(length):
            raise InputError(
                f"overlong_buffer_cfg.len must be a number of tokens of 1 or more, got {length!r}"
            )
        if not _is_count(max_resp_len) or max_resp_len < length:
            raise InputError(
                f"max_resp_len must be a number of tokens of at least overlong_buffer_cfg.len"
                f" ({length}), got {max_resp_len!r}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 0:
            raise InputError(
                f"overlong_buffer_cfg.penalty_factor must be a number of 0 or more, got {factor!r}"
            )
        return cls(max_resp_len - length, length, float(factor))

    def __call__(self, num_tokens: int) -> float:
        """Return the penalty of a response, 0 or less."""
        exceeding = num_tokens - self.free_tokens
        return min(-exceeding / self.buffer_tokens * self.factor, 0.0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


# MERGED Reading verl's configuration: the reward's settings, and how many steps an epoch has.

SOURCE = "reward.reward_kwargs"

# verl's own keys in the same place.
_OVERLONG = ("max_resp_len", "overlong_buffer_cfg")


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """What a reward manager needs of verl's configuration.

    Attributes:
        settings: of the reward.
        overlong: the penalty of long responses; None: none.
    """

    settings: RewardSettings
    overlong: OverlongPenalty | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Read the whole configuration of a verl run.

        Args:
            config: plain values or omegaconf's containers.

        Raises:
            InputError: a setting is unknown or wrong.
        """
        given = _plain(_select(config, "reward", "reward_kwargs"))
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise InputError(f"{SOURCE} must hold settings by name, got {given!r}")
        overlong = OverlongPenalty.of(*(given.get(key) for key in _OVERLONG))
        settings = {key: value for key, value in given.items() if key not in _OVERLONG}
        return cls(RewardSettings.of(settings, SOURCE), overlong)


def epoch_clock(config: Mapping[str, Any], settings: RewardSettings, version: str) -> EpochClock:
    """Return the clock of a verl run.

    verl says the step with each sample, and the number of steps only where it has planned
    whole epochs: ``total_training_steps`` of the optimiser, which counts an update for each
    mini-batch between two weight syncs of the asynchronous trainers.

    Args:
        config: of the run, as reward workers get it: the trainer has filled it in.
        settings: of the reward.
        version: of verl.

    Raises:
        InputError: the reward is a curriculum whose epoch cannot be known.
    """
    needed = settings.reward == "curriculum" and settings.epoch is None
    if needed and _without_steps(config, version):
        raise InputError(
            f"reward=curriculum needs the training step, and this trainer of verl {version} does"
            " not tell the reward its step; use verl 0.9.1 or newer with trainer.use_v1=True, or"
            " run one stage after the other with a fixed epoch"
        )
    return EpochClock(settings, *_steps_per_epoch(config))


def _steps_per_epoch(config: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the steps in an epoch, or None and the reason."""
    if _select(config, "trainer", "total_training_steps") is not None:
        return None, "trainer.total_training_steps is set, so that epochs may be cut short"
    epochs = _select(config, "trainer", "total_epochs")
    updates = _select(config, "actor_rollout_ref", "actor", "optim", "total_training_steps")
    if not isinstance(epochs, int) or epochs < 1:
        return None, f"trainer.total_epochs is {epochs!r}"
    mode = _select(config, "trainer", "v1", "trainer_mode")
    updates_per_step = _select(config, "trainer", "v1", str(mode), "parameter_sync_step") or 1
    if not isinstance(updates, int) or updates < epochs * updates_per_step:
        return None, f"actor.optim.total_training_steps is {updates!r}"
    return updates // updates_per_step // epochs, ""


def _without_steps(config: Mapping[str, Any], version: str) -> bool:
    """Tell whether samples of this trainer come without their step."""
    if version.startswith("0.7."):
        return True
    return _select(config, "trainer", "use_v1") is False


def _select(config: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(config, Mapping) and not hasattr(config, "get"):
            return None
        config = config.get(key)
        if config is None:
            return None
    return config


def _plain(value: Any) -> Any:
    """Return omegaconf's containers as dicts and lists."""
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]


# MERGED Reading one sample of verl: which problem, which text, how many tokens.
#
# Only named fields are taken: a row's ``extra_info`` also picks up objects of the trainer.

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


# MERGED Decoding responses beside the event loop, those that wait together in few tasks.

# In one task.  More would make those that are decoded first wait for the last.
_MOST = 32

_Waiting = tuple[Any, asyncio.Future[str]]


class Decoder:
    """Decodes in the event loop's threads.  Belongs to the loop in which it is called.

    Args:
        decode: text of a response's token ids; is called in threads.
    """

    def __init__(self, decode: Callable[[Any], str]) -> None:
        self._decode = decode
        self._waiting: list[_Waiting] = []

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
