"""The command against servers: a real one, and ones that stall, lie, shed, fail or go away."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from consensuspr.cli import main
from consensuspr.client import Score, Status
from consensuspr.loadtest.load import Load as Schedule
from consensuspr.loadtest.load import Target, pool_from_file
from consensuspr.loadtest.processes import LoadProcessLost, RunProgress, Team
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.loadtest.stats import ENDS
from tests.web.kept import kept_documents

if TYPE_CHECKING:
    from tests.loadtest.conftest import Load, PlayedServer

Shed = Callable[[Any], None]


@pytest.mark.parametrize(
    ("options", "settings", "requests", "each"),
    [
        (("--rate", 80, "--duration", 0.5), {"processes": 2}, 40, 3),
        (("--rate", 40, "--duration", 0.5), {"load": "ramp", "rate_end": 120}, 40, 3),
        (("--concurrency", 3, "--batch", 2), {"requests": 25}, 25, 2),
        (("--profile", "verl", "--rate", 120, "--duration", 0.5), {}, 60, 1),
        (("--profile", "verl", "--concurrency", 5), {"requests": 30}, 30, 1),
        (("--generate", 2000), {"requests": 8, "check": 1, "alpha": 0.25}, 8, 3),
    ],
)
def test_a_real_server(
    real_server: str,
    load: Load,
    options: tuple[object, ...],
    settings: dict[str, object],
    requests: int,
    each: int,
) -> None:
    done = load(real_server, *options, **settings)
    assert (done.code, done.err) == (0, "")
    said = done.json
    assert said["passed"] and said["faults"] == []
    counts = said["requests"]
    assert counts["sent"] == counts["answered"] == requests
    assert (counts["failed"], counts["shed"], counts["abandoned"]) == (0, 0, 0)
    assert sum(said["statuses"].values()) == requests * each
    assert set(said["statuses"]) <= {"OK", "NO_NODES"}
    assert said["checked"]["compared"] >= 16 and said["checked"]["wrong"] == 0
    assert said["latency"]["count"] == requests
    assert said["throughput"]["rollouts_per_s"] > 0
    assert sum(row["answered"] for row in said["timeline"]) == requests


def test_the_table_and_the_files(real_server: str, load: Load, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.html", "a.json", "a.csv")]
    outputs = [word for file in files for word in ("--output", file)]
    done = load(real_server, *outputs, text=True, requests=20)
    assert (done.code, done.err) == (0, "")
    for said in ("Rollouts/s", "p99.9", "request OK", "rollout OK", "scores compared", "all equal"):
        assert said in done.out
    assert all(file.stat().st_size > 100 for file in files)


@pytest.mark.parametrize("profile", ["batch", "verl"])
def test_the_load_is_of_a_named_run(played: PlayedServer, load: Load, profile: str) -> None:
    names: list[object] = []
    played.script = lambda number, context: names.append(
        dict(context.invocation_metadata()).get("consensuspr-run-bin")
    )
    done = load(played.address, "--profile", profile, "--run", "räder", requests=3)
    assert done.code == 0
    assert set(names) == {"räder".encode()}
    assert done.json["scored_with"]["run"] == "räder"


def test_a_name_that_no_run_can_have_is_refused(played: PlayedServer, load: Load) -> None:
    done = load(played.address, "--run", "a\nb", requests=3)
    assert (done.code, played.numbers) == (2, 0)
    assert "run must be printable text" in done.err


def test_verl_samples_share_requests(played: PlayedServer, load: Load) -> None:
    played.script = lambda number, context: time.sleep(0.02)
    done = load(
        played.address, "--profile", "verl", "--concurrency", 64,
        requests=256, check=1, connections=1,
    )  # fmt: skip
    assert done.code == 0
    assert done.json["requests"]["answered"] == 256
    assert max(played.sizes) > 1
    assert len(played.sizes) < 256


@pytest.mark.slow  # ... of one process: test_processes.py
def test_a_stall_shows_in_all_requests_that_were_due_meanwhile(
    played: PlayedServer, load: Load, stall: Callable[..., Any]
) -> None:
    played.script = stall(0.3, 1.0)
    done = load(played.address, "--rate", 50, "--duration", 2)
    assert done.code == 0
    ranks = done.json["latency"]["percentiles_s"]
    # Half of the requests were due in the second without answers, evenly over it.
    assert done.json["requests"]["answered"] == 100
    assert ranks["p99"] >= 0.9
    assert ranks["p90"] >= 0.7
    assert ranks["p75"] >= 0.4


LIES: list[tuple[str, Callable[[Score], None]]] = [
    ("reward", lambda score: setattr(score, "reward", 0.9)),
    ("acc", lambda score: setattr(score, "acc", 1.0 - (score.acc or 0))),
]


@pytest.mark.parametrize(
    ("profile", "field", "lie"),
    [("batch", *LIES[0]), ("verl", *LIES[1])],
)
def test_a_fast_wrong_server_fails(
    played: PlayedServer, load: Load, profile: str, field: str, lie: Callable[[Score], None]
) -> None:
    played.bend = lie
    done = load(played.address, "--profile", profile, requests=20)
    assert done.code == 1
    assert "compared scores are wrong; the first is rollout 1 of those sent" in done.err
    assert f"the server says {field}=" in done.err
    assert done.err.count("\n") == 1
    assert not done.json["passed"]


def test_a_lie_is_not_looked_for_where_nothing_is_checked(played: PlayedServer, load: Load) -> None:
    played.bend = lambda score: setattr(score, "reward", 0.9)
    done = load(played.address, requests=5, check=0)
    assert done.code == 0
    assert done.json["checked"] is None
    assert "no score was compared with the in-process scorer" in done.json["notes"]


def test_an_answer_that_load_left_undecided_is_no_lie(played: PlayedServer, load: Load) -> None:
    def undecided(score: Score) -> None:
        score.status, score.answer_method = Status.ANSWER_UNDECIDED, "load"
        score.acc, score.reward = 0.0, (score.ncr or 0.0) / 2

    played.bend = undecided
    done = load(played.address, requests=10, max_undecided=1)
    assert done.code == 0
    assert done.json["checked"]["undecided"] == done.json["checked"]["compared"] > 0
    assert done.json["statuses"] == {"ANSWER_UNDECIDED": 30}


def test_a_server_that_decides_no_answer_fails(played: PlayedServer, load: Load) -> None:
    def undecided(score: Score) -> None:
        score.status, score.answer_method = Status.ANSWER_UNDECIDED, ""
        score.acc, score.reward, score.answer = None, None, ""

    played.bend = undecided
    done = load(played.address, text=True, requests=10)
    assert done.code == 1
    assert "have an answer that the server left undecided" in done.err
    assert "allowed 5.00% (--max-undecided)" in done.err
    assert " 0 in full, " in done.out and " nodes only; no difference" in done.out
    assert "all equal" not in done.out


def test_a_run_in_which_no_problem_is_known_fails(
    played: PlayedServer, load: Load, tmp_path: Path
) -> None:
    file = tmp_path / "foreign.jsonl"
    file.write_text('{"problem_id": "nobody", "response": "5"}\n')
    done = load(played.address, "--rollouts", file, requests=4)
    assert done.code == 1
    assert "none of 12 rollouts could be scored: 12 UNKNOWN_PROBLEM" in done.err


def test_a_server_that_is_still_starting_is_waited_for(played: PlayedServer, load: Load) -> None:
    asked: list[float] = []  # its first answers take longer than the run

    def script(number: int, context: Any) -> None:
        asked.append(time.monotonic())
        time.sleep(max(0.0, asked[0] + 0.7 - asked[-1]))

    played.script = script
    done = load(
        played.address, "--rate", 20, "--duration", 0.3,
        connections=2, warmup=0.1, timeout=0.3,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert done.json["codes"] == {"OK": 6}


def broken(score: Score) -> None:
    """End a score as a defect of the server does."""
    score.status, score.reward, score.acc = Status.INTERNAL, None, None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"digest": "sha256:another"}, "5 replies were scored with another dataset (sha256:anothe"),
        ({"drop": 1}, "BAD_REPLY: 2 scores came back for 3 rollouts"),
        ({"bend": broken}, "100.00% of what the server took ended in an error"),
    ],
)
def test_a_server_at_fault_fails(
    played: PlayedServer, load: Load, fault: dict[str, Any], says: str
) -> None:
    for name, value in fault.items():
        setattr(played, name, value)
    done = load(played.address, requests=5)
    assert done.code == 1
    assert says in done.err
    checked = done.json["checked"]
    assert (checked["skipped"] > 0, checked["wrong"]) == ("bend" in fault, 0)


def test_an_overloaded_server_sheds_and_that_is_no_failure(
    played: PlayedServer, load: Load, shed: Shed
) -> None:
    played.script = lambda number, context: shed(context) if number % 2 else None
    done = load(played.address, "--rate", 100, "--duration", 0.5)
    assert done.code == 0
    counts = done.json["requests"]
    assert counts["failed"] == 0
    assert counts["answered"] + counts["shed"] == 50
    assert 20 <= counts["shed"] <= 30
    assert done.json["codes"]["RESOURCE_EXHAUSTED"] == counts["shed"]
    assert done.json["latency"]["count"] == counts["answered"]


@pytest.mark.parametrize(
    ("options", "settings"), [((), {"retries": 20}), (("--profile", "verl"), {})]
)
def test_repetitions_are_counted_apart(
    played: PlayedServer,
    load: Load,
    shed: Shed,
    options: tuple[object, ...],
    settings: dict[str, object],
) -> None:
    played.script = lambda number, context: shed(context) if number % 2 else None
    done = load(played.address, "--concurrency", 1, *options, requests=8, **settings)
    assert done.code == 0
    said = done.json
    assert said["requests"]["answered"] == 8
    assert said["requests"]["shed"] == said["requests"]["failed"] == 0
    assert said["requests"]["retries"] == said["failed_attempts"]["RESOURCE_EXHAUSTED"] >= 4


def told_by(page: Path) -> str:
    """Return all that a page of a load test says."""
    return json.dumps(kept_documents(page.read_text(encoding="utf-8")))


def test_every_request_to_an_overloaded_server_is_in_one_column(
    real_server: str, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, series = tmp_path / "page.html", tmp_path / "series.csv"
    done = load(
        real_server, "--generate", 20_000, "--rate", 900, "--duration", 1, "--batch", 64,
        "--output", page, "--output", series, timeout=0.2, connections=32, max_error_rate=1,
    )  # fmt: skip
    counts = done.json["requests"]
    assert counts["sent"] == 900
    assert counts["answered"] < counts["sent"], "that was no overload"
    assert sum(counts[name] for name in ENDS) == counts["sent"]
    ended = ", ".join(f"{counts[name]:,} {heading}" for name, heading in ENDS.items())
    assert f"{counts['sent']:,} requests were sent: {ended}." in told_by(page)
    with series.open() as stream:
        rows = list(csv.DictReader(stream))
    for column, name in {"due": "sent", **{name: name for name in ENDS}}.items():
        assert sum(int(row[column]) for row in rows) == counts[name]
    codes = done.json["codes"]
    assert counts["timed_out"] == codes.get("DEADLINE_EXCEEDED", 0)


def test_a_server_that_sheds_everything_fails(played: PlayedServer, load: Load, shed: Shed) -> None:
    played.script = lambda number, context: shed(context)
    done = load(played.address, "--rate", 100, "--duration", 0.1)
    assert done.code == 1
    assert "none of 10 requests was answered; most often RESOURCE_EXHAUSTED: too much" in done.err


def aborting(code: grpc.StatusCode) -> Callable[[int, Any], None]:
    return lambda number, context: context.abort(code, "broken") if number % 2 else None


@pytest.mark.parametrize(
    ("profile", "code"),
    [("batch", grpc.StatusCode.INTERNAL), ("verl", grpc.StatusCode.INVALID_ARGUMENT)],
)
def test_errors_are_counted_by_code(
    played: PlayedServer, load: Load, profile: str, code: grpc.StatusCode
) -> None:
    played.script = aborting(code)
    done = load(played.address, "--profile", profile, requests=12, retries=0)
    assert done.code == 1
    assert f"most often {code.name}: " in done.err and "broken" in done.err
    assert done.json["requests"]["failed"] == done.json["codes"][code.name] >= 5


def test_requests_that_run_out_of_time_are_in_the_percentiles(
    played: PlayedServer, load: Load
) -> None:
    played.script = lambda number, context: time.sleep(1.0) if number % 2 else None
    done = load(played.address, "--rate", 20, "--duration", 0.5, timeout=0.4)
    assert done.code == 1
    said = done.json
    assert said["codes"]["DEADLINE_EXCEEDED"] == said["requests"]["timed_out"] >= 4
    assert said["requests"]["failed"] == 0
    assert said["latency"]["count"] == 10
    assert said["latency"]["percentiles_s"]["p90"] >= 0.39


def test_finds_the_saturation_of_a_server(
    played: PlayedServer, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.loadtest.saturation.PRECISION", 1.0)  # the first doubling
    monkeypatch.setattr("consensuspr.loadtest.saturation.STABLE_WINDOWS", 2)
    monkeypatch.setattr("consensuspr.loadtest.saturation.LATE_S", 60.0)  # nothing is made twice
    one_at_a_time = threading.Lock()

    def script(number: int, context: Any) -> None:
        with one_at_a_time:
            time.sleep(0.02)

    played.script = script
    file = tmp_path / "search.html"
    done = load(
        played.address, "--find-saturation", "--rate", 32,
        "--max-p99", 1000,  "--output", file, timeout=5, window=0.5,
    )  # fmt: skip
    assert done.code == 0
    search = done.json["search"]
    for counted in (done.json["requests"], *search["steps"]):
        assert counted["sent"] == sum(counted[name] for name in ENDS) > 0
    assert sum(step["sent"] for step in search["steps"]) == done.json["requests"]["sent"]
    assert done.json["requests"]["abandoned"] > 0, "of the rate that was not sustained"
    assert f"{done.json['requests']['abandoned']:,} requests were cut off" in told_by(file)
    assert 16 <= search["sustained"]["rate"] <= 55  # 50 a second at the very most
    assert any(not step["sustained"] for step in search["steps"])
    assert "Latency against load" in told_by(file)


def test_ctrl_c_ends_early_and_reports(
    played: PlayedServer, dataset: Path, rollouts: Path, tmp_path: Path
) -> None:
    config = tmp_path / "load.toml"
    config.write_text("warmup = 0\nprocesses = 2\n")
    command = [sys.executable, "-m", "consensuspr.cli", "loadtest", "--address", played.address]
    command += ["--dataset", str(dataset), "--rollouts", str(rollouts), "--batch", "3"]
    command += ["--rate", "50", "--duration", "60", "--config", str(config)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 60
        while played.numbers < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "ended early by Ctrl-C" in out
    assert "request OK" in out and "all equal" in out


def test_without_a_terminal_progress_is_plain_lines(
    played: PlayedServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.loadtest.terminal.LINE_S", 0.2)
    done = load(played.address, "--rate", 20, "--duration", 0.8, text=True)
    lines = done.err.splitlines()
    assert any("requests/s" in line and "in flight" in line for line in lines)
    assert "\x1b" not in done.err
    assert load(played.address, "--no-progress", text=True, requests=2).err == ""


def test_a_server_that_is_not_there_is_not_waited_for_longer_than_a_request(load: Load) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = load(address, requests=1, timeout=0.5)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert address in done.err and "UNAVAILABLE" in done.err
    assert "0.5" in done.err


def test_a_dataset_that_the_server_does_not_have(
    played: PlayedServer, load: Load, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"problem_id": "q", "ground_truth": "1", "nodes": []}\n')
    done = load(played.address, "--dataset", other, requests=1)
    assert done.code == 2
    assert "has no dataset with the content of" in done.err
    assert played.numbers == 0


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        (("--batch", 0), {}, "batch (--batch): must be at least 1, got 0"),
        (("--batch", 257), {}, "batch must be at most 256, which is what the server takes"),
        (
            ("--generate", 100_000, "--batch", 20),
            {},
            "a request of 2,000,000 bytes; the server takes",
        ),
        (("--rate", 0), {}, "rate (--rate): must be more than 0, got 0"),
        (("--rate", 5, "--concurrency", 2), {}, "concurrency does not go with rate"),
        ((), {"arrivals": "weird"}, "variable CONSENSUSPR_LOADTEST_ARRIVALS): must be 'c"),
        (("--profile", "weird"), {}, "'--profile'"),
        (("--concurrency", 0), {}, "(--concurrency): must be at least 1"),
        (("--concurrency", 65537), {}, "must be at most 65536, got 65537"),
        (("--duration", 0), {}, "duration (--duration): must be at least 0.1, got 0"),
        ((), {"warmup": -1}, "_WARMUP): must be at least 0, got '-1'"),
        ((), {"processes": 65}, "_PROCESSES): must be at most 64, got '65'"),
        ((), {"connections": 0}, "_CONNECTIONS): must be at least 1"),
        ((), {"connections": 1025}, "_CONNECTIONS): must be at most 1024"),
        ((), {"timeout": 0}, "_TIMEOUT): must be at least 0.001"),
        ((), {"timeout": 86401}, "_TIMEOUT): must be at most 86400"),
        ((), {"retries": -1}, "_RETRIES): must be at least 0, got '-1'"),
        ((), {"check": 1.5}, "_CHECK): must be at most 1, got '1.5'"),
        ((), {"max_error_rate": 2}, "_MAX_ERROR_RATE): must be at most 1"),
        (("--alpha", 2), {}, "alpha must be a number in [0, 1], got 2"),
        (("--epoch", -1), {}, "(--epoch): must be at least 0, got -1"),
        ((), {"warmups": 1}, "did you mean CONSENSUSPR_LOADTEST_WARMUP?"),
        (("--max-p99", 5), {}, "max_p99 goes with find_saturation, which is not given"),
        (("--generate", 10), {}, "--generate must be in [64, 16777216] bytes, got 10"),
        (("--generate", 99, "--rollouts", "x"), {}, "either --rollouts FILE or --generate BYTES"),
        (("--rollouts", "gone.jsonl"), {}, "gone.jsonl: no such file"),
        (("--dataset", "gone.jsonl"), {}, "--dataset 'gone.jsonl': there is no such file"),
        (("--output", "a.pdf"), {}, "--output must end in one of .html, .json, .csv, got 'a.pdf'"),
        (("--config", "gone.toml"), {}, "cannot read gone.toml"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    played: PlayedServer,
    load: Load,
    options: tuple[object, ...],
    settings: dict[str, object],
    says: str,
) -> None:
    done = load(played.address, *options, **settings)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert played.numbers == 0


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    played: PlayedServer, load: Load, tmp_path: Path
) -> None:
    config = tmp_path / "load.toml"
    config.write_text("concurrency = 3\nseed = 3\nbatch = 3\ncheck = 0.5\n")
    options = ("--config", config, "--concurrency", 1, "--batch", 1)
    done = load(played.address, *options, concurrency=2, seed=2, requests=2)
    assert done.code == 0
    told = done.json["settings"]
    assert [told[name] for name in ("concurrency", "seed", "batch", "check")] == [1, 2, 1, 0.5]


def test_every_setting_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loadtest", "--list-settings"]) == 0
    listed = capsys.readouterr().out
    names = [*LoadSettings.model_fields, "reward", "alpha", "answer_rule"]
    assert [name for name in names if f"\n# {name} = " not in listed] == []


def test_a_load_process_that_dies_ends_the_test(
    played: PlayedServer, target: Target, rollouts: Path
) -> None:
    settings = LoadSettings(batch=3, rate=20, duration=60, warmup=0, processes=2)

    def kill(progress: RunProgress) -> bool:
        if progress.elapsed_s > 0.3:
            team._members[1][0].kill()
        return False

    with (
        pytest.raises(LoadProcessLost, match="ended before the run was over"),
        Team(replace(target, address=played.address), settings, pool_from_file(rollouts)) as team,
    ):
        team.run(Schedule.of(settings), kill)


@pytest.mark.parametrize("rate", [20.0, None])
def test_load_processes_leave_in_the_middle_of_a_run_when_nobody_leads(
    played: PlayedServer, target: Target, rollouts: Path, rate: float | None
) -> None:
    settings = LoadSettings(batch=3, rate=rate, duration=60, warmup=0, processes=2)
    team = Team(replace(target, address=played.address), settings, pool_from_file(rollouts))
    processes = [process for process, _ in team._members]

    def hang_up(progress: RunProgress) -> bool:
        if progress.tally.answered:
            for _, pipe in team._members:
                pipe.close()
            raise KeyboardInterrupt  # as a second Ctrl-C does
        return False

    with pytest.raises(KeyboardInterrupt), team:
        try:
            team.run(Schedule.of(settings), hang_up)
        finally:
            for process in processes:
                process.join(5)
            # Not killed: they have left by themselves.
            assert [process.exitcode for process in processes] == [0, 0]
