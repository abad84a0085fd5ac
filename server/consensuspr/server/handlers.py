"""What each RPC does, from the bytes of a request to the bytes of its reply.

Runs in a working thread, knows nothing of sockets or event loops, and is therefore also
what another front (a Ray Serve deployment, a test) calls.  A request that is wrong as a
whole ends in :class:`Abort`; whatever concerns a single rollout is a status in the reply.

Requests are parsed here and not by gRPC: their size is known before anything is unpacked,
and bytes that are no request become INVALID_ARGUMENT instead of an internal error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from consensuspr.errors import InputError
from consensuspr.scoring.types import Score
from consensuspr.server.call import Abort, Call
from consensuspr.server.metered import MeteredScorer
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.info import ServerInfo, encode_server_info
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.pieces import PIECE_BYTES, PIECE_ROLLOUTS, cut
from consensuspr.wire.replies import encode_explain_response, encode_score_response
from consensuspr.wire.requests import decode_options, decode_rollout

M = TypeVar("M", bound=Message)


class Handlers:
    """The RPCs of one worker.

    Args:
        scorer: scores rollouts of the datasets that ``info`` lists; used by many threads.
        info: what the server says about itself, its request limits included.
    """

    def __init__(self, scorer: MeteredScorer, info: ServerInfo) -> None:
        self._scorer = scorer
        self._info = info
        self._names = [dataset.name for dataset in info.datasets]
        self._info_reply = encode_server_info(info).SerializeToString()

    def score(self, raw: bytes, call: Call) -> bytes:
        """Answer ``Score``.

        Raises:
            Abort: the request is wrong as a whole, or nobody waits for it any more.
        """
        call.check()
        request = _parse(pb.ScoreRequest, raw)
        options = self._options(request)
        if len(request.rollouts) > self._info.max_rollouts:
            raise Abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request holds at most {self._info.max_rollouts} rollouts,"
                f" got {len(request.rollouts)}",
            )
        self._scorer.metrics.request_rollouts(len(request.rollouts))
        scores: list[Score] = []
        rollouts = map(decode_rollout, request.rollouts)
        for piece in cut(rollouts, lambda r: len(r.response), PIECE_BYTES, PIECE_ROLLOUTS):
            call.check()
            part, identity = self._scorer.score(piece, options, call.deadline)
            scores += part
        # A reply that comes too late would be thrown away; encoding it is work too.
        call.check()
        return encode_score_response(scores, identity).SerializeToString()

    def explain(self, raw: bytes, call: Call) -> bytes:
        """Answer ``Explain``.

        Raises:
            Abort: as for :meth:`score`; also where the request holds no rollout.
        """
        call.check()
        request = _parse(pb.ExplainRequest, raw)
        options = self._options(request)
        if not request.HasField("rollout"):
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "rollout is required, got none")
        rollout = decode_rollout(request.rollout)
        explanation = self._scorer.explain(rollout, options, call.deadline)
        call.check()
        return encode_explain_response(explanation).SerializeToString()

    def server_info(self, raw: bytes, call: Call) -> bytes:
        """Answer ``ServerInfo``; asked by clients of any protocol version.

        Raises:
            Abort: the bytes are no request.
        """
        call.check()
        _parse(pb.ServerInfoRequest, raw)
        return self._info_reply

    def _options(self, request: pb.ScoreRequest | pb.ExplainRequest) -> ScoreOptions:
        """Check all of a request but its rollouts."""
        version = request.protocol_version
        if version not in (0, PROTOCOL_VERSION):
            raise Abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the client speaks protocol version {version},"
                f" this server speaks version {PROTOCOL_VERSION}",
            )
        try:
            options = decode_options(request)
        except InputError as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        check_dataset(options.dataset, self._names)
        return options


def check_dataset(name: str | None, names: Sequence[str]) -> None:
    """Return where a request names one of the datasets, or may leave it out.

    Raises:
        Abort: there are several and none is named, or there is none of that name.
    """
    known = ", ".join(names)
    if name is None and len(names) > 1:
        raise Abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"dataset must be named, this server has several: {known}",
        )
    if name is not None and name not in names:
        raise Abort(
            grpc.StatusCode.NOT_FOUND, f"no dataset is called {name!r}; this server has: {known}"
        )


def _parse(message: type[M], raw: bytes) -> M:
    try:
        parsed = message()
        parsed.ParseFromString(raw)
    except DecodeError:
        raise Abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"the {len(raw)} bytes of the request are no {message.DESCRIPTOR.full_name}",
        ) from None
    return parsed
