"""Framed JSON between the pool and its worker processes.

Four bytes of length (big endian), then JSON.  JSON and not pickle: one side has read model
text and is not trusted with the other side's interpreter.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct(">I")
# A task carries two answers and a clipped tail; a reply one word.
MAX_FRAME_BYTES = 1 << 20


class FrameTimeout(Exception):
    """The other side did not answer in time."""


class FrameClosed(Exception):
    """The other side is gone."""


def send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        FrameClosed: the other side is gone.
    """
    body = json.dumps(message).encode("ascii")
    try:
        connection.sendall(_LENGTH.pack(len(body)) + body)
    except OSError as error:
        raise FrameClosed from error


def receive_frame(connection: socket.socket, timeout_s: float | None = None) -> dict[str, Any]:
    """Receive one message.

    Raises:
        FrameTimeout: it was not complete after ``timeout_s`` seconds.
        FrameClosed: the other side is gone or sent something else.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
    if length > MAX_FRAME_BYTES:
        raise FrameClosed
    try:
        message = json.loads(_receive(connection, length, deadline))
    except ValueError as error:
        raise FrameClosed from error
    if not isinstance(message, dict):
        raise FrameClosed
    return message


def _receive(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise FrameTimeout
        connection.settimeout(left)
        try:
            part = connection.recv(size - len(parts))
        except TimeoutError as error:
            raise FrameTimeout from error
        except OSError as error:
            raise FrameClosed from error
        if not part:
            raise FrameClosed
        parts += part
    return bytes(parts)
