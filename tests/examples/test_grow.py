"""A run that begins without nodes, in small: real verl and launch, step credit, tools.

One run serves all tests: three epochs of three steps.  Nodes are made with the least priority
beside training, whose steps take seconds here and minutes elsewhere, so that generation is held in
the second epoch until there are some.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from consensuspr.cli import main
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.data import open_writer, problem_to_row, read_problems
from tests.examples.conftest import NUM_TRAIN
from tests.processes import wait_for
from tests.rows import read_rows

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

EPOCHS, EPOCH_STEPS, PROMPTS, ROLLOUTS = 3, 3, 4, 8
PATIENCE_S = 240

pytestmark = pytest.mark.timeout(1800)


@dataclass
class Hold:
    """Stops generation in the second epoch until a dataset with nodes is ready."""

    folder: Path
    over: bool = field(default=False, init=False)

    def __call__(self, done: int) -> None:
        """Look at how many steps are done."""
        # The first step of the epoch has asked some problems for the second time.
        if self.over or done <= EPOCH_STEPS:
            return
        grown = GrownDatasets(self.folder)
        [server] = [
            process
            for process in psutil.Process().children(recursive=True)
            if process.name().startswith("ray::HFServer")
        ]
        server.suspend()
        try:
            wait_for(
                lambda: (ready := grown.ready()) is not None and ready.with_nodes > 0,
                most_s=PATIENCE_S,
            )
        finally:
            server.resume()
        self.over = True


@pytest.fixture(scope="module")
def run(example: SimpleNamespace, files: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run on questions and answers alone."""
    folder = tmp_path_factory.mktemp("grow")
    bare = example.files.Files(shutil.copytree(files.folder, folder / "files"))
    problems = list(read_problems(files.dataset))
    with open_writer(bare.dataset) as rows:
        for problem in problems:
            rows.write(problem_to_row(replace(problem, nodes=())))
    settings = example.training.Settings(
        steps=EPOCHS * EPOCH_STEPS,
        prompts=PROMPTS,
        rollouts=ROLLOUTS,
        epochs=EPOCHS,
        validate_every=EPOCHS * EPOCH_STEPS,
        tool=True,
    )
    assert settings.num_train == NUM_TRAIN
    dumps = f"trainer.rollout_data_dir={folder / 'dumps'}"
    run = example.training.Run("linear", 0, folder / "run", (dumps,))
    hold = Hold(run.scores / "nodes")
    options = ("--grow-nodes", "--step-credit", "--no-doctor")
    try:
        example.training.launch(run, bare, settings, hold, *options)
    except SystemExit as error:
        pytest.fail(f"{error}\n{run.console.read_text()[-4000:]}")
    return run


def test_nodes_are_in_service_in_the_third_epoch(example: SimpleNamespace, run: Any) -> None:
    epochs = example.grow.epochs_of(run)
    assert sorted(epochs) == list(range(EPOCHS))
    taken = GrownDatasets(run.scores / "nodes").taken()
    for number, epoch in epochs.items():
        # All of an epoch under one digest, the one that was taken for it.
        assert epoch.digests == {taken[number].digest}
        assert len(epoch.acc) == EPOCH_STEPS * PROMPTS * ROLLOUTS
        solved_before = [epochs[earlier].solved for earlier in range(number)]
        for problem in epoch.with_nodes:
            assert sum(problem in solved for solved in solved_before) >= 2
    assert epochs[0].with_nodes == epochs[1].with_nodes == set()
    assert epochs[2].with_nodes


def test_rewards_are_acc_until_there_are_nodes(example: SimpleNamespace, run: Any) -> None:
    names = ("split", "status", "num_nodes", "acc", "ncr", "final_score")
    rows: list[dict[str, Any]] = example.results.read_scores(run, *names)
    assert any(row["num_nodes"] and row["ncr"] for row in rows)
    for row in rows:
        if row["split"] != "train":
            assert row["num_nodes"] == 0
            continue
        assert row["status"] == ("OK" if row["num_nodes"] else "NO_NODES")
        expected = (row["acc"] + row["ncr"]) / 2 if row["num_nodes"] else row["acc"]
        assert row["final_score"] == pytest.approx(expected)


def test_every_reward_is_reproduced_by_the_dataset_of_its_epoch(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(run.scores)]) == 0
    assert "changed" not in capsys.readouterr().out


def test_all_rollouts_train_with_finite_gradients_on_the_same_sums(
    example: SimpleNamespace, run: Any
) -> None:
    """Step credit, with nodes and without, of one turn and of two."""
    metrics = example.results.read_metrics(run)
    rows = example.results.read_scores(run)
    by_step = Counter(row["step"] for row in rows if row["split"] == "train")
    steps = range(1, EPOCHS * EPOCH_STEPS + 1)
    assert by_step == dict.fromkeys(steps, PROMPTS * ROLLOUTS)
    for step in steps:
        logged = [row for row in rows if (row["split"], row["step"]) == ("train", step)]
        rewards = [row["final_score"] for row in logged]
        # verl adds up the tokens' rewards.
        assert metrics[step]["critic/score/mean"] == pytest.approx(fmean(rewards), abs=1e-6)
        assert metrics[step]["critic/score/max"] == pytest.approx(max(rewards), abs=1e-6)
        assert math.isfinite(metrics[step]["actor/grad_norm"])
        # What is still earned falls from node to node; placed at the end it stays the sum.
        tokens = [row["num_tokens"] for row in logged]
        at_the_end = sum(
            reward * count for reward, count in zip(rewards, tokens, strict=True)
        ) / sum(tokens)
        earned = metrics[step]["critic/returns/mean"]
        if any(row["num_matched"] for row in logged):
            # How much lower depends on how many problems have nodes by then.
            assert earned < at_the_end
            assert metrics[step]["critic/returns/max"] == pytest.approx(max(rewards), abs=1e-6)
        else:
            assert earned == pytest.approx(at_the_end, abs=1e-5)
    assert any(metrics[step]["actor/grad_norm"] > 0 for step in steps)


def test_validation_and_dumps_see_nothing_of_the_places(example: SimpleNamespace, run: Any) -> None:
    last = example.results.read_metrics(run)[EPOCHS * EPOCH_STEPS]
    assert not [name for name in last if "by_token" in name]
    for path in (run.folder.parent / "dumps").glob("*.jsonl"):
        assert not [name for row in read_rows(path) for name in row if "by_token" in name]
