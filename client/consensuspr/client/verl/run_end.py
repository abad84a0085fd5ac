"""How a reward worker ends a run that cannot be rewarded, and prints the reason last.

An exception of a reward does not stop verl: it drops the rollout and trains on the others.  So the
process that made the worker, verl's task runner, gets SIGTERM, which Ray turns into a
``SystemExit``.  The reason is a note in Ray's key-value store, which the driver (where verl loads
our plugin) prints at its exit, below the output of Hydra and Ray.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray._private import state as ray_state
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

logger = logging.getLogger(__name__)

_REASON, _SENT, _WORKER = "reason", "reason was sent", "worker "

# Limit for sending the signal; the next failing sample sends it again if that fails.
_TRY_S = 30.0
_sending = threading.Lock()

# verl's name for the actors of its reward loop; a number follows.
WORKER_NAME = "reward_loop_worker_"
FIRST_WORKER = f"{WORKER_NAME}0"


def actor_name() -> str | None:
    """Return the name of the Ray actor that this process is, empty without one; None: no actor."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:  # the driver's own process, or a task
        return None
    return context.get_actor_name() or ""


def in_reward_worker() -> bool:
    """Return whether this process is one of verl's reward workers."""
    return (actor_name() or "").startswith(WORKER_NAME)


def note(name: str, text: str, *, once: bool = False) -> bool:
    """Leave a note for the other processes of this run; return whether it was left.

    A note replaces another one of its name, except with ``once``.
    """
    was_there = internal_kv._internal_kv_put(_key(name), text.encode(), overwrite=not once)
    return not (once and was_there)


def read_note(name: str) -> str | None:
    """Return a note of this run, None if there is none."""
    text = internal_kv._internal_kv_get(_key(name))
    return None if text is None else text.decode()


def worker_notes() -> list[dict[str, Any]]:
    """Return the notes of the reward workers of this run."""
    texts = map(internal_kv._internal_kv_get, internal_kv._internal_kv_list(_key(_WORKER)))
    return [json.loads(text) for text in texts if text is not None]


def _key(name: str) -> bytes:
    return f"consensuspr/{ray.get_runtime_context().get_job_id()}/{name}".encode()


def note_reason(reason: str) -> None:
    """Let the driver print why this run ends, for a process that ends it by an exception."""
    if ray.is_initialized():
        note(_REASON, reason, once=True)


def end_run(reason: str) -> None:
    """End the run of this reward worker; the first reason counts.

    If Ray does not answer, the reason is logged, and the next call tries again.
    """
    with _sending:
        try:
            if note(_REASON, reason, once=True):
                logger.error("consensuspr ends this run: %s", reason)
            if read_note(_SENT) is None:
                _signal_task_runner()
                note(_SENT, actor_name() or "")
        except Exception:  # any error of Ray
            logger.exception("this run must end (%s), but its process cannot be notified", reason)


def _signal_task_runner() -> None:
    """Send SIGTERM to the process that made this worker."""
    actors = ray_state.actors()
    owner = actors[ray.get_runtime_context().get_actor_id()]["OwnerAddress"]
    for actor in actors.values():
        if actor["Address"] == owner and actor["State"] == "ALIVE":
            on_its_node = NodeAffinitySchedulingStrategy(owner["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_its_node)
            ray.get(task(_terminate).remote(actor["Pid"]), timeout=_TRY_S)
            return
    # A recipe whose driver makes the workers itself.
    logger.error("the process that made this worker is not an actor; stop the run by hand")


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def note_worker(events: Mapping[str, int], failed: int, last: str) -> None:
    """Note what went wrong in this reward worker so far, for the trainer and the driver.

    Args:
        events: by kind.
        failed: samples without a reward.
        last: why the last of them has none.
    """
    facts = {"time": time.time(), "events": dict(events), "failed": failed, "last": last}
    note(f"{_WORKER}{actor_name()}", json.dumps(facts))


def print_reason_last() -> None:
    """Print why this run ended, or which samples it lost, when this process exits."""
    # Ray's own handler was registered before, and runs later.
    atexit.register(_print_reason)


def _print_reason() -> None:
    if not ray.is_initialized():
        return
    reason = read_note(_REASON)
    workers = [worker for worker in worker_notes() if worker["failed"]]
    if reason is not None:
        print(f"run ended by consensuspr: {reason}", file=sys.stderr, flush=True)
    elif workers:
        total = sum(worker["failed"] for worker in workers)
        last = max(workers, key=lambda worker: worker["time"])["last"]
        print(
            f"consensuspr: samples without a reward in this run: {total:,}; the last: {last}",
            file=sys.stderr,
            flush=True,
        )
