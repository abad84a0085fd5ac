"""The training run of examples/verl_cpu, in small: verl itself, under a real launch, and its log.

One run serves all tests: a curriculum of six steps, with a tool for every other problem.  Its
server is killed while samples wait for it, its trainer behind the fifth step, and a second launch
goes on from the checkpoint of the fourth.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from consensuspr.cli import main
from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.data import read_problems
from tests.examples.conftest import NUM_TRAIN, NUM_VALIDATION
from tests.processes import command_line, wait_for, wait_until_gone
from tests.rows import read_rows

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

STEPS, PROMPTS, ROLLOUTS = 6, 4, 4
SAVED, KILLED = 4, 5
ONE_REQUEST, ESTABLISHED = 300, "01"
PATIENCE_S = 120

pytestmark = pytest.mark.timeout(1800)


@dataclass
class Faults:
    """Kills what a launch has started, once each, at steps of its training.

    Attributes:
        run: the example's.
        waiting: bytes that the server had not read when it was killed.
        trainer_killed: whether the other is done, too.
    """

    run: Any
    waiting: int = 0
    trainer_killed: bool = False

    def __call__(self, done: int) -> None:
        """Look at how many steps are done."""
        if done >= 1 and not self.waiting:
            self._kill_server()
        if done >= KILLED and not self.trainer_killed:
            trainer = started("verl.trainer.main_ppo")
            cluster = [process.pid for process in trainer.children(recursive=True)]
            trainer.kill()
            self.trainer_killed = True
            wait_until_gone(cluster, PATIENCE_S)

    def _kill_server(self) -> None:
        """Kill it with its workers, samples having come in that it does not see any more."""
        server = started("serve")
        [port] = re.findall(r"is listening on 127\.0\.0\.1:(\d+)", self.run.console.read_text())
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            # More than what opens a connection and keeps it alive.
            wait_for(lambda: bytes_waiting(int(port)) > ONE_REQUEST, most_s=PATIENCE_S)
            self.waiting = bytes_waiting(int(port))
        finally:
            for process in processes:
                process.kill()


def started(word: str) -> psutil.Process:
    """Return what the launch has started with a word in its command."""
    [launch] = [child for child in psutil.Process().children() if "launch" in command_line(child)]
    [found] = [child for child in launch.children() if word in command_line(child)]
    return found


def bytes_waiting(port: int) -> int:
    """Return how many bytes wait to be read at most, of a connection to a local port."""
    waiting = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            if int(local.rpartition(":")[2], 16) == port and state == ESTABLISHED:
                waiting = max(waiting, int(queues.rpartition(":")[2], 16))
    return waiting


@dataclass
class Finished:
    """A run that has ended.

    Attributes:
        run: the example's.
        metrics: verl's own, by step; of the second start where it made the step.
        before: those of the first start.
        faults: what happened to it.
    """

    run: Any
    metrics: dict[int, dict[str, float]]
    before: dict[int, dict[str, float]]
    faults: Faults


def launched(example: SimpleNamespace, run: Any, *arguments: Any, **options: Any) -> str:
    """Launch a run; return how it failed, and nothing where it did not."""
    try:
        example.training.launch(run, *arguments, **options)
    except SystemExit as error:
        return f"{error}\n{run.console.read_text()[-4000:]}"
    return ""


@pytest.fixture(scope="module")
def finished(
    example: SimpleNamespace, files: Any, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    """A finished run of the curriculum, which switches after half of its steps."""
    folder = tmp_path_factory.mktemp("verl") / "curriculum-0"
    settings = example.training.Settings(
        steps=STEPS, prompts=PROMPTS, rollouts=ROLLOUTS, validate_every=STEPS, tool=True
    )
    assert settings.num_train == NUM_TRAIN
    overrides = (
        f"trainer.save_freq={SAVED}",
        "trainer.resume_mode=auto",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'dumps'}",
    )
    run = example.training.Run("curriculum", 0, folder, overrides)
    faults = Faults(run)
    result = launched(example, run, files, settings, faults, "--no-doctor")
    assert "ended with status 137" in result, result
    before = example.results.read_metrics(run)
    done: list[int] = []
    result = launched(example, run, files, settings, done.append, "--no-doctor", resume=True)
    assert not result, result
    assert run.finished.exists()
    assert done[-1] == STEPS
    again = example.results.read_metrics(run)
    # The second start begins with a validation of the step that was saved.
    metrics = {step: {**before.get(step, {}), **again.get(step, {})} for step in {*before, *again}}
    return Finished(run, metrics, before, faults)


@pytest.fixture(scope="module")
def rows(example: SimpleNamespace, finished: Finished) -> list[dict[str, Any]]:
    """The score log of the run."""
    log: list[dict[str, Any]] = example.results.read_scores(finished.run)
    return log


def trained(rows: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    return [row for row in rows if (row["split"], row["step"]) == ("train", step)]


def test_every_rollout_is_scored_once(rows: list[dict[str, Any]]) -> None:
    """Although a server died with samples in it, and a step was made twice."""
    by_step = Counter(row["step"] for row in rows if row["split"] == "train")
    assert by_step == dict.fromkeys(range(1, STEPS + 1), PROMPTS * ROLLOUTS)
    # Each of the two epochs asks each problem once, with so many responses.
    for epoch in (0, 1):
        asked = Counter(
            row["problem_id"] for row in rows if row["split"] == "train" and row["epoch"] == epoch
        )
        assert asked == {f"train-{number}": ROLLOUTS for number in range(NUM_TRAIN)}
    validated = Counter(row["step"] for row in rows if row["split"] == "test")
    assert validated == dict.fromkeys((0, SAVED, STEPS), NUM_VALIDATION)


def test_rewards_equal_the_formula(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["status"] == "OK"
        # The launch gives workers the dataset, for while its server is away.
        assert row["scored_by"] in ("server", "local")
        assert row["num_nodes"] == 3
        assert row["ncr_raw"] == row["num_matched"] / row["num_nodes"]
        assert row["ncr"] == row["ncr_raw"] * row["guard"]
        assert row["reward"] == (row["ncr"] if row["epoch"] == 0 else row["acc"])
        assert row["final_score"] == row["reward"]
    # The start is good enough for these to say something.
    assert 0.2 < fmean(row["acc"] for row in rows) < 1
    assert 0.2 < fmean(row["ncr"] for row in rows) < 1


def test_the_curriculum_switches_with_the_second_epoch(rows: list[dict[str, Any]]) -> None:
    epochs = {row["step"]: row["epoch"] for row in rows if row["split"] == "train"}
    assert epochs == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}


def test_the_server_died_with_samples_in_it_and_none_was_lost(finished: Finished) -> None:
    assert finished.faults.waiting > ONE_REQUEST
    result = finished.run.console.read_text()
    assert "the reward server died (exit code -9)" in result
    assert "is listening on" in result.partition("the reward server died")[2]
    for step in range(1, STEPS + 1):
        assert finished.metrics[step]["consensuspr/missing"] == 0


def test_a_step_that_is_made_again_counts_once(
    finished: Finished, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert KILLED in finished.before and STEPS not in finished.before
    assert main(["curves", str(finished.run.scores), "--split", "train", "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)
    assert [(one["first_step"], one["samples"]) for one in curve] == [
        (step, PROMPTS * ROLLOUTS) for step in range(1, STEPS + 1)
    ]
    for one in curve:
        key = "consensuspr/ncr"
        shown = finished.metrics[one["first_step"]][key]
        assert one["ncr"] == pytest.approx(shown, abs=1e-6)


def test_every_reward_is_reproduced(
    finished: Finished, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(finished.run.scores), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["samples"] == replayed["same"] == len(rows)
    assert not replayed["changed"] and not replayed["unscored"]


def test_the_worst_of_a_step_is_explained(
    finished: Finished, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    which = ["--step", "1", "--worst", "1", "--json"]
    assert main(["explain", str(finished.run.scores), *which]) == 0
    [explained] = json.loads(capsys.readouterr().out)
    assert explained["step"] == 1
    assert explained["final_score"] == min(row["final_score"] for row in trained(rows, 1))
    [row] = [row for row in rows if row["key"].hex() == explained["key"]]
    for name in ("reward", "acc", "ncr", "num_matched"):
        assert explained["score"][name] == row[name]


def test_what_a_tool_says_earns_nothing(
    example: SimpleNamespace, files: Any, finished: Finished, rows: list[dict[str, Any]]
) -> None:
    """The tool's text holds all nodes and the answer; verl's dumps hold it, the score log not."""
    from arithmetic_grpo.tool_loop import tool_text

    texts = {one.problem_id: one.problem for one in read_problems(files.dataset)}
    logged = {row["rollout_id"]: row for row in rows if row["split"] == "train"}
    dumps = (finished.run.folder / "dumps").glob("*.jsonl")
    gained = tool_rows = 0
    with LocalClient(dataset=files.dataset) as local:
        for dumped in (row for path in dumps for row in read_rows(path)):
            row = logged[dumped["rollout_id"]]
            assert dumped["score"] == row["final_score"]
            tool = tool_text(texts[row["problem_id"]])
            before, found, after = dumped["output"].partition(tool)
            assert bool(found) == (int(row["problem_id"].removeprefix("train-")) % 2 == 1)
            if not found:
                assert row["response"] == dumped["output"]
                continue
            tool_rows += 1
            assert row["response"] == f"{before}\n{after}"
            by_tool = Rollout(row["problem_id"], tool, ground_truth=row["ground_truth"])
            [score] = local.score([by_tool], reward=RewardSpec.linear(0.5))
            assert score.ncr_raw == 1.0
            gained += row["ncr_raw"] < 1.0
    assert tool_rows == STEPS * PROMPTS * ROLLOUTS // 2
    assert gained


def test_verl_trains_on_the_logged_rewards(finished: Finished, rows: list[dict[str, Any]]) -> None:
    metrics = finished.metrics
    assert sorted(metrics) == list(range(STEPS + 1))
    for step in range(1, STEPS + 1):
        logged = [row["reward"] for row in trained(rows, step)]
        assert metrics[step]["critic/score/mean"] == pytest.approx(fmean(logged), abs=1e-6)
    for step in (0, STEPS):
        validated = [row for row in rows if (row["split"], row["step"]) == ("test", step)]
        for key in ("val-core/arithmetic/acc", "val-aux/arithmetic/ncr"):
            mean = fmean(row[key.rsplit("/", 1)[1]] for row in validated)
            assert metrics[step][f"{key}/mean@1"] == pytest.approx(mean, abs=1e-6)


def test_the_step_log_has_the_figures_of_the_reward(
    finished: Finished, rows: list[dict[str, Any]]
) -> None:
    """verl's own console and metrics file, and TensorBoard's events as a reader finds them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, metrics = finished.run, finished.metrics
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    for name in ("acc", "ncr", "ncr_raw", "ncr_of_wrong"):
        key = f"consensuspr/{name}"
        shown = {event.step: event.value for event in events.Scalars(key)}
        for step in range(1, STEPS + 1):
            column = name.removesuffix("_of_wrong")
            chosen = [row for row in trained(rows, step) if name == column or row["acc"] == 0]
            logged = [row[column] for row in chosen]
            assert metrics[step][key] == pytest.approx(fmean(logged), abs=1e-6)
            assert shown[step] == pytest.approx(fmean(logged), abs=1e-6)
        assert f"{key}:" in run.console.read_text()
    for step in range(1, STEPS + 1):
        groups: dict[str, set[float]] = {}
        for row in trained(rows, step):
            groups.setdefault(row["group_id"], set()).add(row["final_score"])
        equal = fmean(len(rewards) == 1 for rewards in groups.values())
        for source in ("", "source/arithmetic/"):
            assert metrics[step][f"consensuspr/{source}equal_groups"] == pytest.approx(equal)
        assert metrics[step]["consensuspr/missing"] == 0
        assert metrics[step]["consensuspr/with_nodes"] == 1
