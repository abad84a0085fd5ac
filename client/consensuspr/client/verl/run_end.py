"""How a reward worker ends a run that cannot be rewarded, and how its reason comes last.

An exception of a reward does not stop verl: its V1 trainer logs it, drops the rollout and trains
on what is left; a reward worker that does not start loses them one by one; and where
``sync_refill_failed_groups`` is on, it generates others for ever.  So the process that made the
worker, verl's task runner, is sent SIGTERM: Ray turns it into a ``SystemExit`` of its main thread,
so that verl closes its loggers on the way out, and the driver's wait for it ends.  Ray's table of
actors tells who it is, and a task on its node sends the signal.

The reason lies in Ray's own key-value store, under the job; the driver (where verl loads our
plugin) prints it at its exit, below whatever Hydra and Ray have to say.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys

import ray
from ray._private import state as ray_state
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

logger = logging.getLogger(__name__)

_REASON = "reason"

# How verl's reward loop names its actors, which have a process each; a number follows.
WORKER_NAME = "reward_loop_worker_"


def actor_name() -> str | None:
    """Return the name of the Ray actor that this process is, empty without one; None: no actor."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:  # the driver's own process, or a task
        return None
    return context.get_actor_name() or ""


def in_reward_worker() -> bool:
    """Say whether this process is one of verl's reward workers, by the name of its Ray actor."""
    return (actor_name() or "").startswith(WORKER_NAME)


def note(name: str, text: str, *, once: bool = False) -> bool:
    """Leave a note to the other processes of this run.

    Args:
        name: of the note; another one of the name is replaced.
        text: of it.
        once: leave another one of the name as it is.

    Returns:
        Whether it was left.
    """
    # What is told is whether there was one.
    was_there = internal_kv._internal_kv_put(_key(name), text.encode(), overwrite=not once)
    return not (once and was_there)


def read_note(name: str) -> str | None:
    """Return a note of this run, None where there is none."""
    text = internal_kv._internal_kv_get(_key(name))
    return None if text is None else text.decode()


def read_notes(prefix: str) -> list[str]:
    """Return the notes of this run whose names begin so."""
    texts = map(internal_kv._internal_kv_get, internal_kv._internal_kv_list(_key(prefix)))
    return [text.decode() for text in texts if text is not None]


def _key(name: str) -> bytes:
    return f"consensuspr/{ray.get_runtime_context().get_job_id()}/{name}".encode()


def end_run(reason: str) -> None:
    """End the run that this reward worker belongs to; the first reason counts."""
    if not note(_REASON, reason, once=True):
        return
    logger.error("consensuspr ends this run: %s", reason)
    actors = ray_state.actors()
    owner = actors[ray.get_runtime_context().get_actor_id()]["OwnerAddress"]
    for actor in actors.values():
        if actor["Address"] == owner and actor["State"] == "ALIVE":
            on_its_node = NodeAffinitySchedulingStrategy(owner["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_its_node)
            task(_terminate).remote(actor["Pid"])
            return
    # A recipe whose driver makes the workers itself has it as its own process.
    logger.error("the process that made this worker is no actor; stop the run by hand")


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def tell_reason_last() -> None:
    """Print the reason, where this run was ended for one, when this process exits."""
    # Ray's own handler was registered before, and is called later.
    atexit.register(_tell_reason)


def _tell_reason() -> None:
    if not ray.is_initialized():
        return
    reason = read_note(_REASON)
    if reason is not None:
        print(f"run ended by consensuspr: {reason}", file=sys.stderr, flush=True)
