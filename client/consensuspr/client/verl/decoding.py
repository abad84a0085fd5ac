"""Decoding responses beside the event loop, those that wait together in few tasks.

A task in a thread costs more than it costs to decode a short response, and a whole batch of
samples arrives in one turn of the loop.  A single sample is a task of its own at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

# In one task.  More would make those that are decoded first wait for the last.
_MOST = 32

_Waiting = tuple[Any, asyncio.Future[str]]


class Decoder:
    """Decodes in the event loop's threads.  Belongs to the loop in which it is called.

    Args:
        decode: text of a response's token ids; is called in threads.
    """

    def __init__(self, decode: Callable[[Any], str]) -> None:
        self._decode = decode
        self._waiting: list[_Waiting] = []

    async def text(self, ids: Any) -> str:
        """Return the text of a response; what ``decode`` raises, for this response alone."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._waiting.append((ids, future))
        if len(self._waiting) == 1:
            # At the end of this turn of the loop: samples that come in it too are decoded along.
            loop.call_soon(self._flush, loop)
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        # A decoder that lets others run is to find work for every core.
        size = max(1, min(_MOST, len(waiting) // (os.cpu_count() or 1)))
        for start in range(0, len(waiting), size):
            task = waiting[start : start + size]
            done = loop.run_in_executor(None, self._decode_all, [ids for ids, _ in task])
            done.add_done_callback(partial(_hand_out, [future for _, future in task]))

    def _decode_all(self, responses: list[Any]) -> list[str | BaseException]:
        texts: list[str | BaseException] = []
        for ids in responses:
            try:
                texts.append(self._decode(ids))
            except Exception as error:
                texts.append(error)
        return texts


def _hand_out(
    futures: list[asyncio.Future[str]], done: asyncio.Future[list[str | BaseException]]
) -> None:
    error = done.exception() if not done.cancelled() else asyncio.CancelledError()
    texts = [error] * len(futures) if error is not None else done.result()
    for future, text in zip(futures, texts, strict=True):
        if future.done():
            continue  # its sample is no longer wanted
        if isinstance(text, BaseException):
            future.set_exception(text)
        else:
            future.set_result(text)
