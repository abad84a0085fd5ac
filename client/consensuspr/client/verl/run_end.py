"""How a reward worker ends a run that cannot be rewarded, and prints the reason last.

An exception of a reward does not stop verl: it drops the rollout and trains on the rest.  So the
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

import ray
from ray._private import state as ray_state
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

logger = logging.getLogger(__name__)

_REASON, _SENT = "reason", "reason was sent"
_FAILED = "samples that failed in "

# Seconds for one try of sending the signal, and the pauses between tries if Ray is busy.
_TRY_S = 30.0
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
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
    """Leave a note to the other processes of this run; return whether it was left.

    Args:
        name: of the note; another one of the name is replaced.
        text: of it.
        once: do not replace.
    """
    was_there = internal_kv._internal_kv_put(_key(name), text.encode(), overwrite=not once)
    return not (once and was_there)


def read_note(name: str) -> str | None:
    """Return a note of this run, None if there is none."""
    text = internal_kv._internal_kv_get(_key(name))
    return None if text is None else text.decode()


def read_notes(prefix: str) -> list[str]:
    """Return the notes of this run whose names begin so."""
    texts = map(internal_kv._internal_kv_get, internal_kv._internal_kv_list(_key(prefix)))
    return [text.decode() for text in texts if text is not None]


def _key(name: str) -> bytes:
    return f"consensuspr/{ray.get_runtime_context().get_job_id()}/{name}".encode()


def note_reason(reason: str) -> None:
    """Let the driver print why this run ends, for a process that ends it by an exception."""
    if ray.is_initialized():
        note(_REASON, reason, once=True)


def end_run(reason: str) -> None:
    """End the run of this reward worker; the first reason counts.

    Blocks while Ray does not answer, up to minutes.  If it fails, the next call tries again.
    """
    with _sending:
        for pause_s in (*_PAUSES_S, None):
            try:
                if note(_REASON, reason, once=True):
                    logger.error("consensuspr ends this run: %s", reason)
                if read_note(_SENT) is None:
                    _ask_to_end()
                    note(_SENT, actor_name() or "")
            except Exception as error:  # whatever Ray raises
                again = "stop it by hand" if pause_s is None else f"again in {pause_s:g} s"
                logger.error(
                    "this run must end (%s), but its process could not be notified: %s: %s; %s",
                    reason,
                    type(error).__name__,
                    error,
                    again,
                )
                if pause_s is not None:
                    time.sleep(pause_s)
            else:
                return


def _ask_to_end() -> None:
    """Send the signal to the process that made this worker."""
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


def note_failures(count: int, last: str) -> None:
    """Tell the driver how many samples of this worker have no reward, and why the last has none."""
    note(f"{_FAILED}{actor_name()}", json.dumps([time.time(), count, last]))


def tell_reason_last() -> None:
    """Print why this run ended, or what it lost, when this process exits."""
    # Ray's own handler was registered before, and runs later.
    atexit.register(_tell_reason)


def _tell_reason() -> None:
    if not ray.is_initialized():
        return
    reason = read_note(_REASON)
    if reason is not None:
        print(f"run ended by consensuspr: {reason}", file=sys.stderr, flush=True)
    elif failures := [json.loads(text) for text in read_notes(_FAILED)]:
        total, (_, _, last) = sum(count for _, count, _ in failures), max(failures)
        print(
            f"consensuspr: samples without a reward in this run: {total:,}; the last: {last}",
            file=sys.stderr,
            flush=True,
        )
