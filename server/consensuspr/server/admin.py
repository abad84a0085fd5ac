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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict

import grpc

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring.types import check_digest, check_label
from consensuspr.server.config import ServerConfig
from consensuspr.server.datasets import Change, Mode, Served, WorkerDatasets
from consensuspr.server.processes import Message
from consensuspr.server.service import Abort, Context, parse_message
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.server_info import describe_datasets, encode_dataset_info

# For a caller without a deadline; more than any dataset takes to be read.
PATIENCE_S = 24 * 3600.0

_MODES = {
    pb.PUT_MODE_UNSPECIFIED: Mode.ANY,
    pb.PUT_MODE_ADD: Mode.ADD,
    pb.PUT_MODE_REPLACE: Mode.REPLACE,
}


class AdminService:
    """The admin RPCs on a worker's event loop.

    Args:
        config: settings.
        datasets: of this worker.
        ask: has the supervisor make a change within seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        datasets: WorkerDatasets,
        ask: Callable[[Message, float], Awaitable[Message]],
    ) -> None:
        self._datasets = datasets
        self._ask = ask
        places = {os.path.dirname(os.path.realpath(path)) for path in config.datasets.values()}
        if config.dataset_folder is not None:
            places.add(os.path.realpath(config.dataset_folder))
        self._places = sorted(places)

    def methods(self) -> Mapping[str, Callable[[bytes, Context], Awaitable[bytes]]]:
        """Return the answer to each method; messages pass as bytes."""
        return {"ListDatasets": self._list, "PutDataset": self._put, "RemoveDataset": self._remove}

    async def _list(self, raw: bytes, context: Context) -> bytes:
        parse_message(pb.ListDatasetsRequest, raw)
        served = sorted(self._datasets.served.items())
        reply = pb.ListDatasetsResponse(datasets=[self._message(*item) for item in served])
        return reply.SerializeToString()

    async def _put(self, raw: bytes, context: Context) -> bytes:
        request = parse_message(pb.PutDatasetRequest, raw)
        try:
            if request.mode not in _MODES:
                known = ", ".join(map(str, _MODES))
                raise InputError(f"mode must be one of {known}, got {request.mode}")
            if request.expect_digest:
                check_digest(request.expect_digest)
            name, path = _checked_name(request.name), request.path
            if path:
                await asyncio.to_thread(self._check_place, path)
            elif name not in self._datasets.served:
                raise InputError(f"path is required, because there is no dataset {name!r} yet")
        except InputError as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        path = path or self._datasets.served[name].path
        changed = await self._change(
            Change(name, path, _MODES[request.mode], request.expect_digest), context
        )
        digest = changed.pop("previous_digest")
        served = self._message(name, Served(**changed))
        reply = pb.PutDatasetResponse(dataset=served, previous_digest=digest)
        return reply.SerializeToString()

    async def _remove(self, raw: bytes, context: Context) -> bytes:
        request = parse_message(pb.RemoveDatasetRequest, raw)
        try:
            name = _checked_name(request.name)
        except InputError as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        changed = await self._change(Change(name, None), context)
        return pb.RemoveDatasetResponse(digest=changed["previous_digest"]).SerializeToString()

    async def _change(self, change: Change, context: Context) -> Message:
        remaining_s = context.time_remaining()
        try:
            changed = await self._ask(
                asdict(change), PATIENCE_S if remaining_s is None else remaining_s
            )
        except ConsensusPRError as error:
            raise Abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from None
        if "refused" in changed:
            raise Abort(grpc.StatusCode[changed["refused"]], changed["reason"])
        return changed

    def _check_place(self, path: str) -> None:
        if not os.path.isabs(path) or "\0" in path:
            raise InputError(f"path must be absolute, got {path[:200]!r}")
        found = os.path.realpath(path)
        if not any(os.path.commonpath((place, found)) == place for place in self._places):
            raise InputError(
                f"path must be in or below {', '.join(self._places)}, the folders of the datasets"
                f" in the server's settings, got {path[:200]!r}",
            )

    def _message(self, name: str, served: Served) -> pb.ServedDataset:
        """Return the message of a dataset; without counts where it was changed again since."""
        index = self._datasets.indexes().get(name)
        if index is not None and index.digest == served.digest:
            [info] = map(encode_dataset_info, describe_datasets({name: index}))
        else:
            info = pb.DatasetInfo(name=name, digest=served.digest)
        return pb.ServedDataset(info=info, path=served.path, loaded_unix_s=served.loaded_unix_s)


def _checked_name(name: str) -> str:
    if not name:
        raise InputError("name must not be empty")
    return check_label("name", name)
