"""One exception for every gRPC code, and repetitions only where they help, spread out."""

from __future__ import annotations

from types import SimpleNamespace
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
GONE = RpcFailure(Code.UNAVAILABLE, "gone")
FULL = RpcFailure(Code.RESOURCE_EXHAUSTED, "full", retry_after_s=3.0)
OTHER_DATASET = RpcFailure(Code.FAILED_PRECONDITION, "another", digest="sha256:1")
WRONG = RpcFailure(Code.INVALID_ARGUMENT, "wrong", retry_after_s=1.0)


def failed(code: grpc.StatusCode, details: str = "the reason", **metadata: str) -> RpcFailure:
    """Read a failed call as gRPC shows it."""
    sent = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    return RpcFailure.of(
        SimpleNamespace(code=lambda: code, details=lambda: details, trailing_metadata=lambda: sent)
    )


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
    failure = failed(code)
    error = failure.exception("Score at host:1")
    assert type(error) is OF_A_CODE[code]
    assert str(error) == f"Score at host:1: the reason ({code.name})"
    # Without a hint: a server that is away, or ends.
    assert failure.is_transient == (code in (Code.UNAVAILABLE, Code.CANCELLED))


def test_a_digest_makes_a_dataset_mismatch() -> None:
    digest: dict[str, Any] = {DATASET_DIGEST_KEY.replace("-", "_"): "sha256:1"}
    other = failed(Code.FAILED_PRECONDITION, **digest).exception("Score")
    assert isinstance(other, DatasetMismatch)
    assert other.digest == "sha256:1"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ("last error: UNKNOWN: ipv4:10.0.0.1:1: … Connection refused", "no server listens there"),
        ("errors resolving no:1: [… Domain name not found]", "there is no host of that name"),
        ("DNS resolution failed for no:1", "there is no host of that name"),
        ("last error: UNKNOWN: ipv4:10.0.0.1:1: … No route to host", "the host cannot be reached"),
        ("ipv4:1.2.3.4:1: Failed parsing HTTP/2 (…)", "the server there does not speak gRPC"),
        ("the server is draining", "the server is draining"),
    ],
)
def test_a_failed_connection_has_a_plain_message(details: str, message: str) -> None:
    assert failed(Code.UNAVAILABLE, details).details.startswith(message)
    # Any other code comes from a server, which gives the reason itself.
    assert failed(Code.INTERNAL, details).details == details


@pytest.mark.parametrize(
    ("hint", "expected"), [("250", 0.25), ("-5", 0.0), ("soon", None), (None, None)]
)
def test_retry_hint(hint: str | None, expected: float | None) -> None:
    failure = failed(Code.RESOURCE_EXHAUSTED, **({} if hint is None else {"retry_after_ms": hint}))
    assert failure.retry_after_s == expected
    assert failure.is_transient == (expected is not None)
    error = failure.exception("Score")
    assert isinstance(error, Overloaded) and error.retry_after_s == expected


def most(low: float, high: float) -> float:
    assert low == 0.0
    return high


@pytest.mark.parametrize(
    ("attempts", "failure", "elsewhere", "delay_s"),
    [
        (1, GONE, False, 0.1),
        (3, GONE, False, 0.4),
        (7, GONE, False, 5.0),
        (10_000, GONE, False, 5.0),
        (1, FULL, False, 3.1),
        (5, FULL, True, 0.1),  # another server is ready: its hint does not count
        (1, OTHER_DATASET, True, 0.1),
        (1, OTHER_DATASET, False, None),
        (1, WRONG, True, None),
    ],
)
def test_the_wait_doubles_up_to_its_bound(
    attempts: int, failure: RpcFailure, elsewhere: bool, delay_s: float | None
) -> None:
    delay = RetryPolicy().delay_s(attempts, failure, most, elsewhere)
    assert delay == (None if delay_s is None else pytest.approx(delay_s))
    assert RetryPolicy(max_attempts=attempts).delay_s(attempts, failure, most, elsewhere) is None
