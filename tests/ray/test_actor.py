"""The server as an actor: on the node that was named, back after a crash, gone with its job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: run make test-verl")

from consensuspr.client import Access, LocalClient, RewardClient, Rollout  # noqa: E402
from consensuspr.errors import AccessDenied, InputError, Unavailable  # noqa: E402
from consensuspr.ray import start_server  # noqa: E402

if TYPE_CHECKING:
    from tests.ray.conftest import AddNode


# Time enough for answers on a machine that is busy with a whole cluster.
BUDGET_S = 60.0
SETTINGS = {"workers": 1, "answer_budget_s": BUDGET_S}


def test_serves_from_its_node_and_takes_no_gpu(
    add_node: AddNode,
    free_of: Callable[[str, str], float],
    problems: Path,
    rollouts: list[Rollout],
) -> None:
    node = add_node(num_cpus=1, num_gpus=1)
    with start_server(
        {"math": problems}, node=node.node_id, settings=SETTINGS, ready_timeout_s=120
    ) as server:
        assert server.node_id == node.node_id
        assert free_of(node.node_id, "GPU") == 1.0
        [ip] = [n["NodeManagerAddress"] for n in ray.nodes() if n["NodeID"] == node.node_id]
        assert server.address.rpartition(":")[0] == ip, "an address that other nodes reach"
        assert server.token is not None
        assert server.token not in repr(server)
        with RewardClient(server.address) as client, pytest.raises(AccessDenied):
            client.score(rollouts)
        with (
            RewardClient(server.address, access=Access(token=server.token)) as client,
            LocalClient({"math": problems}, answer_budget_s=BUDGET_S) as local,
        ):
            assert client.score(rollouts) == local.score(rollouts)
        before = server_pid(server.actor)

        os.kill(before, signal.SIGKILL)

        wait_until_served(server.address, Access(token=server.token))
        assert server_pid(server.actor) != before
    with RewardClient(server.address, timeout_s=0.5) as client, pytest.raises(Unavailable):
        client.server_info()
    server.stop()  # once more does no harm


def server_pid(actor: Any) -> int:
    pid: int = ray.get(actor.__ray_call__.remote(lambda keeper: keeper._process.pid))
    return pid


def wait_until_served(address: str, access: Access) -> None:
    """Wait for the new server: the old one's processes may still answer for a moment."""
    deadline = time.monotonic() + 60
    served_again = 0
    with RewardClient(address, timeout_s=1.0, access=access) as client:
        while served_again < 3:
            assert time.monotonic() < deadline, "it did not come back"
            time.sleep(1.0)
            try:
                client.server_info()
                served_again += 1
            except Unavailable:
                served_again = 0


@pytest.mark.usefixtures("cluster")
def test_what_it_cannot_do_is_one_sentence(problems: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no living node is 'mars'; there are [0-9a-f]+ \("):
        start_server(problems, node="mars")
    with pytest.raises(InputError, match=r"missing\.jsonl: no such file"):
        start_server(tmp_path / "missing.jsonl", node="head")
    with pytest.raises(InputError, match="unknown setting 'wokers'"):
        start_server(problems, settings={"wokers": 2})
    with pytest.raises(InputError, match="pass address as an argument"):
        start_server(problems, settings={"address": "0.0.0.0:1"})
