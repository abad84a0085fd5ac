"""Decoding the responses of samples beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from consensuspr.client.verl.sample import Decoder


def decode(ids: list[int]) -> str:
    if not ids:
        raise ValueError("no tokens")
    return " ".join(map(str, ids))


@pytest.mark.parametrize("count", [1, 2, 31, 300])
async def test_each_sample_gets_its_own_text(count: int) -> None:
    decoder = Decoder(decode)
    texts = await asyncio.gather(*(decoder.text([at, at + 1]) for at in range(count)))
    assert texts == [f"{at} {at + 1}" for at in range(count)]


async def test_one_that_cannot_be_decoded_fails_alone() -> None:
    decoder = Decoder(decode)
    first, second, third = await asyncio.gather(
        *(decoder.text(ids) for ids in ([1], [], [3])), return_exceptions=True
    )
    assert (first, third) == ("1", "3")
    assert isinstance(second, ValueError) and str(second) == "no tokens"


async def test_the_loop_goes_on_meanwhile_and_a_sample_may_leave() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(ids: list[int]) -> str:
        begun.set()
        assert go_on.wait(30)
        return str(ids)

    decoder = Decoder(slow)
    left, stays = (asyncio.ensure_future(decoder.text([at])) for at in (0, 1))
    while not begun.is_set():
        await asyncio.sleep(0.001)  # only a loop that is free gets here
    left.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await stays == "[1]"
    assert left.cancelled()
