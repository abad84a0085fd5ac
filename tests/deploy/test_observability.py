"""Dashboard and alerts against a real Prometheus that scrapes a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from consensuspr.server.metrics import Metrics
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.v1.scoring_pb2_grpc import ScoringServiceStub
from tests.processes import wait_for
from tests.rows import DUCKS, DUCKS_SOLVED, write_rows
from tests.servers import ANY_PORT, ServeProcess, free_port, run_with

# Lists far more products than a solution of so many nodes states.
ENUMERATION = "\n".join(f"{a}*{b}={a * b}" for a in range(11, 60) for b in range(a, 60))


@pytest.fixture(scope="module")
def observability(repository: Path) -> Path:
    return repository / "deploy/observability"


@pytest.fixture(scope="module")
def queries(observability: Path) -> list[str]:
    """All queries of the dashboard."""
    dashboard = json.loads((observability / "grafana/dashboards/consensuspr.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(found) > 20
    return found


@pytest.fixture(scope="module")
def alerts(observability: Path) -> list[str]:
    """All expressions of the alerts."""
    [group] = yaml.safe_load((observability / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for rule in group["rules"]]


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CONSENSUSPR_REQUIRE_PROMETHEUS"):
            pytest.fail(f"{program} is required and not there")
        pytest.skip(f"{program} is not installed (Debian's package prometheus has it)")
    return found


def test_operators_are_shown_what_to_do_for_each_alert(repository: Path) -> None:
    rules = (repository / "deploy/observability/alerts.yml").read_text()
    guide = (repository / "docs/guides/operate.md").read_text()
    rows = re.findall(r"^\| (`Consensuspr.*?) \|", guide, re.MULTILINE)
    assert set(re.findall(r"alert: (\w+)", rules)) == set(re.findall(r"\w+", " ".join(rows)))


def test_only_metrics_are_asked_for_that_there_are(queries: list[str], alerts: list[str]) -> None:
    there = {"worker_restarts_total", "workers", "workers_serving", "dataset_changes_total"}
    there.add("dataset_bad")
    for family in Metrics().registry.collect():
        name = family.name.removeprefix("consensuspr_")
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        there |= {name + ending for ending in endings.get(family.type, [""])}
    asked = {
        name
        for query in [*queries, *alerts]
        for name in re.findall(r"consensuspr_(\w+)[{[]", query)
    }
    assert asked
    assert asked - there == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "--syntax-only", "prometheus.yml"],  # no token is there
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ],
    ids=" ".join,
)
def test_promtool_has_nothing_to_say_against(observability: Path, arguments: list[str]) -> None:
    command = [need("promtool"), *arguments]
    done = subprocess.run(command, cwd=observability, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A Prometheus with the rules, which scrapes one server every second."""

    def __init__(self, folder: Path, observability: Path, target: str) -> None:
        config = yaml.safe_load((observability / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        del config["scrape_configs"][0]["authorization"]
        config["rule_files"] = [str(observability / "alerts.yml")]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._log = folder / "prometheus.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    need("prometheus"), f"--config.file={file}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of one of its answers."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """Return the values of an instant query."""
        return [float(found["value"][1]) for found in self.get("query", query=query)["result"]]

    def answers(self) -> bool:
        """Say whether it answers yet."""
        try:
            self.get("query", query="up")
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory, observability: Path
) -> Iterator[Prometheus]:
    """A Prometheus that has seen a server score for two runs."""
    need("prometheus")
    folder = tmp_path_factory.mktemp("observability")
    datasets = {"now": str(write_rows(folder / "now.jsonl", [DUCKS]))}
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "datasets": datasets, "address": ANY_PORT, "metrics_address": metrics, "workers": 2,
    }  # fmt: skip
    rollouts = [
        pb.Rollout(problem_id="ducks", response=DUCKS_SOLVED.encode()),
        pb.Rollout(problem_id="ducks", response=b"no idea"),
        pb.Rollout(problem_id="ducks", response=ENUMERATION.encode()),
        pb.Rollout(problem_id="nobody", response=b"#### 5"),
    ]
    with (
        closing(ServeProcess(folder, run_with(settings))) as server,
        closing(Prometheus(folder, observability, metrics)) as prometheus,
    ):
        server.wait_until_listening()
        wait_for(prometheus.answers, prometheus.process, most_s=60)
        with grpc.insecure_channel(server.address) as channel:
            stub = ScoringServiceStub(channel)

            def both_seen_to_rise() -> bool:
                for run in ("a", "b"):
                    request = pb.ScoreRequest(
                        protocol_version=PROTOCOL_VERSION, run=run, dataset="now", rollouts=rollouts
                    )
                    request.reward.kind = pb.REWARD_KIND_LINEAR
                    request.reward.alpha = 0.5
                    request.reward.guard = request.reward.statements = True
                    stub.Score(request)
                rates = "sum by (run) (rate(consensuspr_rollouts_total[1m])) > 0"
                return len(prometheus.values(rates)) == 2

            wait_for(both_seen_to_rise, prometheus.process, most_s=120)
        yield prometheus


def test_every_panel_shows_something(prometheus: Prometheus, queries: list[str]) -> None:
    empty = []
    for query in queries:
        for variable, text in (("run", ".*"), ("instance", ".*"), ("__rate_interval", "1m")):
            query = query.replace(f"${variable}", text)
        assert "$" not in query
        if not prometheus.values(query):
            empty.append(query)
    assert empty == []


def test_rewards_of_runs_are_told_apart(prometheus: Prometheus) -> None:
    mean = (
        "sum by (run) (consensuspr_acc_sum_total) / sum by (run) (consensuspr_acc_rollouts_total)"
    )
    # One right, two wrong; the fourth is of no problem.
    assert prometheus.values(mean) == pytest.approx([1 / 3] * 2)


def test_alerts_are_evaluated_and_fire_where_a_dataset_does_not_fit(prometheus: Prometheus) -> None:
    def states() -> dict[str, str]:
        [group] = prometheus.get("rules")["groups"]
        assert all(rule["health"] in ("ok", "unknown") for rule in group["rules"]), group
        return {rule["name"]: rule["state"] for rule in group["rules"]}

    # A quarter of the rollouts are of no problem; it would fire after five minutes of that.
    wait_for(lambda: states()["ConsensusprNoReward"] == "pending", most_s=60)
    assert states()["ConsensusprDown"] == "inactive"
