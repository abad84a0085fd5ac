"""``run()`` as a process of its own: starting, draining, crashing, failing clearly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from psutil import Process

from consensuspr.client import RewardClient, Rollout
from consensuspr.v1 import PROTOCOL_VERSION, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.v1.scoring_pb2_grpc import ScoringServiceStub
from tests.processes import command_line, descendants, is_alive, wait_for, wait_until_gone
from tests.servers import ServeProcess, run_with

if TYPE_CHECKING:
    from tests.server.conftest import ServeReal

RIGHT = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. #### 18"
# Only computer algebra decides it.
SYMBOLIC = r"\boxed{\int_0^6 x dx}"

# What a server runs first to replace dead workers without much ado.
HURRY = (
    "import consensuspr.server.supervisor as s; s.FIRST_BACKOFF_S = s.MAX_BACKOFF_S = 0.05;"
    " s.MAX_FAILED_STARTS = 2"
)


def score_one(address: str, dataset: str | None = None) -> float | None:
    with RewardClient(address) as client:
        return client.score([Rollout("ducks", RIGHT)], dataset=dataset)[0].reward


# Makes folders as servers make them, by name: of one that was killed, one that lives, one that has
# just been started, and one of something else.
FOLDERS = """
import fcntl, os, tempfile
for name in ("serve-killed", "serve-alive", "serve-young", "ray-1"):
    folder = os.path.join(tempfile.gettempdir(), f"consensuspr-{name}")
    os.mkdir(folder)
    open(os.path.join(folder, "0.index"), "w").close()
    if name != "serve-young":
        os.utime(folder, (0, 0))
    if name == "serve-alive":
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
"""


def test_prints_one_line_and_leaves_nothing_behind(serve_real: ServeReal) -> None:
    """It also removes the folder of a server that was killed."""
    server = serve_real(prelude=FOLDERS, workers=2).wait_until_listening()
    workers = server.worker_pids()
    assert len(workers) == 2
    assert score_one(server.address) == 1.0
    [left] = re.findall(r"removed (\S+), which a killed process had left", server.log.read_text())
    assert Path(left).name == "consensuspr-serve-killed"
    assert server.stop() == 0
    assert server.process.stdout is not None
    assert server.process.stdout.read() == "", "standard output is one line"
    assert not any(map(is_alive, workers))
    assert sorted(entry.name for entry in server.scratch.iterdir()) == [
        "consensuspr-ray-1",
        "consensuspr-serve-alive",
        "consensuspr-serve-young",
    ]


@pytest.fixture(scope="module")
def shared(dataset_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server that no test harms, with all that can be switched on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_TOP_PAD_", "4096")
        server = ServeProcess(
            tmp_path_factory.mktemp("shared"),
            run_with(
                {
                    "datasets": {"a": str(dataset_file), "b": str(dataset_file)},
                    "address": "127.0.0.1:0",
                    "metrics_address": "127.0.0.1:0",
                    "workers": 2,
                    "log_format": "json",
                }
            ),
        )
    yield server.wait_until_listening()
    server.close()


def test_the_supervisor_loads_neither_grpc_nor_the_scorer(shared: ServeProcess) -> None:
    maps = Path(f"/proc/{shared.process.pid}/maps").read_text()
    for heavy in ("cygrpc", "pyarrow", "numpy"):
        assert heavy not in maps
    for worker in shared.worker_pids():
        assert "cygrpc" in Path(f"/proc/{worker}/maps").read_text()


def test_metrics_add_up_over_workers_and_json_logs(shared: ServeProcess) -> None:
    def scored() -> float:
        name = 'consensuspr_rollouts_total{data_source="toy",run="adds up",status="OK"} '
        found = [line for line in scrape(shared).splitlines() if line.startswith(name)]
        return float(found[0].removeprefix(name)) if found else 0.0

    for _ in range(10):
        with RewardClient(shared.address, run="adds up") as client:
            assert client.score([Rollout("ducks", RIGHT)], dataset="a")[0].reward == 1.0
    wait_for(lambda: scored() == 10)
    wait_for(lambda: "consensuspr_queue_bytes 0.0" in scrape(shared))
    metrics = scrape(shared)
    assert metrics.count("consensuspr_build_info{") == 1  # both workers are one version
    assert "pid=" not in metrics
    roles = {json.loads(line)["role"] for line in shared.log.read_text().splitlines()}
    assert roles >= {"supervisor", "reader"}


def established(pid: int) -> int:
    """Count the connections that a process has accepted."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            link = os.readlink(entry)
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return sum(row[3] == "01" and row[9] in inodes for row in rows)


def start_slow_call(server: ServeProcess, channel: grpc.Channel, seconds: float) -> Any:
    """Start a call that takes a while; return when it is in work."""
    rollouts = [pb.Rollout(problem_id="ducks", response=f"SLEEP {seconds}".encode())]
    call = ScoringServiceStub(channel).Score.future(
        pb.ScoreRequest(protocol_version=PROTOCOL_VERSION, rollouts=rollouts)
    )
    server.wait_until_asleep()
    assert not call.done()
    return call


def test_a_signal_drains(serve_real: ServeReal) -> None:
    """What is admitted is finished, what is new is refused, health says so, the code is 0."""
    server = serve_real(slow=True, drain_delay_s=1.5).wait_until_listening()
    with grpc.insecure_channel(server.address) as channel:
        admitted = start_slow_call(server, channel, 5.0)
        server.process.send_signal(signal.SIGTERM)
        health = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        wait_for(lambda: health.Check(check).status == health_pb2.HealthCheckResponse.NOT_SERVING)
        empty = pb.ScoreRequest(protocol_version=PROTOCOL_VERSION)
        codes = {grpc.StatusCode.OK}
        while grpc.StatusCode.OK in codes:  # until the delay is over
            codes = {ScoringServiceStub(channel).Score.future(empty).code()}
        # Cancelled: gRPC had taken it up when it stopped; clients send it again.
        assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert list(admitted.result(timeout=60).statuses) == [pb.STATUS_OK]
    assert server.process.wait(60) == 0
    assert "drained in" in server.log.read_text()


# What a server runs first to notice hung workers soon.
SHORT = "import consensuspr.server.supervisor as s; s.HEARTBEAT_TIMEOUT_S = 3"


def test_workers_that_die_or_hang_are_replaced(serve_real: ServeReal) -> None:
    """Their clients try another connection, and counters outlive them."""
    server = serve_real(prelude=SHORT, workers=2, metrics_address="127.0.0.1:0")
    killed, hung = server.wait_until_listening().worker_pids()

    def scored() -> float:
        found = re.findall(r"consensuspr_rollouts_total{.*} (\S+)", scrape(server))
        return float(found[0]) if found else 0.0

    with contextlib.ExitStack() as stack:
        clients: list[RewardClient] = []
        while min(established(killed), established(hung)) < 2:
            clients.append(stack.enter_context(RewardClient(server.address, timeout_s=90)))
            clients[-1].server_info()

        def score() -> None:
            with ThreadPoolExecutor(len(clients)) as threads:
                rollouts = [Rollout("ducks", RIGHT)]
                for batch in threads.map(lambda client: client.score(rollouts), clients):
                    assert batch[0].reward == 1.0

        score()
        wait_for(lambda: scored() == len(clients))
        os.kill(killed, signal.SIGKILL)
        os.kill(hung, signal.SIGSTOP)
        score()
    wait_for(lambda: server.log.read_text().count("serves again") == 2)
    log = server.log.read_text()
    assert f"worker 0 (process {killed}) was killed by SIGKILL after" in log
    assert f"(process {hung}) sent no heartbeat for 3" in log
    wait_for(lambda: scored() == 2 * len(clients))
    assert "consensuspr_worker_restarts_total 2.0" in scrape(server)
    os.kill(server.worker_pids()[0], signal.SIGSTOP)
    assert server.stop() == 0, "a hung worker does not hold up the end"


def test_a_server_lives_as_long_as_a_worker_can_start(serve_real: ServeReal) -> None:
    server = serve_real(prelude=HURRY, workers=2, metrics_address="127.0.0.1:0")
    server.wait_until_listening()
    [snapshot] = server.scratch.glob("consensuspr-*/*/*/*.index")
    away = snapshot.rename(snapshot.with_suffix(".away"))
    served, killed = server.worker_pids()
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: "failed start 2" in server.log.read_text(), most_s=60)
    assert served in server.worker_pids()
    assert score_one(server.address) == 1.0
    metrics = scrape(server)
    assert "consensuspr_workers 2.0" in metrics
    assert "consensuspr_workers_serving 1.0" in metrics
    away.rename(snapshot)
    wait_for(lambda: "worker 1 serves again" in server.log.read_text(), most_s=60)
    snapshot.unlink()
    for worker in server.worker_pids():
        os.kill(worker, signal.SIGKILL)
    assert server.process.wait(60) == 1, "a server without workers ends"
    assert "failed 2 times, the last time:" in server.log.read_text()
    assert list(server.scratch.iterdir()) == []


def test_what_is_stopped_does_not_outlive_a_supervisor_that_was_killed(
    serve_real: ServeReal,
) -> None:
    server = serve_real().wait_until_listening()
    [worker] = server.worker_pids()

    def started_by(worker: int) -> list[int]:
        """Return fork server and answer processes; not Python's own tracker of resources."""
        pids = descendants(worker)
        return [pid for pid in pids if "answers.worker" in " ".join(command_line(Process(pid)))]

    with RewardClient(server.address, timeout_s=60) as client:
        client.score([Rollout("ducks", SYMBOLIC)])  # starts answer processes
    everyone = [worker, *started_by(worker)]
    assert len(everyone) > 1
    os.kill(worker, signal.SIGSTOP)
    server.process.kill()
    server.process.wait()
    wait_until_gone(everyone)
    assert "the supervisor has ended; draining" in server.log.read_text()


@pytest.mark.parametrize("setting", ["address", "metrics_address"])
def test_a_port_in_use_is_an_error(serve_real: ServeReal, setting: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        server = serve_real(**{setting: address})
        assert server.process.wait(60) == 1
        assert f"{address} is in use by another process" in server.log.read_text()


def test_a_bad_dataset_is_bad_input(serve_real: ServeReal, tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_bytes(b'{"problem_id": "p"\n')
    server = serve_real(datasets={"default": str(path)})
    assert server.process.wait(60) == 2
    last = server.log.read_text().strip().splitlines()[-1]
    assert last.startswith(f"{path}:1: ")
    assert "Traceback" not in server.log.read_text()
    assert list(server.scratch.iterdir()) == []


def test_a_signal_while_datasets_are_loading_ends_the_server(
    serve_real: ServeReal, tmp_path: Path
) -> None:
    endless = tmp_path / "problems.jsonl"
    os.mkfifo(endless)  # opening it waits for a writer that never comes
    server = serve_real(datasets={"default": str(endless)})
    wait_for(lambda: server.worker_pids() != [])
    [prepare] = server.worker_pids()
    assert server.stop() == 0
    assert not is_alive(prepare)
    assert list(server.scratch.iterdir()) == []


def scrape(server: ServeProcess) -> str:
    """Read the metrics of a server that logs where they are."""
    log = server.log.read_text()
    address = log.partition("metrics on ")[2].split()[0].strip('",}')
    with urllib.request.urlopen(address, timeout=60) as reply:
        text: str = reply.read().decode()
    return text
