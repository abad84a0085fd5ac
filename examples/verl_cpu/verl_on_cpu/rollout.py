"""verl's rollout `hf`: a Ray actor that generates, and the two ends that verl talks to.

- `HFReplica` starts the actor and is what verl's driver commands: sleep, wake up, abort.
- `HFServerAdapter` lives in the training worker and hands over its weights after each step.

The weights travel through Ray's object store, which is right for a model of megabytes.
Deliberately not covered: several nodes, sharded models, generation that goes on while weights
change (`trainer.v1.trainer_mode=sync` never asks for it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from .generation import Generator, Sampling


def server_name(replica_rank: int) -> str:
    """Return the name by which the training worker finds the server of its replica."""
    return f"hf_server_{replica_rank}"


class HFServer:
    """The Ray actor that holds the model for sampling; async, so that requests queue up in it."""

    def __init__(self, path: str, prompt_length: int, response_length: int, **kwargs: Any) -> None:
        self._generator = Generator(path, **kwargs)
        self._limit = prompt_length + response_length
        self._response_length = response_length
        self._global_steps: int | None = None

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """Answer one prompt; the keyword arguments are those of verl's client."""
        room = min(self._response_length, self._limit - len(prompt_ids))
        sampling = Sampling.parse(sampling_params, max_tokens=room)
        response = await self._generator.respond(list(prompt_ids), sampling)
        return TokenOutput(
            token_ids=response,
            stop_reason="completed",
            extra_fields={"global_steps": self._global_steps},
        )

    async def load(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Take the weights of step `global_steps`; the trainer sends them between two rollouts."""
        self._generator.load(weights)
        self._global_steps = global_steps

    async def ready(self) -> None:
        """Return once the model is loaded."""


class HFReplica(RolloutReplica):  # type: ignore[misc]
    """One server with the whole model."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        server = (
            ray.remote(HFServer)
            .options(name=server_name(self.replica_rank), max_concurrency=self.max_concurrency)
            .remote(
                path=self.model_config.path,
                prompt_length=self.config.prompt_length,
                response_length=self.config.response_length,
                seed=self.config.seed + self.replica_rank,
                batch_size=self.config.max_num_seqs,
            )
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)

    async def sleep(self) -> None:
        """Do nothing: there is no device memory to give back."""

    async def wake_up(self) -> None:
        """Do nothing: see `sleep`."""

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Do nothing: in synchronous training no request is under way when weights change."""

    async def resume_generation(self) -> None:
        """Do nothing: see `abort_all_requests`."""

    async def clear_kv_cache(self) -> None:
        """Do nothing: no cache outlives a batch."""

    async def release_kv_cache(self) -> None:
        """Do nothing: no cache outlives a batch."""

    async def resume_kv_cache(self) -> None:
        """Do nothing: no cache outlives a batch."""


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
