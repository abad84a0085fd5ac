"""The run of examples/verl_cpu that begins without nodes, in small: real verl, a real launch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consensuspr.client.training.grown import GrownDatasets

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verl_cpu"
EPOCHS, EPOCH_STEPS, PROMPTS, ROLLOUTS = 5, 3, 8, 16

# The model has to solve something before anything can be made of it, which takes it a quarter of
# an hour.
pytestmark = [
    pytest.mark.skipif(
        "CONSENSUSPR_LONG_RUNS" not in os.environ,
        reason="a training run of half an hour: set CONSENSUSPR_LONG_RUNS=1",
    ),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def example() -> Iterator[SimpleNamespace]:
    """The modules of the example, which is no installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        # Nodes are made with the least priority; on a busy machine training must not outrun them.
        patch.setenv("RAY_worker_niceness", "19")
        yield SimpleNamespace(
            files=import_module("arithmetic_grpo.files"),
            training=import_module("arithmetic_grpo.training"),
            grow=import_module("grow"),
        )
        for name in [name for name in sys.modules if name.startswith("arithmetic_grpo")]:
            del sys.modules[name]
        del sys.modules["grow"]


def test_training_begins_without_nodes_and_has_them_for_what_it_solved(
    example: SimpleNamespace, tmp_path: Path
) -> None:
    settings = example.training.Settings(
        steps=EPOCHS * EPOCH_STEPS,
        prompts=PROMPTS,
        rollouts=ROLLOUTS,
        epochs=EPOCHS,
        validate_every=EPOCHS * EPOCH_STEPS,
    )
    recipe = example.files.Recipe(
        num_train=settings.num_train,
        num_validation=8,
        warm_start_steps=example.grow.WARM_START_STEPS,
        error_rate=example.grow.ERROR_RATE,
        varied=True,
        nodes=False,
    )
    files = example.files.prepare(tmp_path / "files", recipe, lambda done, loss: None)
    run = example.training.Run("linear", 0, tmp_path / "run")
    try:
        example.training.train_growing(run, files, settings, lambda done: None)
    except SystemExit as error:
        pytest.fail(f"{error}\n{run.console.read_text()[-4000:]}")
    epochs = example.grow.epochs_of(run)
    assert sorted(epochs) == list(range(EPOCHS))
    taken = GrownDatasets(run.logs / "scores" / run.name / "nodes").taken()
    for number, epoch in epochs.items():
        # All of an epoch under one digest, the one that was taken for it.
        assert epoch.digests == {taken[number].digest}
        assert len(epoch.acc) == EPOCH_STEPS * PROMPTS * ROLLOUTS
        solved_before = [epochs[earlier].solved for earlier in range(number)]
        for problem in epoch.with_nodes:
            assert sum(problem in solved for solved in solved_before) >= 2
        # Whoever has nodes keeps them.
        assert all(epochs[earlier].with_nodes <= epoch.with_nodes for earlier in range(number))
    assert epochs[0].with_nodes == epochs[1].with_nodes == set()
    assert epochs[EPOCHS - 1].with_nodes
    rows: list[dict[str, Any]] = list(
        example.grow.rows_of(run, "split", "status", "num_nodes", "acc", "ncr", "final_score")
    )
    for row in rows:
        if row["split"] != "train":
            assert row["num_nodes"] == 0
            continue
        assert row["status"] == ("OK" if row["num_nodes"] else "NO_NODES")
        expected = (row["acc"] + row["ncr"]) / 2 if row["num_nodes"] else row["acc"]
        assert row["final_score"] == pytest.approx(expected)
