"""The admin RPCs of a worker: which datasets are served, and changes of them.

A client may ask any worker for a change.  The supervisor makes it
(:mod:`consensuspr.server.datasets`), and the reply comes when every worker serves it, or when it
has failed and nothing is changed.

A client names files of this machine, and error messages quote them.  So they must be in or below a
folder of a dataset of the settings, or ``dataset_folder``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from consensuspr.credentials import Scope
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring.types import check_digest, check_label
from consensuspr.server.config import ServerConfig
from consensuspr.server.datasets import Mode, Served, WorkerDatasets
from consensuspr.server.metrics import Metrics
from consensuspr.server.processes import Message
from consensuspr.server.security import Gate
from consensuspr.server.service import Abort, Context, code_of, counted, parse_message
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.server_info import describe_datasets, encode_dataset_info

# For a caller without a deadline; more than any dataset takes to be read.
PATIENCE_S = 24 * 3600.0

_MODES = {
    pb.PUT_MODE_UNSPECIFIED: Mode.ANY,
    pb.PUT_MODE_ADD: Mode.ADD,
    pb.PUT_MODE_REPLACE: Mode.REPLACE,
}

# Has the supervisor make a change within seconds.
Ask = Callable[[Message, float], Awaitable[Message]]


class AdminService:
    """The admin RPCs on a worker's event loop.

    Args:
        config: settings.
        datasets: of this worker.
        ask: has the supervisor make a change.
        gate: checks tokens.
        metrics: where calls are counted.
    """

    def __init__(
        self,
        config: ServerConfig,
        datasets: WorkerDatasets,
        ask: Ask,
        gate: Gate,
        metrics: Metrics,
    ) -> None:
        self._datasets = datasets
        self._ask = ask
        self._gate = gate
        self._metrics = metrics
        places = {os.path.dirname(os.path.realpath(path)) for path in config.datasets.values()}
        if config.dataset_folder is not None:
            places.add(os.path.realpath(config.dataset_folder))
        self._places = sorted(places)

    def handlers(self) -> dict[str, Any]:
        """Return the handler of each method; messages pass as bytes."""
        return {
            "ListDatasets": self._handler("ListDatasets", Scope.READ, self._list),
            "PutDataset": self._handler("PutDataset", Scope.ADMIN, self._put),
            "RemoveDataset": self._handler("RemoveDataset", Scope.ADMIN, self._remove),
        }

    def _handler(
        self, method: str, scope: Scope, answer: Callable[[bytes, Context], Awaitable[Any]]
    ) -> Any:
        async def work(raw: bytes, context: Context) -> bytes:
            metadata = dict(context.invocation_metadata() or ())
            refused = self._gate.refusal(scope, metadata.get("authorization"), context.peer())
            if refused is not None:
                raise Abort(code_of(refused), refused.sentence)
            reply: bytes = (await answer(raw, context)).SerializeToString()
            return reply

        async def behaviour(raw: bytes, context: Context) -> bytes:
            return await counted(self._metrics, method, work(raw, context), context)

        return grpc.unary_unary_rpc_method_handler(behaviour)

    async def _list(self, raw: bytes, context: Context) -> pb.ListDatasetsResponse:
        parse_message(pb.ListDatasetsRequest, raw)
        served = sorted(self._datasets.served.items())
        return pb.ListDatasetsResponse(datasets=[self._served(name, item) for name, item in served])

    async def _put(self, raw: bytes, context: Context) -> pb.PutDatasetResponse:
        request = parse_message(pb.PutDatasetRequest, raw)
        mode = _MODES.get(request.mode)
        if mode is None:
            raise _wrong(f"mode must be one of {', '.join(map(str, _MODES))}, got {request.mode}")
        if request.expect_digest:
            _checked(check_digest, request.expect_digest)
        name = _checked(_check_name, request.name)
        path = request.path
        if not path:
            known = self._datasets.served.get(name)
            if known is None:
                raise _wrong(f"path is missing, and dataset {name!r} is not there yet")
            path = known.path
        else:
            await asyncio.to_thread(self._check_place, path)
        changed = await self._change(name, path, mode, request.expect_digest, context)
        digest = changed.pop("previous_digest")
        return pb.PutDatasetResponse(
            dataset=self._served(name, Served(**changed)), previous_digest=digest
        )

    async def _remove(self, raw: bytes, context: Context) -> pb.RemoveDatasetResponse:
        request = parse_message(pb.RemoveDatasetRequest, raw)
        name = _checked(_check_name, request.name)
        changed = await self._change(name, None, Mode.ANY, "", context)
        return pb.RemoveDatasetResponse(digest=changed["previous_digest"])

    async def _change(
        self, name: str, path: str | None, mode: Mode, expect_digest: str, context: Context
    ) -> Message:
        remaining_s = context.time_remaining()
        limit_s = PATIENCE_S if remaining_s is None else remaining_s
        try:
            change = {"name": name, "path": path, "mode": mode, "expect_digest": expect_digest}
            changed = await self._ask(change, limit_s)
        except ConsensusPRError as error:
            raise Abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from None
        if "refused" in changed:
            raise Abort(grpc.StatusCode[changed["refused"]], changed["reason"])
        return {name: value for name, value in changed.items() if name != "reply"}

    def _check_place(self, path: str) -> None:
        """End the RPC if the file of a path may not be read."""
        if not os.path.isabs(path) or "\0" in path:
            raise _wrong(f"path must be absolute, got {path[:200]!r}")
        found = os.path.realpath(path)
        if not any(os.path.commonpath((place, found)) == place for place in self._places):
            raise _wrong(
                f"path must be in or below {', '.join(self._places)}, where the datasets of the"
                f" server's settings are, got {path[:200]!r}",
            )

    def _served(self, name: str, served: Served) -> pb.ServedDataset:
        """Return the message of a dataset; without counts where it was changed again since."""
        index = self._datasets.indexes().get(name)
        if index is not None and index.digest == served.digest:
            [info] = map(encode_dataset_info, describe_datasets({name: index}))
        else:
            info = pb.DatasetInfo(name=name, digest=served.digest)
        return pb.ServedDataset(info=info, path=served.path, loaded_unix_s=served.loaded_unix_s)


def _wrong(sentence: str) -> Abort:
    return Abort(grpc.StatusCode.INVALID_ARGUMENT, sentence)


def _check_name(name: str) -> str:
    if not name:
        raise InputError("name must not be empty")
    return check_label("name", name)


def _checked(check: Callable[[str], str], text: str) -> str:
    try:
        return check(text)
    except InputError as error:
        raise _wrong(str(error)) from None
