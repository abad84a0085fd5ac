"""A CPU platform and a Hugging Face `generate` rollout for verl, as a plugin.

verl 0.9 ships platforms for accelerators and rollouts for vLLM, SGLang and TensorRT-LLM.  Its own
registries take others; nothing of verl is patched.  With `VERL_USE_EXTERNAL_MODULES=verl_on_cpu`
verl imports this package in the driver and in every Ray worker, and the import registers

- the platform `cpu` (`platform.py`), chosen by `VERL_PLATFORM=cpu`;
- the rollout `hf` (`rollout.py`), chosen by `actor_rollout_ref.rollout.name=hf`.

In a training worker it also makes the process group.  verl's engine for FSDP registers itself for
CUDA and NPU alone, though it runs on any device; `VERL_ENGINE_DEVICE=cuda` lets it be found.
"""

from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from .platform import join_process_group
from .rollout import HFReplica

_ROLLOUT_REGISTRY["hf", "async"] = "verl_on_cpu.rollout.HFServerAdapter"
RolloutReplicaRegistry.register("hf", lambda: HFReplica)
join_process_group()
