"""Bytes of HTTP/2 and gRPC that no well-behaved client sends."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator, Mapping

from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SCORE = b"/consensuspr.v1.ScoringService/Score"
WATCH = b"/grpc.health.v1.Health/Watch"


def score_request(*responses: bytes) -> bytes:
    """Return a request to score responses to the first problem of the sample."""
    rollouts = [pb.Rollout(problem_id="sample-arith-001", response=text) for text in responses]
    request = pb.ScoreRequest(protocol_version=PROTOCOL_VERSION, rollouts=rollouts)
    return request.SerializeToString()


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf message: bytes, or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(value: bytes) -> bytes:
    """Return a string of a header: its length with a prefix of seven bits, and its bytes."""
    length = len(value)
    return (bytes([length]) if length < 127 else b"\x7f" + varint(length - 127)) + value


def headers(stream: int, path: bytes = SCORE, extra: Mapping[bytes, bytes] | None = None) -> bytes:
    """Return the header of a gRPC request, without Huffman coding or a table."""
    fields = {
        b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"a",
        b"content-type": b"application/grpc", b"te": b"trailers", **(extra or {}),
    }  # fmt: skip
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
    return frame(1, 4, stream, block)


def data(stream: int, content: bytes, *, end: bool) -> bytes:
    frames = b""
    for at in range(0, len(content), 16_384):
        last = end and at + 16_384 >= len(content)
        frames += frame(0, int(last), stream, content[at : at + 16_384])
    return frames


def begun_request(size: int) -> bytes:
    """Return the beginning of a connection and of a request of so many bytes, none of them yet."""
    prefix = frame(0, 0, 1, b"\x00" + struct.pack(">I", size))
    return PREFACE + frame(4, 0, 0, b"") + headers(1) + prefix


def open_calls(port: int, kind: str, connections: int, calls: int) -> Iterator[socket.socket]:
    """Open ``calls`` calls on each of ``connections`` connections that do not end by themselves.

    They are of a kind: ``begun`` sends long headers and no request; ``whole`` sends small requests
    and takes no replies; ``watching`` watches the health.
    """
    long = {b"x-%d" % at: b"v" * 1500 for at in range(4)}
    rollout = score_request(b"x")
    request = b"\x00" + struct.pack(">I", len(rollout)) + rollout
    begin = PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0 if kind == "whole" else 65_535))
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        frames = [begin]
        for stream in range(1, 2 * calls, 2):
            if kind == "begun":
                frames += [headers(stream, extra=long)]
            elif kind == "whole":
                frames += [headers(stream), data(stream, request, end=True)]
            else:
                frames += [headers(stream, WATCH), data(stream, bytes(5), end=False)]
        with contextlib.suppress(OSError):  # the server may hang up
            sock.sendall(b"".join(frames))
        yield sock


def nonsense(dice: random.Random) -> bytes:
    return b"".join(
        frame(dice.randrange(16), dice.randrange(256), dice.randrange(8), dice.randbytes(60))
        for _ in range(50)
    )


def ping_flood(dice: random.Random) -> bytes:
    return frame(6, 0, 0, dice.randbytes(8)) * 5000


def rapid_reset(dice: random.Random) -> bytes:
    return b"".join(
        headers(stream) + frame(3, 0, stream, struct.pack(">I", 8)) for stream in range(1, 4001, 2)
    )


def endless_header(dice: random.Random) -> bytes:
    begin = frame(1, 0, 1, b"\x00" + _text(b"a") + _text(b"b"))
    return begin + frame(9, 0, 1, (b"\x00" + _text(b"a") + _text(b"b" * 100)) * 100) * 40


# Whole attacks, each on a connection of its own.
ATTACKS = (nonsense, ping_flood, rapid_reset, endless_header)
