"""Decoding the responses of samples beside the event loop, by a tokenizer or by its table."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from consensuspr.client.verl.decode import Decoder, TokenBytes


class Words:
    """A tokenizer of no vocabulary, so that only itself can decode."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        if not ids:
            raise ValueError("no tokens")
        return " ".join(map(str, ids))


@pytest.mark.parametrize("count", [1, 2, 31, 300])
async def test_each_sample_gets_its_own_text(count: int) -> None:
    decoder = Decoder(Words())
    texts = await asyncio.gather(*(decoder.text([at, at + 1]) for at in range(count)))
    assert texts == [f"{at} {at + 1}" for at in range(count)]


async def test_one_that_cannot_be_decoded_fails_alone() -> None:
    decoder = Decoder(Words())
    first, second, third = await asyncio.gather(
        *(decoder.text(ids) for ids in ([1], [], [3])), return_exceptions=True
    )
    assert (first, third) == ("1", "3")
    assert isinstance(second, ValueError) and str(second) == "no tokens"


async def test_the_loop_goes_on_meanwhile_and_a_sample_may_leave() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            begun.set()
            assert go_on.wait(30)
            return str(ids)

    decoder = Decoder(Slow())
    left, stays = (asyncio.ensure_future(decoder.text([at])) for at in (0, 1))
    while not begun.is_set():
        await asyncio.sleep(0.001)  # only a loop that is free gets here
    left.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await stays == "[1]"
    assert left.cancelled()


@pytest.mark.parametrize("ids", [[3, -1], [0, 5]])
def test_an_id_of_no_token_is_not_another_token(ids: list[int]) -> None:
    with pytest.raises(IndexError):
        TokenBytes([b"a", b"b", b"", b"c"]).join(ids)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([b"x=", b"1"], "x=1"),
        ([b"\xe2\x82", b"\xac"], "€"),
        ([b"\xe2\x82", b"1"], "\ufffd1"),
        ([b"\xff\xe2", b"\x82"], "\ufffd\ufffd"),
        ([b"\xed\xa0", b"\x80"], "\ufffd\ufffd\ufffd"),
        ([], ""),
    ],
)
def test_bytes_that_are_no_text_become_the_mark_for_it(tokens: list[bytes], text: str) -> None:
    written = TokenBytes(tokens).join(np.arange(len(tokens)))
    assert written.decode() == text
