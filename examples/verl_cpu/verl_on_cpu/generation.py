"""Sampling from a causal language model, many prompts in one call of Hugging Face `generate`.

Requests reach a rollout server one by one, and `generate` is worth its overhead only on a batch:
so requests that wait together are answered together.  A batch is closed when it is full, or when
no request has come for a moment.

Deliberately not covered: log-probabilities of the sampled tokens (verl recomputes them with the
training engine: `calculate_log_probs=False`), repetition penalties, images.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


@dataclass(frozen=True, order=True)
class Sampling:
    """How to sample: the arguments that one call of `generate` shares."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int

    @classmethod
    def parse(cls, params: Mapping[str, Any], *, max_tokens: int) -> Sampling:
        """Read verl's sampling parameters.

        Raises:
            ValueError: They ask for something that this rollout does not do.
        """
        if params.get("logprobs"):
            raise ValueError(
                "the hf rollout returns no log-probabilities: "
                "set actor_rollout_ref.rollout.calculate_log_probs=False"
            )
        if params.get("repetition_penalty", 1.0) != 1.0:
            raise ValueError(
                f"the hf rollout has no repetition penalty, got {params['repetition_penalty']}"
            )
        limit = int(params.get("max_tokens", params.get("max_new_tokens", max_tokens)))
        return cls(
            temperature=float(params.get("temperature", 1.0)),
            top_p=float(params.get("top_p", 1.0)),
            top_k=max(0, int(params.get("top_k", 0))),
            max_tokens=max(1, min(limit, max_tokens)),
        )

    def generation_config(self, *, pad_token_id: int, eos_token_id: int) -> GenerationConfig:
        """Say the same in Hugging Face's words; temperature 0 is greedy decoding."""
        ends = {"pad_token_id": pad_token_id, "eos_token_id": eos_token_id}
        if self.temperature == 0:
            return GenerationConfig(do_sample=False, max_new_tokens=self.max_tokens, **ends)
        return GenerationConfig(
            do_sample=True,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_new_tokens=self.max_tokens,
            **ends,
        )


@dataclass(frozen=True)
class Request:
    """One prompt that waits for its response."""

    prompt_ids: list[int]
    sampling: Sampling
    response_ids: asyncio.Future[list[int]]


class Generator:
    """A model that answers requests in batches."""

    def __init__(self, path: str, *, seed: int, batch_size: int, quiet_s: float = 0.05) -> None:
        """Load the model of folder `path`.

        Args:
            path: A folder with model and tokenizer, as `save_pretrained` leaves it.
            seed: Where sampling starts; a batch of a run draws the same numbers in every run.
            batch_size: Most prompts in one call of `generate`.
            quiet_s: Seconds without a new request after which a batch is closed.
        """
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(path)
        self._ends = {
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
        }
        self._seed = seed
        self._batch_size = batch_size
        self._quiet_s = quiet_s
        self._batches = 0
        self._queue: asyncio.Queue[Request] = asyncio.Queue()
        self._loop: asyncio.Task[None] | None = None

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replace the model's weights; names and shapes are those of its own state."""
        self._model.load_state_dict(weights, strict=True)

    async def respond(self, prompt_ids: list[int], sampling: Sampling) -> list[int]:
        """Return the token ids of one response, the end-of-sequence token included."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._serve())
        request = Request(prompt_ids, sampling, asyncio.get_running_loop().create_future())
        await self._queue.put(request)
        return await request.response_ids

    async def _serve(self) -> None:
        while True:
            batch = await self._next_batch()
            # Requests come in the order in which they travelled; sorted, a batch that holds the
            # same prompts draws the same responses.
            batch.sort(key=lambda request: (request.sampling, request.prompt_ids))
            for sampling, group in groupby(batch, key=lambda request: request.sampling):
                requests = list(group)
                try:
                    prompts = [request.prompt_ids for request in requests]
                    responses = await asyncio.to_thread(self._generate, prompts, sampling)
                except Exception as error:  # the boundary: each request is told
                    for request in requests:
                        request.response_ids.set_exception(error)
                else:
                    for request, response in zip(requests, responses, strict=True):
                        request.response_ids.set_result(response)

    async def _next_batch(self) -> list[Request]:
        batch = [await self._queue.get()]
        while len(batch) < self._batch_size:
            try:
                batch.append(await asyncio.wait_for(self._queue.get(), self._quiet_s))
            except TimeoutError:
                break
        return batch

    def _generate(self, prompts: list[list[int]], sampling: Sampling) -> list[list[int]]:
        torch.manual_seed(self._seed + self._batches)
        self._batches += 1
        width = max(map(len, prompts))
        pad, end = self._ends["pad_token_id"], self._ends["eos_token_id"]
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        # `generate` itself records no gradients.
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=sampling.generation_config(**self._ends),
        )
        responses = output[:, width:].tolist()
        return [ids[: ids.index(end) + 1] if end in ids else ids for ids in responses]
