"""One exception for every gRPC code, and repetitions only where they help, spread out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.errors import (
    AccessDenied,
    DatasetMismatch,
    DeadlineExceeded,
    IncompatibleServer,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    ServerFault,
    Unavailable,
    UnknownDataset,
)
from consensuspr.v1 import DATASET_DIGEST_KEY

Code = grpc.StatusCode


class FailedCall:
    """A failed call as gRPC shows it."""

    def __init__(
        self,
        code: grpc.StatusCode,
        metadata: Sequence[tuple[str, str]] = (),
        details: str = "the reason",
    ) -> None:
        self._code = code
        self._metadata = metadata
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._metadata


OF_A_CODE: dict[grpc.StatusCode, type[RewardServiceError]] = {
    Code.CANCELLED: Unavailable,
    Code.UNAVAILABLE: Unavailable,
    Code.RESOURCE_EXHAUSTED: Overloaded,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.NOT_FOUND: UnknownDataset,
    Code.FAILED_PRECONDITION: IncompatibleServer,
    Code.UNIMPLEMENTED: IncompatibleServer,
    **dict.fromkeys((Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS), ServerFault),
    **dict.fromkeys((Code.ABORTED, Code.ALREADY_EXISTS), ServerFault),
    **dict.fromkeys((Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE), InvalidRequest),
    **dict.fromkeys((Code.PERMISSION_DENIED, Code.UNAUTHENTICATED), AccessDenied),
}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not Code.OK])
def test_every_code_is_one_exception_and_few_are_transient(code: grpc.StatusCode) -> None:
    failure = RpcFailure.of(FailedCall(code))
    error = failure.exception("Score at host:1")
    assert type(error) is OF_A_CODE[code]
    assert str(error) == f"Score at host:1: the reason ({code.name})"
    # Without a hint: a server that is away, or ends.
    assert failure.is_transient == (code in (Code.UNAVAILABLE, Code.CANCELLED))


def test_a_digest_makes_a_dataset_mismatch() -> None:
    digest = ((DATASET_DIGEST_KEY, "sha256:1"),)
    other = RpcFailure.of(FailedCall(Code.FAILED_PRECONDITION, digest)).exception("Score")
    assert isinstance(other, DatasetMismatch)
    assert other.digest == "sha256:1"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        (
            "last error: UNKNOWN: ipv4:10.0.0.1:1: … Connection refused",
            "no server listens there; check the address, or start one with consensuspr serve",
        ),
        ("errors resolving no:1: [… Domain name not found]", "there is no host of that name"),
        ("DNS resolution failed for no:1", "there is no host of that name"),
        ("last error: UNKNOWN: ipv4:10.0.0.1:1: … No route to host", "the host cannot be reached"),
        ("ipv4:1.2.3.4:1: Failed parsing HTTP/2 (…)", "the server there does not speak gRPC"),
        ("the server is draining", "the server is draining"),
    ],
)
def test_a_failed_connection_has_a_plain_message(details: str, message: str) -> None:
    failure = RpcFailure.of(FailedCall(Code.UNAVAILABLE, details=details))
    assert str(failure.exception("Score")).startswith(f"Score: {message}")
    # Any other code comes from a server, which says why itself.
    assert RpcFailure.of(FailedCall(Code.INTERNAL, details=details)).details == details


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([("retry-after-ms", "250")], 0.25),
        ([("other", "1"), ("retry-after-ms", "0")], 0.0),
        ([("retry-after-ms", "-5")], 0.0),
        ([("retry-after-ms", "soon")], None),
        ([], None),
    ],
)
def test_retry_hint(metadata: list[tuple[str, str]], expected: float | None) -> None:
    failure = RpcFailure.of(FailedCall(Code.RESOURCE_EXHAUSTED, metadata))
    assert failure.retry_after_s == expected
    assert failure.is_transient == (expected is not None)
    error = failure.exception("Score")
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == expected


GONE = RpcFailure(Code.UNAVAILABLE, "gone")


def most(low: float, high: float) -> float:
    assert low == 0.0
    return high


@pytest.mark.parametrize(
    ("attempts", "ceiling"), [(1, 0.1), (2, 0.2), (3, 0.4), (6, 3.2), (7, 5.0), (10_000, 5.0)]
)
def test_the_wait_doubles_up_to_its_bound(attempts: int, ceiling: float) -> None:
    assert RetryPolicy().delay_s(attempts, GONE, most) == pytest.approx(ceiling)


def test_what_is_not_repeated() -> None:
    failure = RpcFailure(Code.INVALID_ARGUMENT, "no", retry_after_s=1.0)
    assert RetryPolicy().delay_s(1, failure, most) is None
    policy = RetryPolicy(max_attempts=2)
    assert policy.delay_s(1, GONE, most) is not None
    assert policy.delay_s(2, GONE, most) is None
