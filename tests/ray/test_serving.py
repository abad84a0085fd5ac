"""Replicas behind Ray Serve: one dies, a new dataset comes, and no client notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: run make test-verl")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: run make test-verl")

from consensuspr.client import (  # noqa: E402
    LocalClient,
    RewardClient,
    Rollout,
    ScoredBatch,
)
from consensuspr.client.retries import RpcFailure  # noqa: E402
from consensuspr.errors import InputError, InvalidRequest  # noqa: E402
from consensuspr.ray.serve import (  # noqa: E402
    APPLICATION,
    add_scoring_to_server,
    app,
)
from tests.servers import free_port  # noqa: E402

if TYPE_CHECKING:
    from tests.ray.conftest import AddNode

TIMEOUT_S = 120.0
BUDGET_S = 60.0


@pytest.fixture(scope="module")
def address(cluster: Any) -> Iterator[str]:
    """Where Serve's proxy of the head node listens."""
    port = free_port()
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": "127.0.0.1", "port": free_port()},
        grpc_options={
            "port": port,
            "grpc_servicer_functions": ["consensuspr.ray.serve.add_scoring_to_server"],
        },
    )
    yield f"127.0.0.1:{port}"
    serve.shutdown()


def deploy(problems: Path, token_file: Path | None = None, **options: Any) -> None:
    """Run the application with a dataset, or update it to that."""
    # Time enough for answers on a machine that is busy with a whole cluster.
    arguments = {"max_message_bytes": "16MiB", "answer_budget_s": BUDGET_S}
    who = {"insecure": True} if token_file is None else {"token_file": str(token_file)}
    built = app({"datasets": {"default": str(problems)}, **arguments, **who})
    built = (
        serve.deployment(built._bound_deployment.func_or_class, name="RewardReplica")
        .options(max_ongoing_requests=8, ray_actor_options={"num_cpus": 1}, **options)
        .bind(*built._bound_deployment.init_args)
    )
    serve.run(built, name=APPLICATION, route_prefix="/consensuspr")


@pytest.fixture
def client(address: str) -> Iterator[RewardClient]:
    with RewardClient(address, timeout_s=TIMEOUT_S) as made:
        yield made


def local(problems: Path, rollouts: list[Rollout]) -> ScoredBatch:
    with LocalClient(problems, answer_budget_s=BUDGET_S) as here:
        return here.score(rollouts)


def test_a_client_sees_the_protocol_of_the_plain_server(
    client: RewardClient, address: str, problems: Path, rollouts: list[Rollout]
) -> None:
    deploy(problems)
    info = client.wait_until_ready()
    assert info.max_message_bytes == 16 << 20
    assert client.score(rollouts) == local(problems, rollouts)
    assert client.explain(rollouts[0]).score.status is client.score(rollouts[:1])[0].status
    with pytest.raises(InvalidRequest, match="no dataset is called 'mars'"):
        client.score(rollouts, dataset="mars")
    with grpc.insecure_channel(address) as channel:
        method = "/consensuspr.v1.ScoringService/Score"
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method, bytes, bytes)(b"\xff", timeout=30)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method, bytes, bytes)(bytes((16 << 20) + 1), timeout=30)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert RpcFailure.of(caught.value).retry_after_s is None
    assert is_healthy(address)


def is_healthy(address: str) -> bool:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="consensuspr.v1.ScoringService"), timeout=30
        )
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def test_a_new_dataset_rolls_out_under_a_client_that_keeps_scoring(
    client: RewardClient, problems: Path, other_problems: Path, rollouts: list[Rollout]
) -> None:
    deploy(problems, num_replicas=2)
    batch = rollouts * 4  # several requests a call
    old, new = local(problems, batch), local(other_problems, batch)
    assert old.identity != new.identity
    assert list(old) != list(new)
    updated = threading.Event()
    seen: list[ScoredBatch] = [client.score(batch)]

    def keep_scoring() -> None:
        while not updated.is_set():
            seen.append(client.score(batch))
        seen.append(client.score(batch))

    scoring = threading.Thread(target=keep_scoring)
    scoring.start()
    try:
        deploy(other_problems, num_replicas=2)
    finally:
        updated.set()
        scoring.join()
    expected = {old.identity.dataset_digest: old, new.identity.dataset_digest: new}
    for scored in seen:
        assert scored == expected[scored.identity.dataset_digest]
    assert (seen[0], seen[-1]) == (old, new)


def test_a_killed_node_takes_no_rollout_along(
    cluster: Any,
    add_node: AddNode,
    client: RewardClient,
    problems: Path,
    rollouts: list[Rollout],
) -> None:
    node = add_node(num_cpus=1)
    deploy(problems, num_replicas=2, max_replicas_per_node=1)
    batch = rollouts * 60
    killed = threading.Event()

    def kill(scored: int, total: int) -> None:
        if scored > total // 5 and not killed.is_set():
            killed.set()
            threading.Thread(
                target=cluster.remove_node, args=(node,), kwargs={"allow_graceful": False}
            ).start()

    got = client.score(batch, progress=kill)
    assert killed.is_set()
    assert len(got) == len(batch)
    assert got == local(problems, batch)


def test_load_is_refused_with_a_hint_that_clients_follow(
    client: RewardClient, address: str, problems: Path, rollouts: list[Rollout]
) -> None:
    deploy(problems, num_replicas=1, max_queued_requests=1)
    batch = rollouts * 20  # 8 requests at a time, where Serve queues 1 beside 8 in work
    clients = [RewardClient(address, timeout_s=TIMEOUT_S) for _ in range(4)]
    results: list[ScoredBatch] = []
    threads = [threading.Thread(target=lambda c=c: results.append(c.score(batch))) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for made in clients:
        made.close()
    expected = local(problems, batch)
    assert [result == expected for result in results] == [True] * 4


def test_the_shipped_configuration_is_one_that_serve_takes(repository: Path) -> None:
    yaml = pytest.importorskip("yaml")
    from ray.serve.config import gRPCOptions
    from ray.serve.schema import ServeDeploySchema

    written = yaml.safe_load((repository / "deploy/ray/serve.yaml").read_text(encoding="utf-8"))
    config = ServeDeploySchema.model_validate(written)
    grpc_options = gRPCOptions(**config.grpc_options.model_dump())
    assert grpc_options.grpc_servicer_func_callable == [add_scoring_to_server]
    [application] = config.applications
    assert application.name == APPLICATION
    assert application.import_path == f"{app.__module__}:{app.__name__}"
    built = app(application.args)
    [deployment] = application.deployments
    assert deployment.name == built._bound_deployment.name
    # What the file does not say is what the code says.
    assert deployment.max_ongoing_requests == built._bound_deployment.max_ongoing_requests
    assert deployment.max_queued_requests == built._bound_deployment.max_queued_requests


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"datasets": {"a": "relative.jsonl"}}, "dataset a must be an absolute path"),
        ({"datasets": {"a": "/a.jsonl"}, "score_log": "run"}, "score_log must be an absolute path"),
        ({"datasets": {}}, "datasets must map names to paths, got {}"),
        ({"datasets": {"a": "/a.jsonl"}}, "Serve listens on all addresses of its nodes: set to"),
        ({"datasets": {"a": "/a.jsonl"}, "workers": 2}, "workers has no effect here"),
        (
            {"datasets": {"a": "/a.jsonl"}, "insecure": True, "wrokers": 2},
            "unknown setting 'wrokers'",
        ),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        app(arguments)
