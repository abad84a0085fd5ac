"""One exception for every gRPC code, retries only where they help, and a channel's options."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from consensuspr.client.transport import ERRORS, RpcFailure
from consensuspr.errors import (
    DeadlineExceeded,
    IncompatibleServer,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    ServerFault,
    Unavailable,
    UnknownDataset,
)

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
    **dict.fromkeys((Code.PERMISSION_DENIED, Code.UNAUTHENTICATED), InvalidRequest),
}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not Code.OK])
def test_every_code_is_one_exception_and_few_are_transient(code: grpc.StatusCode) -> None:
    failure = RpcFailure.of(FailedCall(code))
    error = failure.exception("Score at host:1")
    assert type(error) is OF_A_CODE[code]
    assert str(error) == f"Score at host:1: the reason ({code.name})"
    # Without a hint: a server that is away, or ends.
    assert failure.is_transient == (code in (Code.UNAVAILABLE, Code.CANCELLED))


def test_every_exception_of_the_service_is_reached_by_some_code() -> None:
    direct = RewardServiceError.__subclasses__()
    finer = [error for one in direct for error in one.__subclasses__()]
    assert set(ERRORS.values()) == {*direct, *finer}


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("last error: UNKNOWN: ipv4:10.0.0.1:1: … Connection refused", "no server listens there"),
        ("errors resolving no:1: [… Domain name not found]", "there is no host of that name"),
        ("DNS resolution failed for no:1", "there is no host of that name"),
        ("last error: UNKNOWN: ipv4:10.0.0.1:1: … No route to host", "the host cannot be reached"),
        ("ipv4:1.2.3.4:1: Failed parsing HTTP/2 (…)", "what listens there is no gRPC server"),
        ("the server is draining", "the server is draining"),
    ],
)
def test_a_connection_that_cannot_be_made_is_told_in_plain_words(details: str, said: str) -> None:
    failure = RpcFailure.of(FailedCall(Code.UNAVAILABLE, details=details))
    assert str(failure.exception("Score")).startswith(f"Score: {said}")
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


# Page faults of taking and freeing the memory of eight requests, after it was done once.
FAULTS = """
import resource, sys
from consensuspr.client.transport import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytearray(b"x") * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_memory_of_messages_is_kept_for_the_next_ones() -> None:
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}

    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep") < faults("leave") / 4
