"""Limits of the system: raised where that is allowed, told of where they are too low."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.errors import InputError
from consensuspr.server import limits
from consensuspr.server.config import ServerConfig
from tests.server.conftest import RIGHT

if TYPE_CHECKING:
    from tests.server.conftest import ServeReal

CONFIG = ServerConfig(datasets={"default": Path("unused")}, workers=4)


def limited(which: str, soft: int, hard: int) -> str:
    return f"import resource; resource.setrlimit(resource.{which}, ({soft}, {hard}))"


@pytest.mark.parametrize(
    ("which", "limit", "sentence"),
    [
        (
            "RLIMIT_NOFILE",
            64,
            "the limit on open files (ulimit -n) is 64; a server needs at least 256",
        ),
        (
            "RLIMIT_AS",
            600 << 20,
            "the limit on address space (ulimit -v) is 614400 KiB; a worker and its answer"
            " processes need at least 1048576 KiB",
        ),
    ],
    ids=["files", "memory"],
)
def test_too_low_a_limit_is_one_sentence(
    serve_real: ServeReal, which: str, limit: int, sentence: str
) -> None:
    server = serve_real(prelude=limited(which, limit, limit))
    assert server.process.wait(60) == 2
    assert server.log.read_text().strip() == sentence
    assert list(server.scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("which", "soft", "hard"),
    [("RLIMIT_NOFILE", 64, 300), ("RLIMIT_AS", 1 << 30, 1 << 30)],
    ids=["files", "memory"],
)
def test_what_is_asked_for_suffices(
    serve_real: ServeReal, which: str, soft: int, hard: int
) -> None:
    server = serve_real(prelude=limited(which, soft, hard)).wait_until_listening()
    for pid in (server.process.pid, *server.worker_pids()):
        assert resource.prlimit(pid, getattr(resource, which)) == (hard, hard)
    with RewardClient(server.address) as client:
        hard_answer = r"\boxed{\int_0^6 x dx}"
        scores = client.score([Rollout("ducks", RIGHT), Rollout("ducks", hard_answer)])
    assert [score.reward for score in scores] == [1.0, 0.5]
    assert server.stop() == 0


def test_threads_are_counted_where_they_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(which: int) -> tuple[int, int]:
        return (150, 150) if which == resource.RLIMIT_NPROC else (1 << 40, 1 << 40)

    monkeypatch.setattr(resource, "getrlimit", limit)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr(limits, "_threads_of_this_user", lambda: 6)
    limits.check_limits(CONFIG)
    monkeypatch.setattr(limits, "_threads_of_this_user", lambda: 7)
    with pytest.raises(InputError, match=r"is 150, of which 7 run; .*workers=4 needs 144 more"):
        limits.check_limits(CONFIG)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    limits.check_limits(CONFIG)


def test_threads_of_this_user_are_seen() -> None:
    assert limits._threads_of_this_user() >= 1
