"""Second looks: what the engines disagree on is counted, and what a shadow would change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consensuspr.core import BACKEND
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer
from consensuspr.scoring.types import Rollout, ScoreOptions
from consensuspr.server import second_look
from consensuspr.server.config import ServerConfig
from consensuspr.server.metrics import Metrics
from consensuspr.server.second_look import SecondLook
from tests.processes import wait_for
from tests.rows import DUCKS, write_rows
from tests.server.conftest import RIGHT, Serve, request_of
from tests.servers import InProcessServer

needs_native = pytest.mark.skipif(
    BACKEND != "native", reason="the plain engine has nobody to disagree with"
)


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"consensuspr_{name}", labels) or 0.0


@pytest.fixture
def scorer(index: DatasetIndex) -> Iterator[Scorer]:
    with closing(AnswerVerifier()) as verifier:
        yield Scorer({"default": index}, verifier=verifier, threads=1)


def looking(scorer: Scorer, metrics: Metrics, **shares: Any) -> SecondLook:
    usual: dict[str, Any] = {"recheck_share": 0.0, "shadows": {}, "shadow_share": 1.0}
    return SecondLook(scorer, metrics, **(usual | shares))


@needs_native
def test_all_that_is_served_can_be_rechecked(serve: Serve) -> None:
    server = serve(recheck_share=1)
    for number in range(5):
        server.stub.Score(request_of(RIGHT, f"{number}+1".encode()))
    # One of each batch: the next that is drawn is the first of the batch behind it.
    wait_for(lambda: server.metric("rechecks_total", result="agree") == 5)
    assert server.metric("rechecks_total", result="differ") == 0


@needs_native
def test_a_disagreement_is_counted_and_says_what_differs(
    scorer: Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    rollouts = [Rollout("ducks", RIGHT, rollout_id="r7")]
    scores, identity = scorer.score_columns(rollouts)
    wrong = replace(scores, channel_numbers=[bytes(len(scores.channel_numbers[0]))])
    with (
        closing(looking(scorer, metrics, recheck_share=1.0)) as looks,
        caplog.at_level(logging.ERROR),
    ):
        looks.offer(rollouts, ScoreOptions(), wrong, identity)
        wait_for(lambda: counted(metrics, "rechecks_total", result="differ") == 1)
    assert "the engines disagree on rollout 'r7' of problem 'ducks'" in caplog.text
    assert identity.dataset_digest in caplog.text


@needs_native
def test_the_share_is_kept_whatever_the_batches(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = [Rollout("ducks", RIGHT)] * 7
    scores, identity = scorer.score_columns(rollouts)
    taken: list[int] = []
    monkeypatch.setattr(SecondLook, "_put", lambda self, task: taken.append(1))
    with closing(looking(scorer, Metrics(), recheck_share=0.01)) as looks:
        looks._random.seed(1)
        for _ in range(20_000):
            looks.offer(rollouts, ScoreOptions(), scores, identity)
    # 1,400 of 140,000, less those that fall into a batch that one was taken from already.
    assert 1200 < len(taken) < 1500


def test_what_there_is_no_time_for_is_dropped_and_counted(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    rollouts = [Rollout("ducks", RIGHT)]
    scores, identity = scorer.score_columns(rollouts)
    go_on = threading.Event()
    monkeypatch.setattr(second_look._Shadow, "carry_out", lambda *_: go_on.wait())
    looks = looking(scorer, metrics, shadows={"default": "default"})
    with closing(looks):
        for _ in range(second_look.MAX_WAITING + 3):
            looks.offer(rollouts, ScoreOptions(), scores, identity)
        # One is in work, or about to be.
        dropped = counted(metrics, "second_looks_dropped_total")
        go_on.set()
    assert dropped in (2, 3)


def test_a_shadow_changes_no_reply_and_shows_what_it_would_change(
    index: DatasetIndex, tmp_path: Path
) -> None:
    other_nodes = [{"node_id": "n", "expressions": ["1+1=2"]}]
    file = write_rows(tmp_path / "next.jsonl", [DUCKS | {"nodes": other_nodes}])
    config = ServerConfig(
        datasets={"now": tmp_path, "next": tmp_path}, shadows={"now": "next"}, shadow_share=1
    )
    datasets = {"now": index, "next": DatasetIndex.load(file, name="next")}
    with closing(InProcessServer(config, datasets)) as server:
        request = request_of(RIGHT, b"nothing", dataset="now")
        request.rollouts.add(problem_id="bare", response=b"#### 5")
        reply = server.stub.Score(request)
        assert reply.identity.dataset == "now"

        names = {"dataset": "now", "shadow": "next"}

        def changed(change: str) -> float | None:
            return server.metric("shadow_rollouts_total", change=change, **names)

        wait_for(lambda: changed("same") == 2)  # nothing earns nothing, bare has no nodes
        assert changed("lower") == 1
        assert server.metric("shadow_sum_total", value="ncr", by="served", **names) == 1
        assert server.metric("shadow_sum_total", value="ncr", by="shadow", **names) == 0
        server.stub.Score(request_of(RIGHT, dataset="next"))  # has no shadow itself
        assert server.metric("rollouts_total", status="OK", data_source="toy", run="unknown") == 3


@pytest.mark.parametrize(
    ("shadows", "says"),
    [
        ({"a": "b"}, "shadows name 'b', which is no dataset; there is: a"),
        ({"c": "a"}, "shadows name 'c', which is no dataset; there is: a"),
        ({"a": "a"}, "dataset 'a' cannot be its own shadow"),
    ],
)
def test_shadows_are_checked(shadows: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ServerConfig(datasets={"a": Path("a")}, shadows=shadows)
