"""Whose turn it is to have a message received."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from consensuspr.server.reception import RECEIVED_AT_ONCE, Reception, TooBusy


class Call:
    """A call of one connection, whose message arrives now, None for never."""

    def __init__(self, sender: str, message: object) -> None:
        self._sender = sender
        self._message = message
        self.asked = False

    def peer(self) -> str:
        return self._sender

    async def read(self) -> object:
        self.asked = True
        if self._message is None:
            await asyncio.Event().wait()
        return self._message


@pytest.mark.parametrize(
    ("message", "asked", "waits"),
    [(b"message", RECEIVED_AT_ONCE, True), (object(), 4, False)],
)
def test_a_connection_stalls_few_turns_of_known_ones(
    message: object, asked: int, waits: bool
) -> None:
    """After one that stalls, its others that wait are refused; an empty call earns no turns."""

    async def stall() -> None:
        reception = Reception(receive_s=1, short_receive_s=0.4)

        async def receive(call: Call) -> bytes | None:
            return await reception.receive(cast("Any", call))

        await receive(Call("known", b"message"))
        await receive(Call("stalls", message))
        calls = [Call("stalls", None) for _ in range(4)]
        stalled = [asyncio.create_task(receive(call)) for call in calls[:2]]
        await asyncio.sleep(0.5)
        stalled += [asyncio.create_task(receive(call)) for call in calls[2:]]
        await asyncio.sleep(0)
        assert await receive(Call("known", b"more")) == b"more"
        assert any(task.done() for task in stalled) == waits
        outcomes = await asyncio.gather(*stalled, return_exceptions=True)
        assert all(isinstance(outcome, TooBusy) for outcome in outcomes)
        assert sum(call.asked for call in calls) == asked

    asyncio.run(stall())
