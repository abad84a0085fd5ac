"""The body of a request: received within bounds, and read one element at a time.

What is being received is not admitted yet.  So that slow or many senders cannot fill the
memory before the admission sees them, it counts the bytes that have arrived as those of requests.

A whole batch comes as one JSON text, a hundred megabytes of it where a trainer sends a
step at once.  ``json.loads`` would hold Python's lock for all of it, a second in which this
worker answers nobody, and one character outside Latin-1 would make its text four times as
large.  Here only boundaries are found (by searching for quotes and brackets), and each
element is decoded by ``json.loads`` when its turn comes: what is held is one element.  Time is
linear in the text.  Elements that are never asked for are not checked beyond their boundaries.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

import grpc
from starlette.requests import Request

from consensuspr.errors import InputError
from consensuspr.server.admission import Admission
from consensuspr.server.service import Abort

# A body that takes longer comes from a stuck sender; a hundred megabytes take a second.
RECEIVE_S = 120.0

# Labels and prompts are flat; what is nested deeper is an attack on somebody's stack.
MAX_DEPTH = 64

# A request has a handful of members; what has many is after somebody's memory.
MAX_MEMBERS = 64

# Of one value, a prompt and its response in most cases.  One character outside of Latin-1 makes a
# text four times as large, and a text is there several times while its end is looked for.
MAX_VALUE_BYTES = 4 << 20

_SPACE = re.compile(rb"[ \t\n\r]*")
_SCALAR = re.compile(rb"[^\s,:\[\]{}\"]+")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_QUOTE, _OPENING = b'"', b"{["
_BACKSLASH = ord("\\")


Body: TypeAlias = bytes | bytearray


class BodyTooLarge(Exception):
    """A body is larger than one may be; the text is the sentence for the sender."""


class Receiver:
    """Receives bodies on one event loop, within a limit of each, and of all by the admission."""

    def __init__(self, max_body_bytes: int, admission: Admission) -> None:
        self._max_body_bytes = max_body_bytes
        self._admission = admission

    async def receive(self, request: Request) -> bytearray:
        """Return the body of a request.

        Raises:
            BodyTooLarge: it is larger than allowed.
            Abort: too much is unfinished at the moment, or it takes too long.
            ClientDisconnect: the sender left.
        """
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            raise self._too_large(f"{announced} bytes")
        body = bytearray()
        held = 0
        try:
            async with asyncio.timeout(RECEIVE_S):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > self._max_body_bytes:
                        raise self._too_large("larger")
                    refusal = self._admission.hold(len(chunk))
                    if refusal is not None:
                        raise Abort(
                            grpc.StatusCode.RESOURCE_EXHAUSTED,
                            refusal.reason,
                            refusal.retry_after_s,
                        )
                    held += len(chunk)
                    body += chunk
        except TimeoutError:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the body was not received within {RECEIVE_S:g} s",
            ) from None
        finally:
            # Who submits it at once finds the room that it had.
            self._admission.release(held)
        return body

    def _too_large(self, size: str) -> BodyTooLarge:
        return BodyTooLarge(f"a body has at most {self._max_body_bytes} bytes, this one is {size}")


class Bounds(NamedTuple):
    """Where a value stands: ``body[start:end]``."""

    start: int
    end: int


class Members(NamedTuple):
    """Where values of an object stand by key, and elements of the lists that were asked for."""

    values: dict[str, Bounds]
    lists: dict[str, list[Bounds]]


def members(body: Body, lists: Collection[str] = (), limit: int = 0) -> Members:
    """Return where the values of the one object that ``body`` is stand.

    Those of ``lists`` have to be lists, of at most ``limit`` elements.

    Raises:
        InputError: it is no JSON object, has a key twice or too many, or a list is none or too
            long.
    """
    found = Members({}, {})
    at = _skip(body, 0)
    if body[at : at + 1] != b"{":
        raise _unexpected(body, at, "an object")
    at, more = _first(body, at, b"}")
    while more:
        key, start = _key(body, at)
        if key in found.values or key in found.lists:
            raise InputError(f"the body has the key {key!r} twice")
        if len(found.values) + len(found.lists) >= MAX_MEMBERS:
            raise InputError(f"the body has more than {MAX_MEMBERS} members, the limit")
        if key in lists:
            found.lists[key], end = _elements(body, start, key, limit)
        else:
            end = _value_end(body, start)
            found.values[key] = Bounds(start, end)
        at, more = _next(body, end, b"}")
    at = _skip(body, at)
    if at != len(body):
        raise _unexpected(body, at, "nothing more")
    return found


def value(body: Body, bounds: Bounds, name: str, max_bytes: int = MAX_VALUE_BYTES) -> Any:
    """Decode one value.

    Raises:
        InputError: it is no JSON, or no UTF-8, or too long.
    """
    if bounds.end - bounds.start > max_bytes:
        raise InputError(f"{name} has {bounds.end - bounds.start} bytes, the limit is {max_bytes}")
    try:
        return json.loads(body[bounds.start : bounds.end].decode())
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8 at byte {bounds.start + error.start} of the body"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is no JSON value: {error}") from None


def text(body: Body, bounds: Bounds, name: str) -> str:
    """Decode one string.

    Raises:
        InputError: it is something else.
    """
    if body[bounds.start : bounds.start + 1] != _QUOTE:
        raise InputError(f"{name} must be a string, got {_shown(body, bounds)}")
    decoded: str = value(body, bounds, name)
    return decoded


def _key(body: Body, at: int) -> tuple[str, int]:
    """Return a key, and where its value starts."""
    if body[at : at + 1] != _QUOTE:
        raise _unexpected(body, at, "a key")
    end = _string_end(body, at)
    key = text(body, Bounds(at, end), "a key")
    at = _skip(body, end)
    if body[at : at + 1] != b":":
        raise _unexpected(body, at, "':'")
    return key, _skip(body, at + 1)


def _elements(body: Body, at: int, name: str, limit: int) -> tuple[list[Bounds], int]:
    """Return where the elements of the list at ``at`` stand, and where it ends."""
    if body[at : at + 1] != b"[":
        raise InputError(f"{name} must be a list")
    found: list[Bounds] = []
    at, more = _first(body, at, b"]")
    while more:
        end = _value_end(body, at)
        if len(found) >= limit:
            raise InputError(f"{name} holds more than {limit} elements, the limit of a request")
        found.append(Bounds(at, end))
        at, more = _next(body, end, b"]")
    return found, at


def _first(body: Body, at: int, closing: bytes) -> tuple[int, bool]:
    """Return where the first item after the bracket at ``at`` starts; False: it is closed."""
    at = _skip(body, at + 1)
    more = body[at : at + 1] != closing
    return (at, True) if more else (at + 1, False)


def _next(body: Body, at: int, closing: bytes) -> tuple[int, bool]:
    """Return where the item after the one that ends at ``at`` starts; False: it was the last."""
    at = _skip(body, at)
    if body[at : at + 1] == b",":
        return _skip(body, at + 1), True
    if body[at : at + 1] != closing:
        raise _unexpected(body, at, f"',' or {closing.decode()!r}")
    return at + 1, False


def _skip(body: Body, at: int) -> int:
    space = _SPACE.match(body, at)
    assert space is not None  # it matches nothing as well
    return space.end()


def _value_end(body: Body, at: int) -> int:
    first = body[at : at + 1]
    if first == _QUOTE:
        return _string_end(body, at)
    if first and first in _OPENING:
        return _nested_end(body, at)
    scalar = _SCALAR.match(body, at)
    if scalar is None:
        raise _unexpected(body, at, "a value")
    return scalar.end()


def _string_end(body: Body, at: int) -> int:
    """Return one past the closing quote of the string that starts at ``at``."""
    find = body.find
    quote = find(_QUOTE, at + 1)
    while quote >= 0:
        escapes = quote - 1
        while body[escapes] == _BACKSLASH:
            escapes -= 1
        if (quote - escapes) % 2:
            return quote + 1
        quote = find(_QUOTE, quote + 1)
    raise InputError(f"the body ends within the string that starts at byte {at}")


def _nested_end(body: Body, at: int) -> int:
    """Return one past the bracket that closes the one at ``at``; which kind is for the decoder."""
    depth, seen = 0, at
    while True:
        found = _STRUCTURE.search(body, seen)
        if found is None:
            raise InputError(f"the body ends within the value that starts at byte {at}")
        seen = found.end()
        mark = found.group()
        if mark == _QUOTE:
            seen = _string_end(body, found.start())
        elif mark in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                raise InputError(
                    f"the body is nested more than {MAX_DEPTH} deep at byte {found.start()}"
                )
        else:
            depth -= 1
            if depth == 0:
                return seen


def _unexpected(body: Body, at: int, wanted: str) -> InputError:
    found = body[at : at + 12].decode("utf-8", "replace") if at < len(body) else "its end"
    return InputError(f"the body is no JSON: expected {wanted} at byte {at}, found {found!r}")


def _shown(body: Body, bounds: Bounds) -> str:
    return body[bounds.start : min(bounds.end, bounds.start + 40)].decode("utf-8", "replace")
