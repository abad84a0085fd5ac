"""Token ids to the text of a response, the very text that the tokenizer itself gives.

Most tokenizers of today (those with a byte-level vocabulary: Llama 3, Qwen, DeepSeek, gpt-oss …)
write a text as the bytes of its tokens, one behind the other.  :class:`TokenBytes` does that from
a table, in an eighth of the tokenizer's time, and without a ``str`` that would be encoded again
to be sent: a tokenizer takes longer than all else that a trainer's process does for a sample.
Any other tokenizer is asked itself, in threads, because it lets others run meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consensuspr.client.training.credit import Finder, finder_of_bytes, finder_of_decoding

# Responses decoded in one task; more would make those that are decoded first wait for the last.
_MOST = 32

# The ids of a response, and where its text goes.
_Waiting: TypeAlias = "tuple[Any, asyncio.Future[str | bytes]]"


def _bytes_of_letters() -> dict[str, int]:
    """Return the byte that each letter of a byte-level vocabulary stands for.

    Visible letters of Latin-1 stand for themselves, the other bytes for the letters from U+0100.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(0x100 + at): byte for at, byte in enumerate(hidden)}


_BYTE = _bytes_of_letters()


class TokenBytes:
    """The bytes of each token of a byte-level tokenizer.

    Args:
        tokens: of each id, none for a special token and for an id without a token.
    """

    def __init__(self, tokens: list[bytes]) -> None:
        self._tokens: NDArray[Any] = np.array(tokens, dtype=object)

    @classmethod
    def of(cls, tokenizer: Any) -> Self | None:
        """Return those of a tokenizer of Hugging Face; None where it writes texts otherwise.

        What is asked of it is its ``decode`` with ``skip_special_tokens``, whatever class it has,
        so that the table is compared with it before it is used: all tokens, and what a clean-up of
        blanks would change.
        """
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if type(getattr(backend, "decoder", None)).__name__ != "ByteLevel":
            return None
        named = {at: token for token, at in backend.get_vocab(with_added_tokens=False).items()}
        for at, added in backend.get_added_tokens_decoder().items():
            named[at] = "" if added.special else added.content
        tokens = [_token_bytes(named.get(at, "")) for at in range(max(named, default=-1) + 1)]
        table = cls(tokens)
        probe = [*named, *(tokens.index(text) for text in (b" ", b".") if text in tokens)]
        written = table.join(np.array(probe, dtype=np.int64))
        same = written.decode() == tokenizer.decode(probe, skip_special_tokens=True)
        return table if same else None

    def join(self, ids: Any) -> bytes:
        """Return the text of token ids as UTF-8, U+FFFD for bytes that are none.

        Args:
            ids: whole numbers, a tensor or an array.

        Raises:
            IndexError: an id is none of the vocabulary's.
        """
        places = np.asarray(ids)
        if places.size and places.min() < 0:
            raise IndexError(f"a token id must be 0 or more, got {places.min()}")
        joined = b"".join(self._tokens[places].tolist())
        if joined.isascii():
            return joined
        try:
            joined.decode()
        except UnicodeDecodeError:
            return joined.decode(errors="replace").encode()
        return joined

    def tokens(self, ids: Any) -> list[bytes]:
        """Return the bytes of each token, the ids being such as :meth:`join` takes."""
        tokens: list[bytes] = self._tokens[np.asarray(ids)].tolist()
        return tokens


def _token_bytes(token: str) -> bytes:
    """Return the bytes of a token: each letter's, or its own where a letter stands for none."""
    try:
        return bytes([_BYTE[letter] for letter in token])
    except KeyError:
        return token.encode()


class Decoder:
    """Decodes responses, those that wait together in few tasks.

    Belongs to the loop in which it is called.

    Args:
        tokenizer: has ``decode``, which is called in threads where no table stands for it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._table = TokenBytes.of(tokenizer)
        self._waiting: deque[_Waiting] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def text(self, ids: Any) -> str | bytes:
        """Return the text of a response; what ``decode`` raises, for this response alone."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[str | bytes] = loop.create_future()
        self._waiting.append((ids, future))
        if len(self._waiting) == 1:
            # At the end of this turn of the loop: samples that come in it too are decoded along.
            loop.call_soon(self._flush, loop)
        return await future

    def finder(self, ids: Any) -> Finder:
        """Return which token of a response completes a place in its text.

        Args:
            ids: of which :meth:`text` has returned the text.
        """
        if self._table is not None:
            try:
                return finder_of_bytes(self._table.tokens(ids))
            except IndexError:
                pass  # its text is the tokenizer's
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        return finder_of_decoding(ids, decode)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._table is None:
            self._in_threads(loop, list(self._waiting))
            self._waiting.clear()
            return
        for _ in range(min(_MOST, len(self._waiting))):
            ids, future = self._waiting.popleft()
            if future.done():
                continue  # its sample is no longer wanted
            try:
                future.set_result(self._table.join(ids))
            except IndexError:
                self._in_threads(loop, [(ids, future)])
            except Exception as error:
                future.set_exception(error)  # nobody else's: those behind it go on
        if self._waiting:
            # Those that are decoded are sent first, so that the server has its work meanwhile.
            loop.call_soon(self._flush, loop)

    def _in_threads(self, loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
        # A tokenizer that lets others run is to find work for every core.
        size = max(1, min(_MOST, len(waiting) // (os.cpu_count() or 1)))
        for start in range(0, len(waiting), size):
            task = waiting[start : start + size]
            done = loop.run_in_executor(None, self._decode_all, [ids for ids, _ in task])
            done.add_done_callback(partial(_hand_out, [future for _, future in task]))

    def _decode_all(self, responses: list[Any]) -> list[str | BaseException]:
        texts: list[str | BaseException] = []
        for ids in responses:
            try:
                texts.append(str(self._tokenizer.decode(ids, skip_special_tokens=True)))
            except Exception as error:
                texts.append(error)
        return texts


def _hand_out(
    futures: list[asyncio.Future[str | bytes]], done: asyncio.Future[list[str | BaseException]]
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
