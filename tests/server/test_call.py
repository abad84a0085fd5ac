"""When work stops because nobody waits for it."""

from __future__ import annotations

import time

import grpc
import pytest

from consensuspr.server.service import Abort, RunningCall


def test_work_goes_on_while_somebody_waits() -> None:
    RunningCall().check()
    RunningCall(time.monotonic() + 60).check()


def test_work_stops_at_the_deadline() -> None:
    with pytest.raises(Abort) as caught:
        RunningCall(time.monotonic()).check()
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_work_stops_when_the_caller_leaves() -> None:
    call = RunningCall(time.monotonic() + 60)
    call.abandon()
    with pytest.raises(Abort) as caught:
        call.check()
    assert caught.value.code is grpc.StatusCode.CANCELLED
