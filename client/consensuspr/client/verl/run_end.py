"""How a reward worker ends a run that cannot be rewarded, and how its reason comes last.

An exception of a reward does not stop verl: its V1 trainer logs it, drops the rollout and trains
on what is left; a reward worker that does not start loses them one by one; and where
``sync_refill_failed_groups`` is on, it generates others for ever.  So the process that made the
worker, verl's task runner, is sent SIGTERM: Ray turns it into a ``SystemExit`` of its main thread,
so that verl closes its loggers on the way out, and the driver's wait for it ends.  Ray's table of
actors tells who it is, and a task on its node sends the signal.  What Ray does not answer is asked
again: a run that nothing is left to reward would otherwise go on for as long as it is paid for.

The reason lies in Ray's own key-value store, under the job; the driver (where verl loads our
plugin) prints it at its exit, below whatever Hydra and Ray have to say.  Where a run ends without
one, it prints how many samples failed, and why the last did: verl, which drops them, ends with a
message of its own once a step has none left.
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

# A try of sending the signal: how long Ray may take for it, and the pauses before the next ones.
_TRY_S = 30.0
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# One thread of a process at a time; samples fail by the hundred.
_sending = threading.Lock()

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


def actor_is_gone(name: str) -> bool:
    """Say whether no actor of this name, and of this job's namespace, lives any more."""
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    return False


def note_reason(reason: str) -> None:
    """Let the driver print why this run ends, for a process that ends it by an exception."""
    if ray.is_initialized():
        note(_REASON, reason, once=True)


def end_run(reason: str) -> None:
    """End the run that this reward worker belongs to; the first reason counts.

    Takes as long as Ray needs, minutes where it does not answer: not for an event loop.  Where it
    fails to the end that is said, and the next call tries again.
    """
    with _sending:
        for pause_s in (*_PAUSES_S, None):
            try:
                if note(_REASON, reason, once=True):
                    logger.error("consensuspr ends this run: %s", reason)
                if read_note(_SENT) is None:
                    _ask_to_end()
                    note(_SENT, actor_name() or "")
            except Exception as error:  # whatever Ray raises where it is busy, or on its way out
                again = "stop it by hand" if pause_s is None else f"again in {pause_s:g} s"
                logger.error(
                    "this run is to end (%s), and its process could not be told: %s: %s; %s",
                    reason, type(error).__name__, error, again,
                )  # fmt: skip
                if pause_s is not None:
                    time.sleep(pause_s)
            else:
                return


def _ask_to_end() -> None:
    """Send the signal to whoever made this worker; whatever Ray raises, it may not have come."""
    actors = ray_state.actors()
    owner = actors[ray.get_runtime_context().get_actor_id()]["OwnerAddress"]
    for actor in actors.values():
        if actor["Address"] == owner and actor["State"] == "ALIVE":
            on_its_node = NodeAffinitySchedulingStrategy(owner["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_its_node)
            ray.get(task(_terminate).remote(actor["Pid"]), timeout=_TRY_S)
            return
    # A recipe whose driver makes the workers itself has it as its own process.
    logger.error("the process that made this worker is no actor; stop the run by hand")


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def note_failures(count: int, last: str) -> None:
    """Let the driver know of the samples of this worker that have no reward.

    Args:
        count: so far.
        last: why the last of them has none.
    """
    note(f"{_FAILED}{actor_name()}", json.dumps([time.time(), count, last]))


def tell_reason_last() -> None:
    """Print why this run ended, or what it lost on the way, when this process exits."""
    # Ray's own handler was registered before, and is called later.
    atexit.register(_tell_reason)


def _tell_reason() -> None:
    if not ray.is_initialized():
        return
    reason = read_note(_REASON)
    if reason is not None:
        print(f"run ended by consensuspr: {reason}", file=sys.stderr, flush=True)
    elif failures := [json.loads(told) for told in read_notes(_FAILED)]:
        total, (_, _, last) = sum(count for _, count, _ in failures), max(failures)
        print(f"consensuspr: samples without a reward in this run: {total:,}; the last: {last}",
              file=sys.stderr, flush=True)  # fmt: skip
