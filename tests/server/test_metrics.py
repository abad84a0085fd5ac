"""What is counted, and that hostile labels cannot make it grow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.scoring.types import Rollout, Score, ScoreColumns, Status
from consensuspr.server.endpoint import WorkerMetrics
from consensuspr.server.metrics import MAX_VALUES, Metrics
from tests.server.conftest import RIGHT, request_of

if TYPE_CHECKING:
    from tests.server.conftest import Serve

TOOK: dict[str, Any] = {"run": None, "total_s": 0.5, "answers_s": 0.2}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"consensuspr_{name}", labels)


def test_a_batch_is_counted_by_status_and_data_source() -> None:
    metrics = Metrics()
    scores = [
        Score(Status.OK, reward=0.75, acc=1.0, ncr=0.5, answer_method="canonical"),
        Score(Status.OK, reward=0.25, acc=0.0, ncr=0.5, answer_method="symbolic"),
        Score(Status.ANSWER_UNDECIDED, reward=0.5, acc=0.0, ncr=1.0, answer_method="budget"),
        Score(Status.NO_NODES, acc=1.0, answer_method="canonical"),
        Score(Status.UNKNOWN_PROBLEM),
    ]
    sources = ["math", "math", "math", "gsm8k", None]
    metrics.batch([Rollout("p", b"12345")] * 5, sources, ScoreColumns.of(scores), **TOOK)
    for source, status, number in (
        ("math", "OK", 2), ("gsm8k", "NO_NODES", 1), ("unknown", "UNKNOWN_PROBLEM", 1),
    ):  # fmt: skip
        labels = {"status": status, "data_source": source, "run": "unknown"}
        assert value(metrics, "rollouts_total", **labels) == number
    assert value(metrics, "ncr_sum_total", data_source="math", run="unknown") == 2.0
    assert value(metrics, "ncr_rollouts_total", data_source="math", run="unknown") == 3
    assert value(metrics, "ncr_rollouts_total", data_source="gsm8k", run="unknown") is None
    assert value(metrics, "acc_sum_total", data_source="gsm8k", run="unknown") == 1.0
    assert value(metrics, "reward_sum_total", data_source="math", run="unknown") == 1.5
    assert value(metrics, "answers_total", method="canonical") == 2
    assert value(metrics, "answers_total", method="budget") == 1
    assert value(metrics, "answers_undecided_total") == 1
    assert value(metrics, "response_bytes_total") == 25
    for stage, seconds in (("total", 0.5), ("answers", 0.2), ("match", 0.3)):
        assert value(metrics, "batch_seconds_sum", stage=stage) == pytest.approx(seconds)


def test_nodes_are_counted_by_channel_and_what_the_guard_lowered_by_answer() -> None:
    metrics = Metrics()
    scores = [
        Score(Status.OK, acc=1.0, ncr=1.0, guard=1.0, channel_numbers=bytes((1, 2, 3))),
        Score(Status.OK, acc=1.0, ncr=0.5, guard=0.5, channel_numbers=bytes((2, 0, 0))),
        Score(Status.OK, acc=0.0, ncr=0.1, guard=0.08, channel_numbers=bytes((1, 1, 1))),
        Score(Status.NO_GROUND_TRUTH, ncr=0.1, guard=0.9),
        Score(Status.NO_NODES, acc=1.0),
    ]
    metrics.batch([Rollout("p", b"")] * 5, [None] * 5, ScoreColumns.of(scores), **TOOK)
    counted = {"pattern": 4, "statement": 2, "code": 1, "none": 2}
    for channel, number in counted.items():
        assert value(metrics, "nodes_total", channel=channel) == number
    for answer in ("right", "wrong", "unknown"):
        assert value(metrics, "guarded_rollouts_total", answer=answer) == 1
    assert value(metrics, "guard_factor_count") == 3
    assert value(metrics, "guard_factor_bucket", le="0.1") == 1


def test_data_sources_are_bounded() -> None:
    metrics = Metrics()
    sources = [f"source {i}" for i in range(1000)] + ["x" * 1000]
    scores = ScoreColumns.of([Score(Status.OK)] * 1001)
    metrics.batch([Rollout("p", b"")] * 1001, sources, scores, **TOOK)
    labels = {
        sample.labels["data_source"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "consensuspr_rollouts_total"
    }
    assert len(labels) == MAX_VALUES + 1
    other = value(metrics, "rollouts_total", status="OK", data_source="other", run="unknown")
    assert other == 1001 - MAX_VALUES


def totals(workers: WorkerMetrics) -> dict[str, float]:
    """Return all samples that are not 0, by name and labels."""
    return {
        f"{sample.name}{list(sample.labels.values())}": sample.value
        for metric in workers.collect()
        for sample in metric.samples
        if sample.value
    }


def test_workers_add_up_and_what_rises_outlives_them() -> None:
    both, workers = [Metrics(), Metrics()], WorkerMetrics()

    def tell() -> None:
        for pid, metrics in enumerate(both):
            # As they come through the channel.
            workers.update(pid, json.loads(json.dumps(metrics.samples())))

    for metrics in both:
        metrics.request("Score", "OK", 0.02)
        metrics.queue = lambda: (1000, 1)
    tell()
    both[1].request("Score", "OK", 7.0)
    tell()
    now = totals(workers)
    assert now["consensuspr_requests_total['Score', 'OK']"] == 3
    assert now["consensuspr_request_seconds_sum['Score']"] == pytest.approx(7.04)
    assert now["consensuspr_request_seconds_bucket['Score', '0.02']"] == 2
    assert now["consensuspr_queue_bytes[]"] == 2000
    [info] = [name for name in now if name.startswith("consensuspr_build_info")]
    assert now[info] == 1
    workers.died(1)
    now = totals(workers)
    assert now["consensuspr_requests_total['Score', 'OK']"] == 3
    assert now["consensuspr_queue_bytes[]"] == 1000


def test_a_look_at_the_server_is_no_part_of_its_metrics(serve: Serve) -> None:
    server = serve()
    reply = server.stub.Score(request_of(RIGHT, probe=True))
    assert list(reply.rewards) == [1.0]
    scored = "rollouts ncr acc reward nodes guard answers batch response_bytes request_rollouts"
    names = tuple(f"consensuspr_{name}_" for name in scored.split())
    counted = [
        sample
        for family in server.metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith(names) and not sample.name.endswith("_created") and sample.value
    ]
    assert not counted
    server.stub.Score(request_of(RIGHT))
    assert server.metric("request_rollouts_count") == 1


def test_a_served_batch_shows_up(serve: Serve) -> None:
    server = serve()
    request = request_of(RIGHT, RIGHT, b"#### 1")
    request.rollouts[1].data_source = "mine"
    request.rollouts.add(problem_id="nobody" * 1000, response=b"#### 5")
    server.stub.Score(request)
    sources = {"toy": ("OK", 2), "mine": ("OK", 1), "unknown": ("UNKNOWN_PROBLEM", 1)}
    for source, (status, number) in sources.items():
        labels = {"status": status, "data_source": source, "run": "unknown"}
        assert server.metric("rollouts_total", **labels) == number
    assert server.metric("request_rollouts_sum") == 4
    assert server.metric("matcher_cache_misses_total") == 1
    server.stub.Score(request_of(rb"\boxed{\int_0^6 x dx}"))
    total = server.metric("batch_seconds_sum", stage="total")
    answers = server.metric("batch_seconds_sum", stage="answers")
    assert total is not None and answers is not None
    assert 0 < answers < total
