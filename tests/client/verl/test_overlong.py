"""DAPO's overlong penalty."""

from __future__ import annotations

from typing import Any

import pytest

from consensuspr.client.verl.config import OverlongPenalty
from consensuspr.errors import InputError

BUFFER = {"enable": True, "len": 512, "penalty_factor": 1.0, "log": False}


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (3584, 0.0), (3585, -1 / 512), (3840, -0.5), (4096, -1.0), (4352, -1.5)],
)
def test_it_grows_within_the_buffer(tokens: int, penalty: float) -> None:
    penalise = OverlongPenalty.of(4096, BUFFER)
    assert penalise is not None
    assert penalise(tokens) == penalty


@pytest.mark.parametrize("buffer", [None, {}, {**BUFFER, "enable": False}])
def test_it_is_off_unless_enabled(buffer: Any) -> None:
    assert OverlongPenalty.of(None, buffer) is None


@pytest.mark.parametrize(
    ("max_resp_len", "buffer", "sentence"),
    [
        (None, BUFFER, r"max_resp_len must be .* at least overlong_buffer_cfg.len \(512\), got N"),
        (511, BUFFER, "got 511"),
        (4096, {**BUFFER, "len": 0}, "overlong_buffer_cfg.len must be .* 1 or more, got 0"),
        (4096, {"enable": True}, "overlong_buffer_cfg.len must be .* got None"),
        (4096, {**BUFFER, "penalty_factor": -1}, "penalty_factor must be .* got -1"),
        (4096, {**BUFFER, "lenn": 1}, "unknown setting 'lenn' in overlong_buffer_cfg"),
    ],
)
def test_what_cannot_be_meant_is_refused(max_resp_len: Any, buffer: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OverlongPenalty.of(max_resp_len, buffer)
