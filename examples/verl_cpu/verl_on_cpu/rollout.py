"""verl's rollout `hf`: a Ray actor that generates, and the two ends that verl talks to.

- `HFServer` is the actor with the model, which calls Hugging Face's `generate`;
- `HFReplica` starts the actor and takes the commands of verl's driver: sleep, wake up, abort;
- `HFServerAdapter` lives in the training worker and sends its weights after each step.

Requests reach a server one by one, and `generate` is worth its overhead only on a batch, so
requests that wait together are answered together.  The weights travel through Ray's object store,
which suits a model of megabytes.  Not covered: log-probabilities of the sampled tokens (verl
recomputes them: `calculate_log_probs=False`), repetition penalties, images, several nodes, sharded
models, and generation while weights change (`trainer.v1.trainer_mode=sync` never needs it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import ray
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

# Seconds without a new request after which a batch is closed.
QUIET_S = 0.05


def server_name(replica_rank: int) -> str:
    """Return the actor's name, by which the training worker finds the server of its replica."""
    return f"hf_server_{replica_rank}"


class Sampling(NamedTuple):
    """Arguments that the requests of one call of `generate` share."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int

    @classmethod
    def parse(cls, params: Mapping[str, Any], max_tokens: int) -> Sampling:
        """Read verl's sampling parameters.

        Raises:
            ValueError: they name something that this rollout does not do.
        """
        if params.get("logprobs"):
            raise ValueError(
                "the hf rollout returns no log-probabilities: "
                "set actor_rollout_ref.rollout.calculate_log_probs=False"
            )
        penalty = params.get("repetition_penalty", 1.0)
        if penalty != 1.0:
            raise ValueError(f"the hf rollout has no repetition penalty, got {penalty}")
        limit = int(params.get("max_tokens", params.get("max_new_tokens", max_tokens)))
        return cls(
            float(params.get("temperature", 1.0)),
            float(params.get("top_p", 1.0)),
            max(0, int(params.get("top_k", 0))),
            max(1, min(limit, max_tokens)),
        )


class Request(NamedTuple):
    """One prompt that waits for its response."""

    sampling: Sampling
    prompt_ids: list[int]
    response_ids: asyncio.Future[list[int]]


class HFServer:
    """The Ray actor that holds the model for sampling; async, so that requests queue up in it.

    Args:
        path: folder with model and tokenizer, as `save_pretrained` leaves it.
        prompt_length, response_length: most tokens of each.
        seed: of the first batch; a batch of a run draws the same numbers in every run.
        batch_size: most prompts in one call of `generate`.
    """

    def __init__(
        self, path: str, prompt_length: int, response_length: int, seed: int, batch_size: int
    ) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(path)
        self._pad, self._end = tokenizer.pad_token_id, tokenizer.eos_token_id
        self._limit, self._response_length = prompt_length + response_length, response_length
        self._seed, self._batch_size = seed, batch_size
        self._global_steps: int | None = None
        self._queue: asyncio.Queue[Request] = asyncio.Queue()
        self._loop: asyncio.Task[None] | None = None

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """Answer one prompt; the keyword arguments are those of verl's client."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._serve())
        room = min(self._response_length, self._limit - len(prompt_ids))
        future = asyncio.get_running_loop().create_future()
        request = Request(Sampling.parse(sampling_params, room), list(prompt_ids), future)
        await self._queue.put(request)
        return TokenOutput(
            token_ids=await request.response_ids,
            stop_reason="completed",
            extra_fields={"global_steps": self._global_steps},
        )

    async def load(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Take the weights of step `global_steps`; the trainer sends them between two rollouts."""
        self._model.load_state_dict(weights, strict=True)
        self._global_steps = global_steps

    async def ready(self) -> None:
        """Return once the model is loaded."""

    async def _serve(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self._batch_size:
                try:
                    batch.append(await asyncio.wait_for(self._queue.get(), QUIET_S))
                except TimeoutError:
                    break
            # Requests arrive in any order; sorted, a batch of the same prompts draws the same.
            batch.sort(key=lambda request: request[:2])
            for sampling, group in groupby(batch, key=lambda request: request.sampling):
                requests = list(group)
                prompts = [request.prompt_ids for request in requests]
                try:
                    responses = await asyncio.to_thread(self._generate, prompts, sampling)
                except Exception as error:  # the boundary: every request of the batch fails
                    for request in requests:
                        request.response_ids.set_exception(error)
                else:
                    for request, response in zip(requests, responses, strict=True):
                        request.response_ids.set_result(response)

    def _generate(self, prompts: list[list[int]], sampling: Sampling) -> list[list[int]]:
        torch.manual_seed(self._seed)
        self._seed += 1
        width = max(map(len, prompts))
        padded = [[self._pad] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        config = GenerationConfig(
            max_new_tokens=sampling.max_tokens,
            pad_token_id=self._pad,
            eos_token_id=self._end,
            do_sample=False,
        )
        if sampling.temperature:
            temperature, top_p, top_k, _ = sampling
            config.update(do_sample=True, temperature=temperature, top_p=top_p, top_k=top_k)
        output = self._model.generate(
            input_ids=torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            generation_config=config,
        )
        rows = output[:, width:].tolist()
        return [row[: row.index(self._end) + 1] if self._end in row else row for row in rows]


class HFReplica(RolloutReplica):  # type: ignore[misc]
    """One server with the whole model."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        name = server_name(self.replica_rank)
        actor = ray.remote(HFServer).options(name=name, max_concurrency=self.max_concurrency)
        server = actor.remote(
            path=self.model_config.path,
            prompt_length=self.config.prompt_length,
            response_length=self.config.response_length,
            seed=self.config.seed + self.replica_rank,
            batch_size=self.config.max_num_seqs,
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = name

    async def _nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: no device memory, no cache, and no request while weights change."""

    sleep = wake_up = abort_all_requests = resume_generation = _nothing
    clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing


class HFServerAdapter(BaseRollout):  # type: ignore[misc]
    """The training worker's end: it sends weights."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = 0
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = replica_rank
        self.is_leader_rank = True

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: nothing was released."""

    async def release(self) -> None:
        """Do nothing: there is no device memory to give back."""

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **_: Any,
    ) -> None:
        """Send every weight to the server and wait until it samples with them."""
        if wire_format != "named_tensors":
            raise ValueError(f"the hf rollout takes named tensors, not {wire_format!r}")
        state = {name: tensor.detach().cpu() for name, tensor in weights}
        server = ray.get_actor(server_name(self.replica_rank))
        await server.load.remote(state, global_steps)
