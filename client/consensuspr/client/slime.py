"""The reward service in slime: a reward function for ``--custom-rm-path``.

::

    python3 train.py --custom-rm-path consensuspr.client.slime.reward --reward-key reward \
        --custom-config-path consensuspr.yaml ...

with the settings in that file, under ``consensuspr``::

    consensuspr: {address: "127.0.0.1:50051", reward: linear, alpha: 0.5}

A sample's ``metadata`` names its problem (``problem_id``, or ``index`` with ``data_source``), else
the digest of its prompt does.  Its ``label`` is the ground truth, or a JSON object with it.  Of a
sample with a ``loss_mask`` only what the policy generated is scored.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from consensuspr.client.training import SampleScorer, TrainingRow, label_columns, together
from consensuspr.errors import InputError
from consensuspr.scoring.responses import without_special_tokens

# Group of settings that slime's custom configuration adds to its arguments.
SETTINGS = "consensuspr"


async def reward(args: Any, sample: Any, **_: Any) -> Any:
    """Return the reward of a sample, or of a list of them (``--group-rm``).

    With ``--reward-key`` it is an object of ``reward`` and the figures of the sample.  Errors are
    those of :meth:`SampleScorer.score`.
    """
    if isinstance(sample, Sequence):
        return await together(_reward_of(args, item) for item in sample)
    return await _reward_of(args, sample)


async def _reward_of(args: Any, sample: Any) -> Any:
    given = getattr(args, SETTINGS, None) or {}
    if not isinstance(given, Mapping):
        raise InputError(f"{SETTINGS} must be a mapping of settings, got {given!r:.80}")
    run = _run(json.dumps(dict(given), sort_keys=True, default=str), _steps_per_epoch(args))
    step = run.step_of(sample, args.rollout_batch_size)
    metadata = sample.metadata if isinstance(sample.metadata, Mapping) else {}
    row = TrainingRow.of({**metadata, **label_columns(sample.label)}, sample.prompt or None)
    length = sample.response_length if sample.loss_mask is None else sum(sample.loss_mask)
    scored = await run.samples.score(row, await _response(args, sample), length, step=step)
    if args.reward_key is None and getattr(args, "eval_reward_key", None) is None:
        return scored.reward
    return {"reward": scored.reward, **scored.fields()}


class _Run:
    """The scorer of a run, and the step of its last training sample."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.samples = SampleScorer.of(
            settings, SETTINGS, "slime passes no epoch without steps_per_epoch, or --num-epoch"
        )
        self._last = 0

    def step_of(self, sample: Any, batch: int) -> int:
        """Return the step, from 1, that a sample was planned for.

        Groups are numbered in the order of the data, ``--rollout-batch-size`` a planned step.
        Samples of an evaluation have no number; they get the last step.
        """
        if sample.group_index is not None:
            self._last = int(sample.group_index) // batch + 1
        return self._last


@functools.lru_cache(maxsize=16)
def _run(given: str, steps_per_epoch: int | None) -> _Run:
    """Return the run of these settings; slime passes them with every sample."""
    return _Run({"steps_per_epoch": steps_per_epoch, **json.loads(given)})


def _steps_per_epoch(args: Any) -> int | None:
    epochs, rollouts = (getattr(args, name, None) for name in ("num_epoch", "num_rollout"))
    return max(1, rollouts // epochs) if epochs and rollouts else None


async def _response(args: Any, sample: Any) -> str:
    """Return the text of the policy, one turn below the other."""
    mask = sample.loss_mask
    if mask is None or all(mask):
        return without_special_tokens(sample.response)
    if len(mask) > len(sample.tokens):
        raise InputError(
            f"loss_mask has {len(mask)} values, and the sample has {len(sample.tokens)} tokens"
        )
    ids = sample.tokens[-len(mask) :]
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_decoding(), _turns, args.hf_checkpoint, ids, mask)


def _turns(checkpoint: str, ids: Sequence[int], mask: Sequence[int]) -> str:
    tokenizer = _tokenizer(checkpoint)
    turns = (
        tokenizer.decode([token for _, token in run])
        for of_policy, run in groupby(zip(mask, ids, strict=True), key=lambda pair: bool(pair[0]))
        if of_policy
    )
    return "\n".join(map(without_special_tokens, turns))


@functools.cache
def _decoding() -> ThreadPoolExecutor:
    # One: a tokenizer is loaded once, and need not stand two threads at a time.
    return ThreadPoolExecutor(1, thread_name_prefix="consensuspr-decode")


@functools.lru_cache(maxsize=1)
def _tokenizer(checkpoint: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True)
