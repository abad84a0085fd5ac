"""The command against servers: a real one, and ones that stall, lie, refuse or fail."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from consensuspr.client import Score, Status
from tests.loadtest.conftest import refuse
from tests.servers import free_port

if TYPE_CHECKING:
    from tests.loadtest.conftest import Load, PlayedServer


@pytest.mark.parametrize(
    ("options", "sent", "each"),
    [
        (("--rate", 50), 20, 3),
        (("--rate", 50, "--processes", 2, "--connections", 2), 20, 3),
        (("--concurrency", 2, "--batch", 2), None, 2),
    ],
)
def test_a_real_server_passes(
    real_server: str, load: Load, options: tuple[object, ...], sent: int | None, each: int
) -> None:
    done = load(real_server, *options)
    assert (done.code, done.err) == (0, "")
    result = done.json["result"]
    assert sent in (None, result["sent"])
    assert result["answered"] == result["sent"] > 0
    assert (result["failed"], result["rejected"]) == (0, 0)
    assert sum(done.json["statuses"].values()) == result["sent"] * each
    assert set(done.json["statuses"]) <= {"OK", "NO_NODES"}
    assert done.json["checked"]["compared"] > 0 == done.json["checked"]["wrong"]
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["max"]
    assert result["rollouts_per_s"] > 0


def test_prints_a_markdown_table_and_writes_json(
    played: PlayedServer, load: Load, tmp_path: Path
) -> None:
    file = tmp_path / "load.json"
    done = load(played.address, "--rate", 50, "--output", file, text=True)
    assert done.code == 0
    head, rule, row, *rest = done.out.splitlines()
    assert head.startswith("| offered/s | requests/s | rollouts/s | MB/s | p50 ms |")
    assert set(rule) == set("|-:")
    assert row.startswith("| 50.0 | ") and row.count("|") == head.count("|")
    assert any("compared with the in-process scorer" in line and "0 wrong" in line for line in rest)
    assert json.loads(file.read_text())["result"]["sent"] == 20


def test_latency_counts_from_when_a_request_was_due(played: PlayedServer, load: Load) -> None:
    one_at_a_time = threading.Lock()

    def script(number: int, context: Any) -> None:
        with one_at_a_time:
            time.sleep(0.3 if number == 5 else 0)

    played.script = script
    latency = load(played.address, "--rate", 50).json["result"]["latency_ms"]
    # Requests that were due during the pause waited for its end.
    assert latency["p50"] < latency["p90"] and 150 < latency["p90"] < latency["max"] < 600


def lie(score: Score) -> None:
    score.reward = 0.125


def undecided(score: Score) -> None:
    score.status, score.acc, score.reward = Status.ANSWER_UNDECIDED, 0.0, 0.0


def broken(score: Score) -> None:
    score.status, score.reward, score.acc = Status.INTERNAL, None, None


def unknown(score: Score) -> None:
    score.status, score.reward, score.acc, score.ncr = Status.UNKNOWN_PROBLEM, None, None, None


def odd_calls_end(code: grpc.StatusCode) -> Any:
    return lambda number, context: number % 2 and context.abort(code, "broken")


@pytest.mark.parametrize(
    ("behaviour", "code", "says"),
    [
        ({"bend": lie}, 1, "3 of 3 compared scores are wrong; rollout 1, problem 'ducks': the"),
        ({"bend": undecided}, 0, ""),
        ({"bend": broken}, 1, "rollouts ended INTERNAL"),
        ({"bend": unknown}, 1, "rollouts could be scored: "),
        ({"drop": 1}, 1, "ServerFault: "),
        (
            {"script": odd_calls_end(grpc.StatusCode.INTERNAL)},
            1,
            "of the requests failed, more than 1.00% (--max-error-rate); ServerFault: ",
        ),
        ({"script": lambda _, context: refuse(context)}, 1, "was answered; Overloaded: "),
    ],
)
def test_a_server_at_fault_fails(
    played: PlayedServer, load: Load, behaviour: dict[str, Any], code: int, says: str
) -> None:
    for name, value in behaviour.items():
        setattr(played, name, value)
    done = load(played.address, "--rate", 30)
    assert done.code == code
    assert says in done.err and says in " ".join(done.json["faults"])


def test_refusals_are_counted_apart_from_failures(played: PlayedServer, load: Load) -> None:
    played.script = lambda number, context: refuse(context) if number % 2 else None
    done = load(played.address, "--rate", 50)
    assert done.code == 0
    result = done.json["result"]
    assert result["failed"] == 0 and result["answered"] + result["rejected"] == 20
    assert done.json["errors"] == {"Overloaded": result["rejected"]} and result["rejected"] == 10


def test_requests_that_run_out_of_time_are_in_the_percentiles(
    played: PlayedServer, load: Load
) -> None:
    played.script = lambda number, context: time.sleep(0.6 if number else 0)
    done = load(played.address, "--rate", 20, "--timeout", 0.3)
    assert done.code == 1
    assert done.json["errors"] == {"DeadlineExceeded": 8}
    assert done.json["result"]["latency_ms"]["p50"] >= 290


def test_finds_the_highest_sustained_rate(
    played: PlayedServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.loadtest.run.PRECISION", 1.0)  # the first doubling
    one_at_a_time = threading.Lock()

    def script(number: int, context: Any) -> None:
        with one_at_a_time:
            time.sleep(0.02)

    played.script = script
    options = ("--find-saturation", "--rate", 16, "--duration", 1, "--max-p99", 400)
    done = load(played.address, *options)
    assert done.code == 0
    assert done.json["result"]["rate"] in (16, 32)  # 50 a second at the very most
    *kept, last = done.json["steps"]
    assert last["broken"] and not any(step["broken"] for step in kept)
    assert done.err.count("requests/s: sustained") == len(kept)


def test_a_server_that_is_not_there(load: Load) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = load(address, "--timeout", 0.5)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert address in done.err and "UNAVAILABLE" in done.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--batch", 0), "'--batch'"),
        (("--batch", 257), "--batch must be at most 256, got 257"),
        (("--rate", 0), "--rate must be above 0 requests a second, got 0"),
        (("--duration", 0), "'--duration'"),
        (
            ("--find-saturation", "--rate", 1, "--duration", 1),
            "--find-saturation needs at least 2 requests in its first step",
        ),
        (("--max-p99", 5), "--max-p99 needs --find-saturation"),
        (("--dataset", "gone.jsonl"), "--dataset 'gone.jsonl': no such file"),
        (("--output", "gone/a.json"), "--output 'gone/a.json': no such folder"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    played: PlayedServer, load: Load, options: tuple[object, ...], says: str
) -> None:
    done = load(played.address, *options)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert played.sizes == []
