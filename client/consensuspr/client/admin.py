"""The client of a server's admin service: list, put and remove datasets while it serves.

A change is one request to one server, and is never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import grpc
from google.protobuf.message import Message

from consensuspr.client.retries import RpcFailure
from consensuspr.client.transport import Access, Connector, check_target
from consensuspr.errors import InputError, InvalidRequest
from consensuspr.v1 import ADMIN_SERVICE_NAME, PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.server_info import DatasetInfo, decode_dataset_info

PutMode = Literal["any", "add", "replace"]

_REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION")

_MODES: dict[PutMode, pb.PutMode.ValueType] = {
    "any": pb.PUT_MODE_UNSPECIFIED,
    "add": pb.PUT_MODE_ADD,
    "replace": pb.PUT_MODE_REPLACE,
}


@dataclass(frozen=True, slots=True)
class ServedDataset:
    """A dataset as a server serves it; ``path`` is on the server's machine."""

    info: DatasetInfo
    path: str
    loaded_unix_s: float

    @classmethod
    def of(cls, sent: pb.ServedDataset) -> Self:
        """Decode a message."""
        return cls(decode_dataset_info(sent.info), sent.path, sent.loaded_unix_s)


@dataclass(frozen=True, slots=True)
class PutDataset:
    """A dataset that was put, and the digest of the one that it replaced."""

    dataset: ServedDataset
    previous_digest: str | None


class AdminClient:
    """Changes the datasets of a server; a context manager that closes it.

    Args:
        address: ``HOST:PORT`` of one server.
        timeout_s: for each call; reading a large dataset takes minutes.
        access: token and TLS; None: from the environment.

    Raises:
        InputError: the address has another form.
    """

    def __init__(
        self, address: str, timeout_s: float = 600.0, access: Access | None = None
    ) -> None:
        if "," in address:
            raise InputError(f"give the address of one server, got {address!r}")
        self._address = check_target(address)
        self._timeout_s = timeout_s
        self._connector = Connector(access)
        self._channel = self._connector.open(self._address)

    def list(self) -> list[ServedDataset]:
        """Return the datasets that are served, sorted by name; errors as for :meth:`put`."""
        request = pb.ListDatasetsRequest(protocol_version=PROTOCOL_VERSION)
        reply = self._call("ListDatasets", request, pb.ListDatasetsResponse)
        return [ServedDataset.of(dataset) for dataset in reply.datasets]

    def put(
        self, name: str, path: str = "", mode: PutMode = "any", expect_digest: str | None = None
    ) -> PutDataset:
        """Add a dataset, or replace one; return when every worker of the server scores with it.

        Args:
            name: of the dataset.
            path: absolute, on the server's machine; empty: the file that it was read from.
            mode: whether the name must be new, or known.
            expect_digest: the server rejects a file with another digest.

        Raises:
            InvalidRequest: the server rejects the change: a bad file or name, or no permission.
            RewardServiceError: it cannot be asked.
        """
        request = pb.PutDatasetRequest(
            name=name, path=path, mode=_MODES[mode], expect_digest=expect_digest or ""
        )
        reply = self._call("PutDataset", request, pb.PutDatasetResponse)
        return PutDataset(ServedDataset.of(reply.dataset), reply.previous_digest or None)

    def remove(self, name: str) -> str:
        """Remove a dataset; return its digest.  Errors as for :meth:`put`."""
        request = pb.RemoveDatasetRequest(name=name)
        return str(self._call("RemoveDataset", request, pb.RemoveDatasetResponse).digest)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, request: Message, reply: type[Message]) -> Any:
        call = self._channel.unary_unary(
            f"/{ADMIN_SERVICE_NAME}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            metadata = self._connector.metadata()
            return call(request, timeout=self._timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            failure = RpcFailure.of(error)
            if failure.code.name in _REFUSALS:
                raise InvalidRequest(f"{self._address}: {failure.details}") from None
            raise failure.exception(f"{method} at {self._address}") from None
