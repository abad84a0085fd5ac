"""The server as processes that also listen for HTTP."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.client.admin import AdminClient
from consensuspr.errors import InputError
from consensuspr.score_log.replay import replay
from consensuspr.server import load_config, run
from tests.commands import run_python
from tests.http.conftest import DUCKS
from tests.processes import wait_for
from tests.rows import write_rows
from tests.score_logs import rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import ServeReal

REQUEST = {
    "prompt": f"<|user|>{DUCKS}<|end|>",
    "response": "16 - 3 - 4 = 9 eggs are left. Answer: 18",
    "label": "18",
}


def test_listens_on_both_and_leaves_nothing_behind(serve_real: ServeReal) -> None:
    server = serve_real("--workers", "2").wait_until_listening()
    assert len(server.worker_pids()) == 2
    for _ in range(8):  # on whichever worker
        assert server.post("/slime", REQUEST).body["reward"] == 0.75
    with RewardClient(server.address) as client:
        assert client.score([Rollout("ducks", REQUEST["response"])])[0].reward == 0.75
    assert "5 of 5 problems can be found by their text" in server.log.read_text()
    assert server.stop() == 0
    assert server.process.stdout is not None
    assert server.process.stdout.read() == "", "standard output is one line"
    assert list(server.scratch.iterdir()) == []
    assert "Traceback" not in server.log.read_text()


def test_what_comes_by_http_is_in_the_score_log_and_scored_again_alike(
    serve_real: ServeReal, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server = serve_real("--workers", "2", "--score-log", str(run)).wait_until_listening()
    for at in range(6):  # on whichever worker
        asked = REQUEST | {"response": f"{REQUEST['response']}{' ' * at}"}
        assert server.post("/slime?alpha=0.25&run=mine", asked).body["reward"] == 0.625
    queries = [f"{REQUEST['prompt']}{text}" for text in ("16-3-4=9. Answer: 18", "Answer: 1")]
    prompts = [REQUEST["prompt"]] * 2
    assert server.post("/openrlhf", {"query": queries, "prompts": prompts}).code == 200
    assert server.post("/slime", REQUEST | {"prompt": "Who is that?"}).code == 422
    assert server.stop() == 0
    rows = rows_in(run)
    assert len({row["key"] for row in rows}) == len(rows) == 9
    of_slime = [row for row in rows if row["run"] == "mine"]
    assert sorted(len(row["response"]) for row in of_slime) == [
        len(REQUEST["response"]) + at for at in range(6)
    ]
    assert {row["reward"] for row in of_slime} == {0.625}
    assert [row["status"] for row in rows].count("OK") == 8
    again = replay(run)
    assert (again.samples, again.same) == (9, 9)


def test_a_dataset_that_is_replaced_brings_its_texts(
    serve_real: ServeReal, dataset_file: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_bytes(dataset_file.read_bytes())
    server = serve_real("--workers", "2", dataset=own).wait_until_listening()
    asked = REQUEST | {"prompt": "What is nine plus nine?", "label": None}
    unknown = server.post("/slime", asked)
    assert (unknown.code, unknown.body["unscorable"][0]["status"]) == (422, "UNKNOWN_PROBLEM")
    problem = {"problem_id": "new", "problem": asked["prompt"], "ground_truth": "18"}
    write_rows(own, [problem | {"nodes": [{"node_id": "n", "expressions": ["16 - 3 - 4 = 9"]}]}])
    with AdminClient(server.address, 90) as admin:
        digest = admin.put("default").dataset.info.digest
    for _ in range(8):  # on whichever worker
        assert server.post(f"/slime?run=r&expect_digest={digest}", asked).body["reward"] == 1.0
    assert server.post("/slime", REQUEST).code == 422, "the old texts are gone"
    other = server.post(f"/slime?expect_digest=sha256:{'0' * 64}", asked)
    assert (other.code, digest in other.body["error"]) == (412, True)


def test_the_supervisor_loads_neither_grpc_nor_a_web_framework() -> None:
    program = (
        "import consensuspr.http, sys\n"
        "print(sorted({'grpc', 'numpy', 'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    assert run_python("-c", program) == (0, "[]\n", "")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_drains(serve_real: ServeReal, number: signal.Signals) -> None:
    server = serve_real(slow=True).wait_until_listening()
    with ThreadPoolExecutor() as pool:
        slow = REQUEST | {"response": "SLEEP 8 Answer: 18"}
        admitted = pool.submit(server.post, "/slime?reward=outcome", slow)
        server.wait_until_asleep()
        assert not admitted.done()
        assert server.stop(number) == 0
        assert admitted.result(60).body["reward"] == 1.0
    assert "drained in" in server.log.read_text()


def test_a_worker_that_dies_is_replaced(serve_real: ServeReal) -> None:
    server = serve_real().wait_until_listening()
    assert server.post("/slime", REQUEST).code == 200
    os.kill(server.worker_pids()[0], signal.SIGKILL)
    wait_for(lambda: "serves again" in server.log.read_text())
    assert server.post("/slime", REQUEST).body["reward"] == 0.75


def test_a_port_in_use_is_an_error(serve_real: ServeReal) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        server = serve_real(http_address=address)
        assert server.process.wait(60) == 1
        assert f"{address} is in use by another process" in server.log.read_text()


@pytest.mark.parametrize("address", ["nowhere", "192.0.2.1:0"])
def test_a_bad_address_is_bad_input(serve_real: ServeReal, address: str) -> None:
    server = serve_real(http_address=address)
    assert server.process.wait(60) == 2
    assert "Traceback" not in server.log.read_text()


def test_without_the_extra_the_sentence_says_what_to_install(
    dataset_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from consensuspr import http

    monkeypatch.setattr(http, "find_spec", lambda name: None)
    config = load_config(
        overrides={"datasets": {"default": dataset_file}, "http_address": "127.0.0.1:0"}
    )
    with pytest.raises(
        InputError, match=r'starlette and uvicorn.*pip install "consensuspr\[http]"'
    ):
        http.run(config)


def test_the_plain_server_does_not_leave_out_the_endpoint_in_silence(dataset_file: Path) -> None:
    config = load_config(
        overrides={"datasets": {"default": dataset_file}, "http_address": "127.0.0.1:0"}
    )
    with pytest.raises(InputError, match=r"start the server with consensuspr\.http\.run"):
        run(config)


def test_a_queue_that_is_smaller_than_a_body(dataset_file: Path) -> None:
    small = {"queue_limit_bytes": "32MiB", "datasets": {"default": dataset_file}}
    load_config(overrides=small)  # of no matter where HTTP is off
    with pytest.raises(InputError, match=r"queue_limit_bytes \(33554432\) must be at least"):
        load_config(overrides={**small, "http_address": "127.0.0.1:0"})
