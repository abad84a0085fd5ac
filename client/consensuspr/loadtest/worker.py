"""A load process: waits for orders, carries out runs, tells what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from consensuspr.loadtest.orders import Done, Failed, Order, Part, Quit, Ready, Setup, Start, Stop
from consensuspr.loadtest.outcome import DEADLINE
from consensuspr.loadtest.recording import Recorder, Sampler
from consensuspr.loadtest.run import Run
from consensuspr.loadtest.senders import Sender, make_sender

REPORT_S = 0.25

# A fresh server takes seconds until its first answers come: what it starts for them, as the
# processes for computer algebra, it starts when it first needs it.
WAKE_S = 30.0


def work(pipe: Connection[Any, Any]) -> None:
    """Be a load process until told to quit, or until nobody is left to tell.

    Args:
        pipe: to the process that leads; its first message is the :class:`Setup`.
    """
    # Ctrl-C reaches all processes of a terminal; the leading one decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(_serve(pipe, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the leader has gone, and nobody is left to tell
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(Failed(error))


async def _serve(pipe: Connection[Any, Any], setup: Setup) -> None:
    orders: asyncio.Queue[Order] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    reader = threading.Thread(target=_read, args=(pipe, orders, loop), daemon=True)
    reader.start()
    sender = make_sender(setup.settings, setup.rollouts, setup.connections)
    try:
        await sender.open()
        if setup.settings.warmup_s:
            await _wake(sender, setup)
        pipe.send(Ready())
        while True:
            order = await orders.get()
            if isinstance(order, Quit):
                return
            if isinstance(order, Start):
                pipe.send(await _run(pipe, setup, order, sender, orders))
    finally:
        await sender.close()


async def _wake(sender: Sender, setup: Setup) -> None:
    """Return when each connection has brought a reply or a refusal, at most :data:`WAKE_S` later.

    These requests come before the warm-up and are counted nowhere.
    """
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + WAKE_S

    async def ask(number: int) -> None:
        while (left_s := give_up_at - clock()) > 0:
            outcome = await sender.send(number, min(left_s, setup.settings.timeout_s))
            if outcome.code != DEADLINE:
                return

    await asyncio.gather(*(ask(number) for number in range(setup.connections)))


def _read(
    pipe: Connection[Any, Any], orders: asyncio.Queue[Order], loop: asyncio.AbstractEventLoop
) -> None:
    """Pass on orders; a leader that has gone means to quit."""
    order: Order | None = None
    while not isinstance(order, Quit):
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            order = Quit()
        try:
            loop.call_soon_threadsafe(orders.put_nowait, order)
        except RuntimeError:  # the loop has ended, so that there is nobody to tell
            return


async def _run(
    pipe: Connection[Any, Any],
    setup: Setup,
    order: Start,
    sender: Sender,
    orders: asyncio.Queue[Order],
) -> Done:
    """Carry out one run, tell how it goes, and stop it where that is ordered."""
    sampler = Sampler(setup.settings.check, setup.settings.seed + setup.number)
    recorder = Recorder(order.at, sampler)
    run = Run(setup, order, sender, recorder)
    wall, cpu = time.monotonic(), time.process_time()
    running = asyncio.create_task(run.carry_out())
    ordered = asyncio.create_task(orders.get())
    try:
        while not running.done():
            await asyncio.wait(
                {running, ordered}, timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if ordered.done():
                run.stop()
                if isinstance(ordered.result(), Stop):
                    ordered = asyncio.create_task(orders.get())
                else:  # to quit, which is for the caller
                    orders.put_nowait(ordered.result())
                await running
            pipe.send(Part(recorder.take(), run.in_flight))
    finally:
        ordered.cancel()
    running.result()
    return Done(time.process_time() - cpu, time.monotonic() - wall, tuple(sampler.samples))
